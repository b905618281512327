"""The package's annotations, which its users' checkers read (py.typed)."""

import importlib.util
import subprocess
import sys
import unittest

from tests.python.job_case import ROOT, WAIT


class TypesTest(unittest.TestCase):

    @unittest.skipUnless(importlib.util.find_spec("mypy"),
                         "mypy is not installed")
    def test_mypy_strict_finds_nothing(self):
        result = subprocess.run(
            [sys.executable, "-B", "-m", "mypy", "--strict", "agg_server"],
            capture_output=True, text=True, timeout=10 * WAIT, check=False,
            cwd=ROOT / "worker_client" / "python", stdin=subprocess.DEVNULL)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
