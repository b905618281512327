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

    @unittest.skipUnless(importlib.util.find_spec("mypy"),
                         "mypy is not installed")
    def test_mypy_knows_the_options_of_each_client(self):
        calls = ("agg.Client({}, ", "agg.Worker({}, ", "agg.Observer(")
        script = "import agg_server as agg\n" + "".join(
            f"{call}{option})\n" for option in (
                "connect_timeout=3, shared_memory=False, tls=agg.Tls('ca')",
                "connect_timeout='3'", "reserved3=1") for call in calls)
        result = subprocess.run(
            [sys.executable, "-B", "-m", "mypy", "-c", script],
            capture_output=True, text=True, timeout=10 * WAIT, check=False,
            cwd=ROOT / "worker_client" / "python", stdin=subprocess.DEVNULL)
        errors = [line for line in result.stdout.splitlines()
                  if ": error: " in line]
        self.assertEqual(len(errors), 6, result.stdout + result.stderr)
        for line, error in enumerate(errors, 5):
            self.assertIn(f"<string>:{line}: ", error)
            self.assertIn('"connect_timeout"' if line < 8 else
                          'Unexpected keyword argument "reserved3"', error)


if __name__ == "__main__":
    unittest.main()
