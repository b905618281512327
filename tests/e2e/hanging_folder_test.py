"""A shard whose checkpoint folder does not answer: what needs no checkpoint goes
on, what needs one says which folder it waits for."""

import pathlib
import tempfile
import time
import unittest

from deploy import quickstart_chaos
from tests.e2e import chaos

HANGING = pathlib.Path.cwd() / "tests" / "e2e" / "hanging_folder.so"


class HangingFolderTest(unittest.TestCase):

    def begin(self, flags):
        """A running job with a checkpoint, whose shard 1 may hang from its next
        life on: as long as `self.flag` is there."""
        folder = tempfile.TemporaryDirectory(prefix="agg_hanging_")
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name)
        self.flag = path / "hangs"
        self.folder = path / "checkpoints" / "1"
        options = chaos.make_parser().parse_args(
            [f"--bin={pathlib.Path.cwd()}", "--rounds=100000", "--shards=2",
             "--actions=torn", "--checkpoint_every_rounds=5", *flags.split()])
        job = chaos.Job(options, path)
        self.addCleanup(job.stop)
        command = job.shards.command
        job.shards.command = lambda ordinal: [
            "env", f"LD_PRELOAD={HANGING}", f"AGG_HANG_BELOW={self.folder}",
            f"AGG_HANG_WHILE={self.flag}", *command(ordinal)
        ] if ordinal == 1 else command(ordinal)
        disturber = chaos.Disturber(
            job, quickstart_chaos.make_random(1), [], lambda _: None)
        self.await_status(disturber, lambda status: int(
            status["checkpoint"]["num_sealed"]) > 0)
        return job, disturber

    def await_status(self, disturber, wanted):
        deadline = time.monotonic() + quickstart_chaos.SETTLE_SECONDS
        while time.monotonic() < deadline:
            status = disturber.status()
            if status and wanted(status):
                return status
            time.sleep(0.05)
        self.fail(f"it does not come to that: {disturber.status()}, "
                  f"{disturber.status_error}")

    def test_a_shard_whose_copies_are_elsewhere_comes_back_without_it(self):
        job, disturber = self.begin("--replication=buddy")
        before = disturber.status()
        self.flag.touch()
        job.shards.kill([1])
        job.shards.start(1)
        after = disturber.settle(before, must_change=True)
        self.assertEqual(after["history"], before["history"])
        self.assertTrue(self.flag.exists())
        log = (job.folder / "shard_1_life_1.log").read_text()
        self.assertIn("checkpoints cannot be seen: ", log)
        self.assertIn(str(self.folder), log)

    def test_a_job_that_needs_it_names_it_and_goes_on_when_it_answers(self):
        job, disturber = self.begin("--replication=none")
        self.flag.touch()
        job.shards.kill([1])
        job.shards.start(1)
        status = self.await_status(
            disturber, lambda status: "the job waits" in status["recovering"])
        self.assertIn(f"shard 1 ({self.folder}/chaos)", status["recovering"])
        self.flag.unlink()
        self.await_status(disturber, lambda status: status["phase"] in (
            "open", "closing"))


if __name__ == "__main__":
    unittest.main()
