"""The benchmark's link: that packets cross it, no sooner than they may, and
that nothing of it stays. As root; is skipped otherwise."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

from tests.bench import links

BIN = pathlib.Path(os.environ.get("AGG_BIN", ".")).absolute()
RTT_MS = 20

# Sends what comes back to where it came from.
ECHO = f"""
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("{links.ADDRESS}", 5000))
print("ready", flush=True)
while True:
    datagram, sender = server.recvfrom(2048)
    server.sendto(datagram, sender)
"""
ASK = f"""
import socket, time
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(60)
client.connect(("{links.ADDRESS}", 5000))
begin = time.monotonic()
client.send(bytes(1000))
assert len(client.recv(2048)) == 1000
print(1e3 * (time.monotonic() - begin))
"""


def why_not():
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("ip") is None:
        return "needs the program ip"
    try:
        with links.Link(links.Shape(100, RTT_MS), BIN):
            return None
    except links.LinkError as error:
        return str(error)


PATH = os.environ.get("PATH", "/usr/bin:/bin")
os.environ["PATH"] = f"{PATH}:/usr/sbin:/sbin"
REASON = why_not()
signal.signal(signal.SIGTERM, signal.SIG_DFL)
if REASON:
    print("links_test is skipped:", REASON)


def namespaces():
    return [name for name in os.listdir("/run/netns")
            if name in (f"aggs{os.getpid()}", f"aggw{os.getpid()}")]


class ShapeTest(unittest.TestCase):

    def test_the_queue_holds_a_round_trip(self):
        self.assertEqual(links.Shape(1000, 20).queue_kb, 2500)
        self.assertEqual(links.Shape(10, 20).queue_kb, 256)  # at least
        self.assertEqual(links.Shape(1000, 20, queue_kb=99).queue_kb, 99)
        self.assertNotIn("queue 256 kB", str(links.Shape(1000)))  # tbf's own
        self.assertIn("queue 99 kB", str(links.Shape(1000, 20, queue_kb=99)))
        shape = links.Shape(1000, 20, 0.1, 99, 7).without_loss()
        self.assertEqual((shape.loss, shape.queue_kb, shape.seed),
                         (0.0, 99, 7))


@unittest.skipIf(REASON, REASON)
class LinkTest(unittest.TestCase):

    def test_a_datagram_takes_the_delay_both_ways(self):
        with links.Link(links.Shape(100, RTT_MS), BIN, "reno") as link:
            with subprocess.Popen(
                    link.inside(link.servers, sys.executable, "-c", ECHO),
                    stdout=subprocess.PIPE, text=True) as server:
                try:
                    self.assertEqual(server.stdout.readline(), "ready\n")
                    took = float(subprocess.run(
                        link.inside(link.workers, sys.executable, "-c", ASK),
                        check=True, capture_output=True, text=True).stdout)
                finally:
                    server.kill()
            self.assertGreaterEqual(took, RTT_MS)
            counts = link.counts()
            self.assertGreaterEqual(counts["to servers"]["bytes"], 1000)
            self.assertGreaterEqual(counts["to workers"]["bytes"], 1000)
            self.assertEqual(counts["to servers"]["lost"], 0)
        self.assertEqual(namespaces(), [])

    def test_what_cannot_be_set_up_leaves_nothing(self):
        with self.assertRaises(links.LinkError):
            with links.Link(links.Shape(100, RTT_MS), BIN, "no_such_control"):
                self.fail("was set up")
        self.assertEqual(namespaces(), [])

    def test_a_killed_emulator_leaves_nothing(self):
        with links.Link(links.Shape(100, RTT_MS), BIN) as link:
            link.emulator.kill()
        self.assertEqual(namespaces(), [])


if __name__ == "__main__":
    unittest.main()
