"""The ways back of deploy/docs/way_back.md, on real processes: everything is lost
at once, one folder is lost, an older checkpoint, another number of shards, another
job's name, other machines, a job that has finished.

One job is trained to its end undisturbed; another one is backed up while it
trains and killed. Each test goes on from a copy of that backup, in other folders
and at other ports, and has to end with the same bits.
"""

import json
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest
from unittest import mock

from tests.e2e import chaos

ROUNDS = 150
EVERY = 4  # rounds between two checkpoints
SHARDS = 2
WAIT = 180  # a test that needs as long has failed
BIN = pathlib.Path.cwd()


def options(shards=SHARDS, rounds=ROUNDS):
    # torn: each shard has a folder of its own.
    return chaos.make_parser().parse_args(
        [f"--bin={BIN}", f"--rounds={rounds}", f"--shards={shards}",
         "--actions=torn", f"--checkpoint_every_rounds={EVERY}"])


def aggctl(coordinator, *words):
    """(exit code, standard output, error)."""
    run = subprocess.run(
        [BIN / "worker_client/tools/aggctl", words[0],
         f"--coordinator={coordinator}", "--timeout=60", *words[1:]],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=WAIT,
        check=False)
    return run.returncode, run.stdout, run.stderr


def sealed(folder):
    """Names of the checkpoints in a shard's folder, oldest first."""
    return sorted((path.parent.name for path in folder.glob("*/manifest.json")),
                  key=lambda name: tuple(map(int, name.split("-"))))


def version_of(name):
    return int(name.split("-")[1])


def back_up(sources, target):
    """Copies the checkpoints that all shards have sealed, as the page says: each
    with its manifest last. Returns their names.

    A checkpoint never changes, but old ones are removed while this runs.
    """
    names = sorted(set.intersection(*(set(sealed(s)) for s in sources)),
                   key=lambda name: tuple(map(int, name.split("-"))))
    copied = []
    for name in names:
        try:
            for ordinal, source in enumerate(sources):
                to = target / str(ordinal) / "chaos" / name
                to.mkdir(parents=True)
                for part in (source / name).glob("part-*"):
                    shutil.copy(part, to)
                shutil.copy(source / name / "manifest.json", to)
            copied.append(name)
        except FileNotFoundError:
            for ordinal in range(len(sources)):
                shutil.rmtree(target / str(ordinal) / "chaos" / name,
                              ignore_errors=True)
    return copied


