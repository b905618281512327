"""A shard of real processes is killed and started again: what workers do, say
and end with."""

import pathlib
import signal
import tempfile
import unittest
from unittest import mock

from tests.e2e import chaos

ROUNDS = 150
SHARDS = 2


class RecoveryTest(unittest.TestCase):

    def train(self, flags, disturb=None):
        """The digests, rank 0's lines and all workers' logs of one run.

        disturb(job, line) is called for each line until it returns True, which
        must come.
        """
        folder = tempfile.TemporaryDirectory(prefix="agg_recovery_")
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name)
        options = chaos.make_parser().parse_args(
            [f"--bin={pathlib.Path.cwd()}", f"--rounds={ROUNDS}",
             f"--shards={SHARDS}", *flags.split()])
        job = chaos.Job(options, path)
        self.addCleanup(job.stop)
        lines = []
        for line in job.lines():
            lines.append(line)
            if disturb and disturb(job, line):
                disturb = None
        self.assertIsNone(disturb, "nothing was disturbed")
        digests = job.digests()
        self.assertEqual(len(set(digests)), 1)
        job.audit()
        logs = [(path / f"worker_{rank}_life_0.log").read_text()
                for rank in range(options.workers)]
        return digests[0], lines, logs

    @staticmethod
    def kill(ordinals, checkpoint=False):
        """Kills them, all at once, and starts each again."""
        def disturb(job, line):
            # Rounds take less time than a checkpoint does.
            if line["version"] < 18 or checkpoint and not list(
                    job.folder.glob("checkpoints/**/manifest.json")):
                return False
            job.shards.kill(ordinals)
            for ordinal in ordinals:
                job.shards.start(ordinal)
            return True
        return disturb

    def check_words(self, logs, *words):
        for log in logs:
            for word in words:
                self.assertIn(word, log)

    def test_a_killed_shard_is_rewound_to_its_checkpoint(self):
        flags = "--replication=none --checkpoint_every_rounds=5"
        expected, _, _ = self.train(flags)
        # A part, the coordinator, and the complete job.
        for killed in ([1], [0], [0, 1]):
            with self.subTest(killed):
                digest, lines, logs = self.train(
                    flags, self.kill(killed, checkpoint=True))
                self.assertEqual(digest, expected)
                versions = [line["version"] for line in lines]
                back = [now for before, now in zip(versions, versions[1:])
                        if now <= before]
                self.assertEqual(len(back), 1, versions)
                self.assertEqual(back[0] % 5, 0, versions)
                # The rewind's own line alone has no row.
                self.assertEqual(
                    [line["version"] for line in lines if not line["included"]],
                    back)
                self.check_words(
                    logs, "waiting for the job to come back: ",
                    "the job has gone back: from version ", "the job is back: ")

    def test_a_killed_shard_with_a_second_copy_rewinds_nothing(self):
        flags = "--replication=buddy"
        expected, _, _ = self.train(flags)
        for killed in (0, 1):
            with self.subTest(killed):
                digest, lines, logs = self.train(flags, self.kill([killed]))
                self.assertEqual(digest, expected)
                self.assertEqual([line["version"] for line in lines],
                                 list(range(1, ROUNDS + 1)))
                self.assertTrue(all(line["included"] for line in lines))
                self.check_words(logs, "waiting for the job to come back: ",
                                 "the job is back: ")

    def test_a_frozen_worker_joins_again_and_goes_on(self):
        frozen = []

        def freeze_and_thaw(job, line):
            if not frozen and line["version"] >= 10:
                frozen.append(job.workers[1])
                frozen[0].send_signal(signal.SIGSTOP)
            # The others have gone on without it: its lease has run out.
            if line["version"] < 14:
                return False
            frozen[0].send_signal(signal.SIGCONT)
            return True

        text = chaos.config_text

        def short_lease(*args):
            return text(*args) + "lease_seconds: 3\n"

        with mock.patch.object(chaos, "config_text", short_lease):
            _, lines, logs = self.train("--replication=none", freeze_and_thaw)
        self.assertEqual(lines[-1]["version"], ROUNDS)
        self.check_words(logs[1:2], "the job is back: ")
        # It has missed the round that it was in, unless it was frozen after
        # that one's end; all other rows of it counted.
        self.assertLessEqual(logs[1].count('"included": false'), 1, logs[1])


if __name__ == "__main__":
    unittest.main()
