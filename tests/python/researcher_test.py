"""The notebook of worker_client/python/examples runs as it stands."""

import importlib.util
import os
import subprocess
import sys
import unittest

from tests.python.job_case import PACKAGE, ROOT, WAIT, JobCase
from tests.python.offline_case import find_program

find_program()
NOTEBOOK = ROOT / "worker_client" / "python" / "examples" / "researcher.py"


class ResearcherTest(JobCase):

    def test_it_runs(self):
        folder = self.temporary_folder()
        result = subprocess.run(
            [sys.executable, "-B", str(NOTEBOOK), "--rounds", "20",
             "--plot", str(folder / "x.png")], capture_output=True, text=True,
            timeout=8 * WAIT, check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(PACKAGE),
                 "TMPDIR": str(folder), "MPLBACKEND": "Agg"})
        self.assertEqual(result.returncode, 0, result.stderr)
        out = result.stdout
        self.assertIn('of "mean": 20 rounds, versions 1 to 20>', out)
        self.assertNotIn("nan", out.split("workers: ")[0])
        for said in ("critical batch", "rules: adasum/global",
                     "adacons: held-out loss", "by_agreement"):
            self.assertIn(said, out)
        if importlib.util.find_spec("matplotlib"):
            self.assertEqual((folder / "x.png").read_bytes()[:4], b"\x89PNG")

    @unittest.skipUnless(importlib.util.find_spec("jupytext"),
                         "jupytext is not installed")
    def test_it_is_a_notebook(self):
        import jupytext
        notebook = jupytext.read(NOTEBOOK)
        kinds = [cell["cell_type"] for cell in notebook["cells"]]
        self.assertGreaterEqual(kinds.count("markdown"), 6)
        self.assertGreaterEqual(kinds.count("code"), 7)
        self.assertEqual(notebook["metadata"]["kernelspec"]["name"], "python3")


if __name__ == "__main__":
    unittest.main()