def gathered(backup, name):
    """All parts of one checkpoint in one folder, with the manifest."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="agg_gathered_"))
    for own in backup.iterdir():
        for path in (own / "chaos" / name).iterdir():
            shutil.copy(path, folder)
    return folder


class WayBackTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(tempfile.mkdtemp(prefix="agg_way_back_"))
        cls.addClassCleanup(shutil.rmtree, cls.scratch)
        undisturbed = cls.make_job("undisturbed")
        cls.addClassCleanup(undisturbed.stop)
        for _ in undisturbed.lines():
            pass
        cls.expected = undisturbed.digests()
        undisturbed.stop()
        assert len(set(cls.expected)) == 1, cls.expected

        cls.backup = cls.scratch / "backup"
        cls.names = []
        lost = cls.make_job("lost")
        cls.addClassCleanup(lost.stop)
        sources = [lost.folder / "checkpoints" / str(s) / "chaos"
                   for s in range(SHARDS)]
        for line in lost.lines():
            # Two of them, so that one is older, whatever the disk's speed.
            if line["version"] < 20:
                continue
            for _ in range(2):
                code, _, error = aggctl(lost.coordinator, "checkpoint")
                assert code == 0, error
            cls.names = back_up(sources, cls.backup)
            if len(cls.names) >= 2:
                break
            shutil.rmtree(cls.backup, ignore_errors=True)
        # Not of the last rounds: the tests need some to go.
        assert len(cls.names) >= 2, cls.names
        assert version_of(cls.names[-1]) < ROUNDS - 2 * EVERY, cls.names
        # Everything is lost at once.
        lost.shards.kill(range(SHARDS))
        lost.kill_workers()
        lost.workers[0].stdout.close()
        lost.stop()

    @classmethod
    def make_job(cls, name, shards=SHARDS, backup=None, edit=None,
                 rounds=ROUNDS):
        """A job in a folder of its own, which begins with `backup`."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}_",
                                               dir=cls.scratch))
        if backup:
            shutil.copytree(backup, folder / "checkpoints")
        text = chaos.checkpoint_text

        def edited(*args):
            return edit(text(*args)) if edit else text(*args)

        with mock.patch.object(chaos, "checkpoint_text", edited):
            return chaos.Job(options(shards, rounds), folder)

    def start(self, name, **more):
        job = self.make_job(name, **more)
        self.addCleanup(job.stop)
        return job

    def status(self, job):
        code, output, error = aggctl(job.coordinator, "status",
                                     "--output=json")
        # Shard 0 may not be there yet.
        return json.loads(output) if code == 0 else {"error": error}

    def await_status(self, job, what, condition):
        deadline = time.monotonic() + WAIT
        while True:
            job.processes.check()
            status = self.status(job)
            if "error" not in status and condition(status):
                return status
            self.assertLess(time.monotonic(), deadline, f"{what}: {status}")
            time.sleep(0.05)

    def finish(self, job):
        """To the end; the versions that rank 0 has seen."""
        versions = [line["version"] for line in job.lines()]
        self.assertEqual(versions[-1], ROUNDS)
        self.assertEqual(job.digests(), self.expected)
        return versions

    def test_the_backup_can_be_verified(self):
        for name in self.names:
            folder = gathered(self.backup, name)
            self.addCleanup(shutil.rmtree, folder)
            command = [BIN / "worker_client/tools/agg_pull",
                       f"--checkpoint={folder}", f"--output={folder}/x.npz"]
            run = subprocess.run(command, capture_output=True, text=True,
                                 timeout=WAIT, check=False)
            self.assertEqual(run.returncode, 0, run.stderr)
            part = next(folder.glob("part-00001*"))
            part.write_bytes(part.read_bytes()[:-1])
            run = subprocess.run(command, capture_output=True, text=True,
                                 timeout=WAIT, check=False)
            self.assertNotEqual(run.returncode, 0)
            self.assertIn(part.name, run.stderr)

    def test_all_is_lost_and_goes_on_on_other_machines(self):
        job = self.start("moved", backup=self.backup)
        versions = self.finish(job)
        self.assertGreater(versions[0], version_of(self.names[-1]) - 1)
        self.assertGreater(versions[0], 1)  # it did not begin anew

    def test_all_shards_are_killed_at_once(self):
        job = self.start("killed", backup=self.backup)
        killed = False
        for line in job.lines():
            if not killed and line["version"] >= ROUNDS - 2 * EVERY:
                job.shards.kill(range(SHARDS))
                for ordinal in range(SHARDS):
                    job.shards.start(ordinal)
                killed = True
        self.assertTrue(killed)
        self.assertEqual(job.digests(), self.expected)

    def test_one_folder_is_lost(self):
        torn = self.scratch / "one_lost"
        shutil.copytree(self.backup, torn)
        shutil.rmtree(torn / "1" / "chaos")
        job = self.start("one_lost", backup=torn)
        status = self.await_status(
            job, "the job waits", lambda s: "the job waits" in s["recovering"])
        folder = job.folder / "checkpoints" / "1"
        self.assertIn(str(folder), status["recovering"])
        # The doctor says so, too, and how it ends.
        code, output, _ = aggctl(job.coordinator, "doctor")
        self.assertEqual(code, 6, output)
        self.assertIn(str(folder), output)
        self.assertIn(f"checkpoint {self.names[-1]} is not complete", output)
        # A dry run, and the command itself, are refused alike.
        for words in (["--dry-run"], []):
            code, _, error = aggctl(job.coordinator, "restore", self.names[-1],
                                    *words)
            self.assertEqual(code, 2, error)
            self.assertIn("shard 1", error)
        shutil.copytree(self.backup / "1" / "chaos", folder / "chaos")
        self.finish(job)

    def test_an_older_checkpoint(self):
        older = self.names[-2]
        job = self.start("older", backup=self.backup)
        restored = None
        versions = []
        for line in job.lines():
            versions.append(line["version"])
            if restored is not None:
                continue
            before = self.status(job)
            code, output, error = aggctl(job.coordinator, "restore", older,
                                         "--dry-run")
            self.assertEqual(code, 0, error)
            self.assertIn(f"would go on from version {version_of(older)} ",
                          output)
            self.assertEqual(self.status(job)["epoch"], before["epoch"])
            code, _, error = aggctl(job.coordinator, "restore", older)
            self.assertEqual(code, 0, error)
            restored = line["version"]
        self.assertIsNotNone(restored)
        self.assertIn(version_of(older) + 1, versions[versions.index(restored):])
        self.assertEqual(job.digests(), self.expected)

    def test_another_number_of_shards(self):
        name = self.names[-1]
        folder = gathered(self.backup, name)
        self.addCleanup(shutil.rmtree, folder)
        wider = self.scratch / "wider"
        for ordinal in range(SHARDS + 1):
            shutil.copytree(folder, wider / str(ordinal) / "chaos" / name)
        job = self.start("wider", backup=wider, shards=SHARDS + 1)
        versions = self.finish(job)
        self.assertGreater(versions[0], version_of(name))

    def test_another_jobs_name(self):
        text = chaos.config_text

        def renamed(*args):
            return text(*args).replace('job: "chaos"', 'job: "next"')

        def borrowing(checkpoint):
            return checkpoint.replace("checkpoint {",
                                      'checkpoint { restore_job: "chaos"')

        with mock.patch.object(chaos, "config_text", renamed):
            job = self.start("renamed", backup=self.backup, edit=borrowing)
        versions = self.finish(job)
        self.assertGreater(versions[0], version_of(self.names[-1]))
        for ordinal in range(SHARDS):
            folder = job.folder / "checkpoints" / str(ordinal)
            self.assertEqual(sealed(folder / "chaos"), self.names)
            self.assertTrue(sealed(folder / "next"))

    def test_a_finished_job_is_resumed(self):
        job = self.start("finished", backup=self.backup)
        code, _, error = aggctl(job.coordinator, "resume", "--dry-run")
        self.assertIn(code, (2, 3), error)  # 3: shard 0 is not there yet
        self.finish(job)
        before = self.await_status(job, "the job finishes",
                                   lambda s: s["phase"] == "finished")
        code, output, error = aggctl(job.coordinator, "resume", "--dry-run")
        self.assertEqual(code, 0, error)
        self.assertIn(f"the job would go on from version {ROUNDS}; it has "
                      "finished: ", output)
        after = self.status(job)
        self.assertEqual((after["phase"], after["epoch"]),
                         ("finished", before["epoch"]))
        code, output, error = aggctl(job.coordinator, "resume")
        self.assertEqual(code, 0, error)
        self.assertIn(f"the job goes on from version {ROUNDS}; ", output)
        after = self.status(job)
        self.assertNotEqual(after["phase"], "finished")
        self.assertEqual(after["version"], str(ROUNDS))


if __name__ == "__main__":
    unittest.main()
