"""Four honest workers train on while somebody attacks the server.

Whatever the attack: the parameters are those of the undisturbed run, each
gradient counts, the server's memory stays bounded, and an operator gets in.
attacks.py measures how fast rounds are meanwhile.
"""

import json
import pathlib
import re
import resource
import subprocess
import tempfile
import unittest

from tests.e2e import attacked_job, attacks, http2

BIN = pathlib.Path.cwd()
ROUNDS = 120
# Above the peak of the undisturbed run: what the guest may have in flight
# (64 MiB, and a message or two of gRPC's own), 600 connections and 64 streams
# of 40 KiB, and what malloc keeps.
ALLOWANCE = 160 << 20


class AttacksTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory(prefix="agg_attacks_") as folder:
            one = attacked_job.Job(BIN, folder, ROUNDS)
            timer = attacked_job.watchdog(one.server, 300)
            try:
                one.start_workers()
                cls.check_lines(list(one.lines()))
                cls.undisturbed = one.digests()
                cls.peak = one.peak_bytes()
            finally:
                timer.cancel()
                one.stop()

    @staticmethod
    def check_lines(lines):
        said = [json.loads(line) for line in lines]
        found = [(line["version"], line["included"]) for line in said]
        if found != [(version, True) for version in range(1, ROUNDS + 1)]:
            raise AssertionError(f"rank 0 said {lines}")

    def attack(self, name, refused=""):
        """The metrics page in the midst; `refused`: a reason that is counted."""
        folder = tempfile.TemporaryDirectory(prefix="agg_attacks_")
        self.addCleanup(folder.cleanup)
        one = attacked_job.Job(BIN, folder.name, ROUNDS)
        self.addCleanup(one.stop)
        self.addCleanup(attacked_job.watchdog(one.server, 300).cancel)
        attacker = attacks.Attacker(attacks.ATTACKS[name], one.address,
                                    one.metrics)
        self.addCleanup(attacker.stop)
        self.assertTrue(attacker.built.wait(attacked_job.WAIT), name)
        one.start_workers()
        lines = []
        for line in one.lines():
            lines.append(line)
            if len(lines) == ROUNDS // 2:
                self.assertIn("trainer", one.aggctl("audit", "--last=1000"))
        self.check_lines(lines)
        self.assertEqual(one.digests(), self.undisturbed)
        self.assertTrue(attacker.alive())
        peak = one.peak_bytes()
        self.assertLess(peak, self.peak + ALLOWANCE, f"{peak >> 20} MiB")
        attacker.stop()
        if refused:
            found = re.search(
                r'aggserver_denied_total{.*reason="%s".*} (\d+)' % refused,
                one.page())
            self.assertGreater(int(found[1]), 0, refused)

    def test_slow_loris(self):
        self.attack("slow loris", "max_bytes_in_flight")

    def test_who_never_reads(self):
        self.attack("never reads", "max_bytes_in_flight")

    def test_ten_thousand_streams(self):
        self.attack("10000 streams", "max_streams")

    def test_huge_metadata(self):
        self.attack("8 MiB of metadata")

    def test_a_compression_bomb(self):
        self.attack("compression bomb")

    def test_ten_thousand_joins(self):
        self.attack("10000 joins", "joins_per_second")

    def test_many_connections(self):
        self.attack("many connections", "max_connections")


class FilesTest(unittest.TestCase):
    """A process that may open few files."""

    def test_the_port_outlives_more_connections_than_files(self):
        with tempfile.TemporaryDirectory(prefix="agg_attacks_") as folder:
            path = pathlib.Path(folder)
            (path / "config").write_text(
                'workers: 1 shards: "127.0.0.1:1" learning_rate { rate: 1 }')
            with open(path / "log", "wb") as log:
                server = subprocess.Popen(
                    [BIN / "server" / "agg_server", f"--config={path}/config",
                     "--port=0", f"--port_file={path}/port"], stdout=log,
                    stderr=log, preexec_fn=lambda: resource.setrlimit(
                        resource.RLIMIT_NOFILE, (120, 120)))
            self.addCleanup(server.wait)
            self.addCleanup(server.kill)
            self.addCleanup(attacked_job.watchdog(server, 120).cancel)
            while not (path / "port").exists():
                self.assertIsNone(server.poll(),
                                  (path / "log").read_text(errors="replace"))
            address = (attacked_job.HOST, int((path / "port").read_text()))
            many = [http2.Connection(address, attacked_job.WAIT)
                    for _ in range(200)]
            for connection in many:
                connection.close()
            # A connection that meets the former ones' ends is closed.
            while True:
                one = http2.Connection(address, attacked_job.WAIT)
                try:
                    one.greet()
                    self.assertEqual(one.read()[0], http2.SETTINGS)
                    break
                except ConnectionError:
                    pass
                finally:
                    one.close()


if __name__ == "__main__":
    unittest.main()
