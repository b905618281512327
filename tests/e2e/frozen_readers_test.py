"""An update never waits for a reader.

Observers of every version, and workers that are frozen while they pull, end no
shard and change no result. A phase may take 10 s here: a wait for one of them
would end its shard.
"""

import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

from deploy import quickstart_chaos
from tests.e2e import chaos, frozen_readers
from tests.e2e.frozen_readers import FEW, MANY, WAIT, FrozenReader

ROUNDS = 30
MORE = "phase_timeout_seconds: 10\nshared_memory: \"off\"\n"


class FrozenReadersTest(unittest.TestCase):

    def start(self, flags, more):
        folder = tempfile.TemporaryDirectory(prefix="agg_frozen_readers_")
        self.addCleanup(folder.cleanup)
        options = chaos.make_parser().parse_args(
            [f"--bin={pathlib.Path.cwd()}", "--wide", *flags.split()])
        one = chaos.Job(options, pathlib.Path(folder.name), MORE + more)
        self.addCleanup(one.stop)
        return one

    def log(self, one, ordinal=0):
        path = one.folder / f"shard_{ordinal}_life_0.log"
        return path.read_text(errors="replace")

    def check_shards(self, one):
        for ordinal, shard in enumerate(one.shards.running):
            self.assertIsNone(shard.poll(), self.log(one, ordinal))
        self.assertEqual(one.shards.lives, [1] * len(one.shards.lives))

    def addresses(self, one, local):
        """Of the shards, to connect to."""
        if local:
            return [frozen_readers.local_socket(shard)
                    for shard in one.shards.running]
        return one.addresses

    def observe_every_version(self, flags, local, more=""):
        undisturbed = self.start(flags, more)
        for _ in undisturbed.lines():
            pass
        expected = undisturbed.digests()
        undisturbed.stop()

        one = self.start(flags, more)
        readers = []
        versions = 0
        for line in one.lines():
            self.assertTrue(line["included"])
            versions += 1
            if versions >= ROUNDS - 1:
                continue  # shards may be leaving
            for ordinal, address in enumerate(self.addresses(one, local)):
                readers.append(FrozenReader(
                    address, FEW if ordinal == 0 else
                    MANY if versions % 8 == 1 else 1))
                self.addCleanup(readers[-1].close)
            self.check_shards(one)
        self.assertEqual(versions, ROUNDS)
        self.assertEqual(one.digests(), expected)
        self.check_shards(one)
        log = self.log(one)
        self.assertIn("does not read: its pull of version ", log)
        self.assertIn("the round goes on", log)
        self.assertNotIn("has hung", log)
        self.assertNotIn("more than planned", log)
        if not local:
            # It could have taken what is left for a version: a frame is one.
            self.assertIsInstance(readers[0].read(), ConnectionError)

    def test_observers_over_unix_sockets(self):
        self.observe_every_version(
            f"--shards=2 --replication=buddy --rounds={ROUNDS}", local=True)

    def test_observers_over_tcp(self):
        self.observe_every_version(
            f"--shards=2 --replication=buddy --rounds={ROUNDS}", local=False)

    def test_observers_of_one_shard_and_of_narrowed_versions(self):
        self.observe_every_version(
            f"--shards=1 --replication=none --rounds={ROUNDS}", local=True,
            more='pull_dtype: "bf16"\n')

    def test_observers_of_a_pipelined_job(self):
        self.observe_every_version(
            "--shards=2 --replication=none --publish=pipelined "
            f"--rounds={ROUNDS}", local=True)

    def version(self, one):
        found = subprocess.run(
            [one.bin / "worker_client" / "tools" / "aggctl", "status",
             f"--coordinator={one.coordinator}", "--output=json"],
            capture_output=True, text=True, timeout=WAIT, check=True)
        return int(re.search(r'"version": *"?(\d+)', found.stdout)[1])

    def test_workers_that_are_stopped_while_they_pull(self):
        for unix in ("auto", "off"):
            self.stop_workers(unix)

    def stop_workers(self, unix):
        """Two of four, at any moment of a round; their sessions run out."""
        one = self.start(
            "--shards=2 --replication=buddy --workers=4 --rounds=1000000 "
            "--rows=32768",
            f'unix_socket: "{unix}"\nlease_seconds: 2\nmin_workers: 1\n'
            "reconnect_grace_seconds: 1\n")
        lines = one.lines()
        rng = quickstart_chaos.make_random(unix)
        for _ in range(3):
            for _ in range(rng.randrange(5, 10)):
                next(lines)
            # Pulls take a part of the time between two lines of rank 0.
            for worker in one.workers[2:]:
                time.sleep(rng.uniform(0, 0.1))
                worker.send_signal(signal.SIGSTOP)
            before = self.version(one)
            while next(lines)["version"] < before + 6:
                self.check_shards(one)
            for worker in one.workers[2:]:
                worker.send_signal(signal.SIGCONT)
        for worker in one.workers:
            self.assertIsNone(worker.poll())
        self.check_shards(one)
        for ordinal in range(2):
            self.assertNotIn("has hung", self.log(one, ordinal))
        one.stop()


if __name__ == "__main__":
    unittest.main()
