"""Two network namespaces with a link between them, for benchmarks: as root.

Without delay and loss a pair of virtual Ethernet devices, shaped by tbf; else
slow_link with a TUN device at each end, since netem is in few kernels. No
packet leaves the two namespaces.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys

# A program of this folder finds its neighbours, but not the tree.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))
from tests import netns_leftovers  # noqa: E402

ADDRESS = "10.231.7.1"  # of the servers' end
WORKERS_ADDRESS = "10.231.7.2"
MTU = 1500


class LinkError(Exception):
    """What this machine does not let a link be made of."""


def must(*command):
    command = [str(word) for word in command]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, text=True,
                            capture_output=True, check=False)
    if result.returncode != 0:
        raise LinkError(f"{' '.join(command)}: {result.stderr.strip()}")


class Shape:
    """A link's numbers, the same each way."""

    def __init__(self, mbit, rtt_ms=0.0, loss=0.0, queue_kb=None, seed=1):
        self.mbit = mbit
        self.rtt_ms = rtt_ms
        self.loss = loss  # percent
        # What the link carries in a round trip: a usual router's buffer.
        self.queue_kb = queue_kb or max(256, int(mbit * rtt_ms / 8))
        self.seed = seed
        self.emulated = bool(rtt_ms or loss)  # by slow_link, else by tbf

    def without_loss(self):
        return Shape(self.mbit, self.rtt_ms, 0.0, self.queue_kb, self.seed)

    def __str__(self):
        if not self.emulated:
            return f"{self.mbit} Mbit/s, by tbf with a queue of 100 ms"
        return (f"{self.mbit} Mbit/s, round trip {self.rtt_ms:g} ms, loss"
                f" {self.loss:g}%, queue {self.queue_kb} kB")


class Link:
    """`with` it: the namespaces `servers` and `workers`, and their link."""

    def __init__(self, shape, bin_folder, congestion=None):
        self.shape = shape
        self.bin = bin_folder
        self.congestion = congestion
        self.servers = f"aggs{os.getpid()}"
        self.workers = f"aggw{os.getpid()}"
        self.emulator = None

    def __enter__(self):
        # So that a benchmark that is told to end cleans up as well.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        netns_leftovers.remove()
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *unused):
        if self.emulator:
            self.emulator.stdin.close()
            try:
                self.emulator.wait(10)
            except subprocess.TimeoutExpired:
                self.emulator.kill()
                self.emulator.wait()
            self.emulator.stdout.close()
            self.emulator = None
        for name in (self.servers, self.workers):
            if pathlib.Path("/run/netns", name).exists():
                subprocess.run(["ip", "netns", "del", name], check=False)

    def _make(self):
        for name in (self.servers, self.workers):
            must("ip", "netns", "add", name)
            must("ip", "-n", name, "link", "set", "lo", "up")
        if self.shape.emulated:
            self._start_emulator()
        else:
            must("ip", "link", "add", "end", "netns", self.servers, "type",
                 "veth", "peer", "name", "end", "netns", self.workers)
        for name, address in ((self.servers, ADDRESS),
                              (self.workers, WORKERS_ADDRESS)):
            self._bring_up(name, address)

    def _bring_up(self, name, address):
        must("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "end")
        # As slow_link takes packets from the device at once, no other queue
        # than its own ever fills.
        must("ip", "-n", name, "link", "set", "end", "mtu", MTU,
             "txqueuelen", 20000, "up")
        if not self.emulator:
            must("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev",
                 "end", "root", "tbf", "rate", f"{self.shape.mbit}mbit",
                 "burst", "256kb", "latency", "100ms")
        if self.congestion:
            # By the route: a namespace's sysctl takes only what the kernel
            # allows to everybody.
            must("ip", "-n", name, "route", "replace", "10.231.7.0/24", "dev",
                 "end", "scope", "link", "src", address, "congctl",
                 self.congestion)

    def _start_emulator(self):
        shape = self.shape
        self.emulator = subprocess.Popen(
            [self.bin / "tests/bench/slow_link", f"--from={self.servers}",
             f"--to={self.workers}", f"--mbit={shape.mbit}",
             f"--delay_ms={shape.rtt_ms / 2}", f"--loss={shape.loss}",
             f"--queue_kb={shape.queue_kb}", f"--seed={shape.seed}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if not self.emulator.stdout.readline():
            raise LinkError("slow_link has ended")

    def counts(self):
        """Of each direction, packets and what became of them; None: by
        tbf."""
        if not self.emulator:
            return None
        self.emulator.stdin.write("\n")
        self.emulator.stdin.flush()
        counts = json.loads(self.emulator.stdout.readline())
        return {"to workers": counts["forth"], "to servers": counts["back"]}

    @staticmethod
    def inside(name, *command):
        return ["ip", "netns", "exec", name, *command]


def describe(counts):
    for direction, c in (counts or {}).items():
        sent = c["packets"] + c["lost"]
        print(f"  {direction}: {sent} packets, {c['lost'] / max(sent, 1):.4%}"
              f" lost, {c['dropped']} dropped by the queue, each"
              f" {c['mean_late_us']:.0f} us late in the mean and"
              f" {c['latest_us'] / 1e3:.1f} ms at most")
