"""A job of four workers under attack by a process that may connect.

    attacks.py --bin=BAZEL_BIN [--rounds=2000] [--only=NAME,..] [--repeats=1]

Trains undisturbed and under each attack, one after the other, and prints a
table: rounds in a second, and the server's largest resident memory. Attackers run in a process of their own at niceness 19, since
they share the machine's processors with the job. attacks_test.py asserts what
does not depend on time.
"""

import argparse
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent))

from tests.e2e import attacked_job, frozen_readers, http2  # noqa: E402
from tests.e2e.attacked_job import GUEST, WORKERS  # noqa: E402

WAIT = attacked_job.WAIT


class Attack:
    """One way to take what a server has; used by one thread.

    build(): takes as much as it can, once. again(): what goes on after that,
    called over and over. `rows`: of the job's first tensor, of 1 KiB each;
    0: of a small one.
    """

    rows = 0

    def __init__(self, address, metrics):
        self.address = address
        self.metrics = metrics
        self.connections = []

    def connect(self, **kwargs):
        connection = http2.Connection(self.address, WAIT, **kwargs)
        self.connections.append(connection)
        return connection

    def build(self):
        raise NotImplementedError

    def again(self):
        time.sleep(0.01)

    def close(self):
        for connection in self.connections:
            connection.close()


class SlowLoris(Attack):
    """Each byte on its own: of a greeting, of a message, of an HTTP request."""

    def build(self):
        self.pending = []
        for _ in range(100):
            self.pending.append((self.connect(), http2.PREFACE * 100))
        for _ in range(20):
            connection = self.connect().greet()
            stream = connection.call("agg.v1.Shard/Push", GUEST)
            connection.send(http2.frame(http2.DATA, 0, stream,
                                        b"\0\0\x80\0\0"))  # of 8 MiB
            one = http2.frame(http2.DATA, 0, stream, b"x")
            self.pending.append((connection, one * 1000))
        for _ in range(50):
            self.pending.append((http2.Connection(self.metrics, WAIT),
                                 b"GET /metrics HTTP/1.1\r\n" + b"a" * 1000))
            self.connections.append(self.pending[-1][0])

    def again(self):
        left = []
        for connection, data in self.pending:
            try:
                connection.send(data[:1])
                left.append((connection, data[1:] or data))
            except OSError:
                pass  # it was closed
        self.pending = left
        time.sleep(0.01)


class NeverReads(Attack):
    """Asks for versions and answers, and takes none of the bytes; then for
    newer versions, over and over. They are too large for a socket's buffers.
    """

    rows = 4096

    def build(self):
        for _ in range(8):
            connection = self._pull()
            for _ in range(200):
                connection.call("agg.v1.Coordinator/Observe", GUEST,
                                b"\x08\x01")

    def _pull(self):
        connection = self.connect(receive_bytes=4096).open_windows()
        for _ in range(8):
            connection.call("agg.v1.Shard/Pull", GUEST, frozen_readers.NEWEST)
        return connection

    def again(self):
        self.connections.pop(0).close()
        self._pull()
        time.sleep(0.01)


class TenThousandStreams(Attack):

    def build(self):
        for _ in range(40):
            connection = self.connect().greet()
            for _ in range(250):
                connection.call("agg.v1.Coordinator/Attend", GUEST)


class HugeMetadata(Attack):
    """8 MiB in one header."""

    def build(self):
        self.again()

    def again(self):
        for former in self.connections:
            former.close()
        self.connections.clear()
        block = http2.call_headers("agg.v1.Coordinator/GetStatus", GUEST,
                                   [(b"x", b"a" * (8 << 20))])
        connection = self.connect().greet()
        step = http2.MAX_FRAME
        kind = http2.HEADERS
        try:
            for i in range(0, len(block), step):
                last = http2.END_HEADERS if i + step >= len(block) else 0
                connection.send(http2.frame(kind, last, 1, block[i:i + step]))
                kind = http2.CONTINUATION
        except OSError:
            pass  # the server has had enough
        time.sleep(2)


