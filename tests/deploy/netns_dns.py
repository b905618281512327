"""A DNS server for the namespaces of a test: A records, one file, UDP.

`netns_dns.py ADDRESS RECORDS`: RECORDS has lines "name address" and is read
anew for each question, so that a test moves a name by replacing the file.
"""

import pathlib
import socket
import struct
import sys

_A = 1
_TTL_SECONDS = 1


def question_of(packet):
    """(name, type, end) of the first question."""
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1:at + 1 + packet[at]].decode("ascii"))
        at += 1 + packet[at]
    kind, _ = struct.unpack_from("!HH", packet, at + 1)
    return ".".join(labels).lower(), kind, at + 5


def answer_to(packet, records):
    """The reply: one address, no data of that type, or no such name."""
    name, kind, end = question_of(packet)
    address = records.get(name)
    found = address is not None and kind == _A
    # An answer, authoritative, recursion available.
    flags = 0x8480 | (packet[2] & 1) << 8 | (0 if address is not None else 3)
    reply = packet[:2] + struct.pack("!5H", flags, 1, int(found), 0, 0)
    reply += packet[12:end]
    if found:
        # 0xC00C: the question's name.
        reply += struct.pack("!HHHIH", 0xC00C, _A, 1, _TTL_SECONDS, 4)
        reply += socket.inet_aton(address)
    return reply


def read_records(text):
    return dict(line.split() for line in text.splitlines() if line.strip())


def main():
    address, path = sys.argv[1], pathlib.Path(sys.argv[2])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        print("listening", flush=True)
        while True:
            packet, client = server.recvfrom(512)
            try:
                reply = answer_to(packet, read_records(path.read_text()))
            except (IndexError, UnicodeDecodeError, struct.error):
                continue  # no DNS
            server.sendto(reply, client)


if __name__ == "__main__":
    main()
