"""deploy/wheel.sh's wheel: installed, it finds its own library and server."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

from tests.python.job_case import ROOT, WAIT

_TRAIN = """
import agg_server as agg
import numpy as np
x = np.zeros(2, np.float32)
with agg.Client({"x": x}) as client:
    client.step({"x": np.ones(2)})
print(agg.__file__, x[0], flush=True)
"""


class WheelTest(unittest.TestCase):

    def run_command(self, *command, **environment):
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", **environment}
        result = subprocess.run(
            command, capture_output=True, text=True, check=False,
            timeout=4 * WAIT, stdin=subprocess.DEVNULL, env=environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_what_is_installed_trains(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            wheel = self.run_command(
                str(ROOT / "deploy" / "wheel.sh"), "--plain",
                "--bin=" + os.environ["AGG_BIN"], str(folder),
                PYTHON=sys.executable).strip()
            self.assertRegex(wheel, r"agg_server-[\d.]+-py3-none-linux_\w+\.whl$")
            with zipfile.ZipFile(wheel) as archive:
                names = archive.namelist()
            for member in ("_lib/libagg.so", "_bin/agg_server", "py.typed"):
                self.assertIn("agg_server/" + member, names)
            # Beside numpy, which the interpreter has.
            site = folder / "site"
            self.run_command(
                sys.executable, "-m", "pip", "install", "--quiet",
                "--disable-pip-version-check", "--no-index", "--no-deps",
                "--target", str(site), wheel)
            script = folder / "train.py"
            script.write_text(_TRAIN)
            out = self.run_command(
                sys.executable, "-m", "agg_server.launch", "-n", "2",
                "--lr=0.5", str(script), PYTHONPATH=str(site))
            self.assertEqual(out.splitlines(), [
                f"{site}/agg_server/__init__.py -0.5"] * 2)
            self.assertIn("agg_server ", self.run_command(
                sys.executable, "-c",
                "from agg_server import programs; programs.agg_server()",
                "--version", PYTHONPATH=str(site)))


if __name__ == "__main__":
    unittest.main()
