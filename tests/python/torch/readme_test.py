"""The package's README: its first program runs, its snippets are Python."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from tests.python.job_case import ROOT, WAIT, agg

_README = ROOT / "worker_client" / "python" / "README.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", _README.read_text(), re.S)


class ReadmeTest(unittest.TestCase):

    def test_the_first_program_learns(self):
        command = blocks("sh")[0].split()
        self.assertEqual(command[0], "agg-launch")
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "train.py").write_text(blocks("python")[0])
            result = subprocess.run(
                [sys.executable, "-B", "-m", "agg_server.launch",
                 *command[1:]], capture_output=True, text=True, check=False,
                timeout=8 * WAIT, cwd=folder, stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH":
                     str(ROOT / "worker_client" / "python")})
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = sorted(result.stdout.splitlines())
        self.assertEqual([line.split(":")[0] for line in lines],
                         [f"rank {rank}" for rank in range(4)])
        losses = re.findall(r"'loss': ([\d.]+)", result.stdout)
        self.assertEqual(len(losses), 4)
        self.assertLess(float(losses[0]), 5.0)  # it begins near 13

    def test_snippets_are_python_and_name_what_there_is(self):
        for block in blocks("python"):
            compile(block, "README.md", "exec")
        for name in set(re.findall(r"\bagg\.([A-Za-z_]+)",
                                   _README.read_text())) - {"errors"}:
            self.assertTrue(hasattr(agg, name), name)


if __name__ == "__main__":
    unittest.main()