class CompressionBomb(Attack):
    """0.5 MB that expand to 512 MiB."""

    def build(self):
        deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
        self.body = b"".join(deflate.compress(bytes(1 << 20))
                             for _ in range(512)) + deflate.flush()
        self.again()

    def again(self):
        connection = self.connect().greet()
        try:
            stream = connection.call("agg.v1.Coordinator/Observe", GUEST,
                                     more=[(b"grpc-encoding", b"gzip")])
            connection.socket.settimeout(1)
            connection.send_data(stream, http2.message(self.body, True), True)
        except OSError:
            pass  # it was refused in the midst
        time.sleep(0.1)


class TenThousandJoins(Attack):
    """Of ranks that others have."""

    def build(self):
        self.refusals = b""
        for _ in range(40):
            self.refusals += self._join(250)

    def _join(self, number):
        connection = self.connect().greet()
        for i in range(number):
            # protocol_version 1, the rank
            connection.call("agg.v1.Coordinator/Join", GUEST,
                            b"\x08\x01\x10" + bytes([i % WORKERS]))
        return b"".join(connection.ends(number))

    def again(self):
        self._join(50)
        self.connections.pop().close()


class ManyConnections(Attack):
    """Without a call; more than there may be, again and again."""

    def build(self):
        for _ in range(2000):
            self.again()

    def again(self):
        try:
            self.connect().greet()
        except OSError:
            pass  # it was refused
        if len(self.connections) > 2500:
            self.connections.pop(0).close()


ATTACKS = {"slow loris": SlowLoris, "never reads": NeverReads,
           "10000 streams": TenThousandStreams,
           "8 MiB of metadata": HugeMetadata,
           "compression bomb": CompressionBomb,
           "10000 joins": TenThousandJoins,
           "many connections": ManyConnections}


def _attack(kind, address, metrics, niceness, built, stop):
    """The attacker's process."""
    os.nice(niceness)
    attack = kind(address, metrics)
    attack.build()
    built.set()
    while not stop.is_set():
        attack.again()
    attack.close()


class Attacker:
    """A process that attacks from construction to stop()."""

    def __init__(self, kind, address, metrics, niceness=0):
        context = multiprocessing.get_context("fork")
        self.built, self._stop = context.Event(), context.Event()
        self._process = context.Process(
            target=_attack, args=(kind, address, metrics, niceness,
                                  self.built, self._stop))
        self._process.start()

    def alive(self):
        return self._process.is_alive()

    def stop(self):
        self._stop.set()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def measure(bin_folder, rounds, rows, kind=None):
    """(rounds in a second, peak bytes) of a run after its first tenth."""
    with tempfile.TemporaryDirectory(prefix="agg_attacks_") as folder:
        one = attacked_job.Job(bin_folder, folder, rounds, rows)
        timer = attacked_job.watchdog(one.server, 600)
        attacker = None
        try:
            if kind:
                attacker = Attacker(kind, one.address, one.metrics,
                                    niceness=19)
                if not attacker.built.wait(WAIT):
                    raise TimeoutError(f"{kind.__name__} is not built")
            one.start_workers()
            for number, _ in enumerate(one.lines(), 1):
                if number == rounds // 10:
                    began = time.monotonic()
            rate = (rounds - rounds // 10) / (time.monotonic() - began)
            peak = one.peak_bytes()
            one.digests()
            return rate, peak
        finally:
            timer.cancel()
            if attacker:
                attacker.stop()
            one.stop()


def main(argv):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n", maxsplit=1)[0], allow_abbrev=False)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args(argv)
    names = options.only.split(",") if options.only else ATTACKS
    print("| attack | rounds/s | undisturbed | part | peak memory | undisturbed |")
    print("|---|---|---|---|---|---|")
    for name in names:
        # In pairs, since other work on the machine comes and goes.
        kind = ATTACKS[name]
        pairs = [(measure(options.bin, options.rounds, kind.rows),
                  measure(options.bin, options.rounds, kind.rows, kind))
                 for _ in range(options.repeats)]
        pairs.sort(key=lambda pair: pair[1][0] / pair[0][0])
        (clean, least), (rate, _) = pairs[len(pairs) // 2]
        peak = max(peak for _, (_, peak) in pairs)
        print(f"| {name} | {rate:.0f} | {clean:.0f} | {rate / clean:.0%} | "
              f"{peak >> 20} MiB | {least >> 20} MiB |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
