"""Each script's quick set through real servers: that it works, not what comes out."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from tests.papers import report, script

try:
    from tests.papers import plots
except ImportError:  # matplotlib is in the environment of tests/python/run.sh
    plots = None

ROOT = script.FOLDER.parent.parent
# Seconds of one quick set, which takes less than one minute of two cores.
_LONGEST = 1700


class QuickTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def quick(self, name):
        """The quick set of one script; what it printed, and its numbers."""
        path = self.folder / f"{name}.json"
        said = self.folder / f"{name}.log"
        with said.open("w", encoding="utf-8") as log:
            try:
                done = subprocess.run(
                    [sys.executable, "-B", "-m", f"tests.papers.{name}",
                     "--quick", "--jobs=2", f"--results={path}"],
                    cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
                    text=True, stdin=subprocess.DEVNULL, check=False,
                    stdout=subprocess.PIPE, stderr=log, timeout=_LONGEST)
            except subprocess.TimeoutExpired:
                self.fail(f"no end after {_LONGEST} s; it said last:\n"
                          + said.read_text("utf-8")[-8000:])
        self.assertEqual(0, done.returncode, said.read_text("utf-8")[-8000:])
        stored = json.loads(path.read_text("utf-8"))
        self.assertTrue(stored["quick"])
        self.assertIn("agg_server", stored["versions"])
        for entry in stored["runs"]:
            with self.subTest(run=entry["run"]):
                self.check_result(entry["run"], entry["result"])
        made = report.read_set(name, self.folder, quick=True)
        self.assertEqual("", made.missing)
        for table in made.tables:
            self.assertIn(table.title, done.stdout)
            for row in table.rows:
                self.assertEqual(len(table.header), len(row), row)
        for claim in made.claims:
            self.assertIn(claim.text, done.stdout)
        return made

    def check_result(self, run, result):
        """Tiny rates and few rounds: nothing of it fails to be a number."""
        self.assertNotEqual("not finite", result["failed"])
        self.assertIsNotNone(result["score"])
        self.assertGreaterEqual(result["rounds"], 1)
        self.assertLessEqual(result["rounds"], run["rounds"])
        rows = [ranks for _, ranks in run.get("later_ranks", [])]
        least, most = min([run["ranks"], *rows]), max([run["ranks"], *rows])
        self.assertIn(result["examples"],
                      range(result["rounds"] * least * run["batch"],
                            result["rounds"] * most * run["batch"] + 1))
        self.assertEqual(run.get("spans", 0), len(result["orthogonality"]))
        for share in result["orthogonality"]:
            if share is not None:
                self.assertGreater(share, 0)

    def draw(self, made):
        if plots is None:
            self.skipTest("matplotlib is not installed")
        for path in plots.draw(made.name, made.cells, made.series,
                               made.digest(), self.folder):
            self.assertEqual(made.digest(), report.carried_digest(path))
        self.assertEqual([], report.stale_plots([made], self.folder))

    def test_adascale(self):
        self.draw(self.quick("adascale"))

    def test_averaging(self):
        self.quick("averaging")

    def test_adasum(self):
        self.draw(self.quick("adasum"))

    def test_adacons(self):
        self.draw(self.quick("adacons"))

    def test_elastic(self):
        self.quick("elastic")

    def test_momentum(self):
        self.draw(self.quick("momentum"))

    def test_text(self):
        self.draw(self.quick("text"))


if __name__ == "__main__":
    unittest.main()
