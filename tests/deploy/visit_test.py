"""run_gpu_checks.sh as a visit's visit.sh keeps what every part says, and fails when one does. Its
programs are stand-ins, Python too.
"""

import pathlib
import tarfile
import unittest

from tests.deploy.stand_ins import Folder, script

ROOT = pathlib.Path(__file__).absolute().parent.parent.parent


class VisitTest(Folder):

    def setUp(self):
        super().setUp()
        script(self.folder / "visit/visit.sh",
               (ROOT / "deploy/bundle/run_gpu_checks.sh").read_text())
        script(self.folder / "path/python3", "echo python3 \"$@\"")
        script(self.folder / "made/checks/cuda_jobs_test", "echo jobs are done")
        script(self.folder / "made/checks/cuda_conformance_test",
               "echo 'x.cc:1: Failure'; for i in {1..20}; do echo more; done; "
               "exit 3")
        script(self.folder / "made/checks/round_gpu", "exec sleep 60")
        (self.folder / "made/lib").mkdir()
        (self.folder / "made/lib/revision").write_text("abc1234\n")
        with tarfile.open(self.folder / "visit/agg_server_bundle.tar.gz",
                          "w:gz") as archive:
            archive.add(self.folder / "made", "agg_server_bundle")

    def visit(self, *parts):
        """The exit status and what is said, which the log has, too."""
        out = self.folder / "out"
        status, said = self.run_script(self.folder / "visit/visit.sh", *parts,
                                       OUT=str(out))
        if parts:
            self.assertEqual((out / "log.txt").read_text(), said)
        return status, said

    def test_what_parts_say_is_kept(self):
        status, said = self.visit("jobs")
        self.assertEqual(status, 0, said)
        self.assertIn("== abc1234, ", said)
        self.assertIn("jobs are done", said)
        with tarfile.open(self.folder / "out/logs.tgz") as logs:
            self.assertIn("./jobs.log", logs.getnames())

    def test_a_part_that_fails_is_said_and_the_next_one_runs(self):
        status, said = self.visit("conformance", "jobs")
        self.assertEqual(status, 1, said)
        self.assertIn("FAILED   conformance: status 3", said)
        self.assertIn("x.cc:1: Failure", said)
        self.assertIn("jobs are done", said)

    def test_a_part_that_takes_too_long_is_killed(self):
        status, said = self.visit("round_gpu:1")
        self.assertEqual(status, 1, said)
        self.assertIn("FAILED   round_gpu: killed at its limit of 1 s", said)

    def test_parts_are_those_that_there_are(self):
        status, said = self.visit("dance")
        self.assertEqual(status, 1, said)
        self.assertIn("no part named 'dance'; allowed: first, second", said)
        status, said = self.visit()
        self.assertEqual(status, 2)
        self.assertIn("visit.sh first | second | PART", said)


if __name__ == "__main__":
    unittest.main()
