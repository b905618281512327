"""agg-launch: workers' environment, exit codes."""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest

from tests.python.job_case import PACKAGE, WAIT, agg
from agg_server import launch

_SCRIPT = """
import os, sys
import numpy as np
import agg_server as agg
assert os.environ["RANK"] == os.environ["LOCAL_RANK"]
assert os.environ["WORLD_SIZE"] == "2"
x = np.zeros(2, np.float32)
with agg.Client({"x": x}) as client:
    client.step({"x": np.ones(2)})
    print(client.job.rule, x[0], sys.argv[1:], flush=True)
"""


class LaunchTest(unittest.TestCase):

    def launch(self, script, *flags, arguments=()):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "train.py")
            with open(path, "w") as file:
                file.write(script)
            return subprocess.run(
                [sys.executable, "-B", "-m", "agg_server.launch", *flags, path,
                 *arguments], capture_output=True, text=True, timeout=WAIT,
                check=False, stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(PACKAGE)})

    def test_two_workers_two_shards(self):
        result = self.launch(_SCRIPT, "-n", "2", "--shards=2", "--lr=0.5",
                             "--rule=sum", arguments=("--x", "1"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "sum -1.0 ['--x', '1']\n" * 2)

    def test_a_worker_that_fails_ends_all(self):
        result = self.launch(
            "import os, sys, threading\n"
            "if os.environ['RANK'] == '1': sys.exit(7)\n"
            "threading.Event().wait()", "-n", "2", "--lr=1")
        self.assertEqual(result.returncode, 7, result.stderr)

    def test_its_end_is_the_workers_end(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "train.py")
            with open(path, "w") as file:
                file.write("import threading\nprint('here', flush=True)\n"
                           "threading.Event().wait()")
            process = subprocess.Popen(
                [sys.executable, "-B", "-m", "agg_server.launch", "--lr=1",
                 path], stdout=subprocess.PIPE, text=True,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(PACKAGE)})
            self.addCleanup(process.kill)
            self.assertEqual(process.stdout.readline(), "here\n")
            process.terminate()
            # The worker has the pipe, too: this waits for its end.
            process.communicate(timeout=WAIT)
            self.assertEqual(process.returncode, 143)

    def test_a_wrong_rule(self):
        result = self.launch("", "--rule=median", "--lr=1")
        self.assertEqual(result.returncode, 1)
        self.assertIn('rule is "median"', result.stderr)

    def test_a_wrong_number(self):
        with contextlib.redirect_stderr(io.StringIO()) as text:
            with self.assertRaises(SystemExit):
                launch.parse(["-n", "0", "x.py"])
        self.assertIn("--workers is 0; allowed: 1 or more", text.getvalue())
        self.assertTrue(agg.__version__)


if __name__ == "__main__":
    unittest.main()
