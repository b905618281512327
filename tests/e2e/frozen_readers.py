"""Readers of a job's versions that stop to read."""

import pathlib
import re

from tests.e2e import http2

WAIT = 120  # what takes as long has failed
# PullRequest: F32 of the newest version.
NEWEST = b"\x18\x01\x20\x01"
# So many pulls do not fit the buffers of a socket, whatever they are: of a
# version of 4 MiB, or of one of 90 KB.
FEW, MANY = 8, 100


def local_socket(process):
    """The name of a server's Unix socket for calls (P38)."""
    inodes = set()
    for link in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
        except OSError:
            continue  # closed meanwhile
        if found:
            inodes.add(found[1])
    for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]:
        words = line.split()
        if (len(words) == 8 and words[6] in inodes
                and re.fullmatch("@agg-[0-9a-f]{16}", words[7])):
            return words[7][1:]
    raise LookupError(f"process {process.pid} listens on no such socket")


class FrozenReader:
    """Asks for the newest version, as often as `pulls` says, and takes none of
    the bytes. `address` and `tls`: as http2.Connection's."""

    def __init__(self, address, pulls=FEW, token="", tls=None):
        self.connection = http2.Connection(address, WAIT, receive_bytes=4096,
                                           tls=tls)
        self.connection.open_windows()
        for _ in range(pulls):
            self.connection.call("agg.v1.Shard/Pull", token, NEWEST)

    def read(self):
        """All that comes; why no more does, as an exception."""
        try:
            while True:
                self.connection.read()
        except OSError as error:
            return error

    def close(self):
        self.connection.close()
