"""Two workers of one host, one of them in another network namespace than the
shard: abstract sockets are not seen there, so it uses TCP, and everybody can
read that. No packet leaves the two namespaces.

Needs root and the right to make network namespaces; is skipped otherwise.
"""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from tests import netns_leftovers

# Where ip may be, and a service's PATH may not lead.
os.environ["PATH"] = ":".join(
    [os.environ.get("PATH", "/usr/bin:/bin"), "/usr/sbin", "/sbin"])
SUBNET = "10.231.8"
ADDRESS = f"{SUBNET}.1:50051"
# What takes as long has failed.
WAIT = 120

CONFIG = f"""workers: 2
lease_seconds: 1
learning_rate {{ rate: 0.01 }}
shards: "{ADDRESS}"
"""


def run(*command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL,
                   capture_output=True)


def end(*_):
    """So that a test that is told to end cleans up as well, once."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)


LIBC = ctypes.CDLL(None)


def end_with_parent():
    """In a child: even a test that is killed leaves no process behind."""
    pr_set_pdeathsig = 1
    LIBC.prctl(pr_set_pdeathsig, signal.SIGKILL)


def why_not():
    """Why namespaces cannot be made here; None if they can."""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("ip") is None:
        return "needs the program ip"
    netns_leftovers.remove()
    name = f"agg{os.getpid()}try"
    try:
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "add", "name", "try0", "type", "veth",
            "peer", "name", "try1")
    except subprocess.CalledProcessError as error:
        return f"cannot make network namespaces: {error.stderr.decode()!r}"
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False,
                       capture_output=True)
    return None


signal.signal(signal.SIGTERM, end)
REASON = why_not()
if REASON:
    print("shared_memory_namespaces_test is skipped:", REASON)


@unittest.skipIf(REASON, REASON)
class SharedMemoryNamespacesTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="agg_namespaces_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.spaces = [f"agg{os.getpid()}n{i}" for i in range(2)]
        for i, space in enumerate(self.spaces):
            # Before: the test may be told to end while it is made.
            self.addCleanup(run, "ip", "netns", "del", space)
            run("ip", "netns", "add", space)
            run("ip", "-n", space, "link", "set", "lo", "up")
            if i == 1:
                run("ip", "-n", space, "link", "add", "name", "eth0", "type",
                    "veth", "peer", "name", "eth0", "netns", self.spaces[0])
        for i, space in enumerate(self.spaces):
            run("ip", "-n", space, "address", "add", f"{SUBNET}.{i + 1}/24",
                "dev", "eth0")
            run("ip", "-n", space, "link", "set", "eth0", "up")

    def start(self, space, name, *command):
        """A process in that namespace; its output goes into NAME.out, .log."""
        with open(self.folder / f"{name}.out", "wb") as out, \
                open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.spaces[space], *command],
                stdin=subprocess.DEVNULL, stdout=out, stderr=log,
                preexec_fn=end_with_parent)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def status(self):
        """The coordinator's StatusReply; None: no answer yet."""
        result = subprocess.run(
            ["ip", "netns", "exec", self.spaces[0],
             "worker_client/tools/aggctl", f"--coordinator={ADDRESS}",
             "status", "--output=json"], capture_output=True, check=False)
        return json.loads(result.stdout) if result.returncode == 0 else None

    def wait_for(self, what, condition):
        deadline = time.monotonic() + WAIT
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)

    def test_a_worker_that_does_not_see_the_sockets_uses_tcp(self):
        config = self.folder / "job.textproto"
        config.write_text(CONFIG + "security { insecure: true }\n")
        server = self.start(0, "server", "server/agg_server",
                            f"--config={config}", "--shard=0",
                            f"--bind={SUBNET}.1")
        for rank in range(2):
            self.start(rank, f"worker_{rank}", "tests/e2e/chaos_worker",
                       f"--coordinator={ADDRESS}", f"--rank={rank}",
                       "--rounds=1000000000")

        def transports():
            return {worker["rank"]: worker["transports"]
                    for worker in (self.status() or {}).get("workers", [])}

        self.wait_for("rank 0 shares memory, rank 1 uses TCP",
                      lambda: transports() == {0: "shm", 1: "tcp"})

        def included(rank):
            lines = (self.folder / f"worker_{rank}.out").read_text()
            return lines.count('"included": true')

        # Rounds go on, and have the rows of both.
        before = [included(rank) for rank in range(2)]
        self.wait_for("ten rounds more",
                      lambda: all(included(rank) > before[rank] + 10
                                  for rank in range(2)))
        self.assertIsNone(server.poll())


if __name__ == "__main__":
    unittest.main()
