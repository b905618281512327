"""agg-launch: workers' environment, exit codes."""

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from tests.python.job_case import PACKAGE, ROOT, WAIT, agg
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

    def test_every_field_of_the_optimizer_is_a_flag(self):
        proto = (ROOT / "proto" / "config.proto").read_text()
        body = re.search(r"message OptimizerConfig {(.*?)\n}", proto,
                         re.DOTALL).group(1)
        kinds = {name: kind for kind, name in
                 re.findall(r"(string|double|bool) (\w+) = ", body)}
        self.assertEqual(kinds.pop("kind"), "string")
        self.assertEqual(kinds, {
            **dict.fromkeys(launch.OPTIMIZER_NUMBERS, "double"),
            **dict.fromkeys(launch.OPTIMIZER_FLAGS, "bool")})

    def test_momentum_and_nesterov(self):
        """Two steps of ones: 1 + m, and 1 + m (1 + m)."""
        result = self.launch(
            "import numpy as np\nimport agg_server as agg\n"
            "x = np.zeros(2, np.float32)\n"
            "with agg.Client({'x': x}) as client:\n"
            "    for _ in range(2): client.step({'x': np.ones(2)})\n"
            "    print(client.job.optimizer, x[0], flush=True)\n",
            "--lr=1", "--optimizer=sgd", "--momentum=0.5", "--nesterov")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "sgd -3.25\n")

    def test_flags_are_fields_with_either_kind_of_dash(self):
        for flag in ("--weight-decay", "--weight_decay"):
            options = launch.parse([flag, "0.5", "train.py"])
            self.assertEqual(options.weight_decay, 0.5)

    def test_workers_share_the_processors(self):
        script = "import os\nprint(os.environ['OMP_NUM_THREADS'], flush=True)"
        with mock.patch.dict(os.environ):
            os.environ.pop("OMP_NUM_THREADS", None)
            many = len(os.sched_getaffinity(0))
            for workers, expected in ((1, many), (many + 1, 1)):
                result = self.launch(script, f"-n{workers}",
                                     "--coordinator=nobody:1")
                self.assertEqual(result.stdout, f"{expected}\n" * workers)
            os.environ["OMP_NUM_THREADS"] = "3"
            result = self.launch(script, "--coordinator=nobody:1")
            self.assertEqual(result.stdout, "3\n")

    def test_a_configuration_of_ones_own(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "job.textproto")
            for text, message in (
                    ('combination { rule: "sum" }\n'
                     'learning_rate { rate: 0.5 }', ""),
                    ('# workers: 1\n job: "x" workers: 2\n'
                     'combination { rule: "sum" }\n'
                     'learning_rate { rate: 0.5 }', ""),
                    ('shards: "127.0.0.1:1"\n', "names shards; allowed: none"),
                    ("no_such_field: 1", "no_such_field")):
                with open(path, "w") as file:
                    file.write(text)
                result = self.launch(_SCRIPT, "-n", "2", "--config", path)
                self.assertIn(message, result.stderr)
                self.assertEqual(result.returncode, 1 if message else 0,
                                 result.stderr)
                if not message:
                    self.assertEqual(result.stdout, "sum -1.0 []\n" * 2)
            os.remove(path)
            result = self.launch(_SCRIPT, "--config", path)
            self.assertEqual(result.returncode, 1)
            self.assertIn(f"--config is {path}: ", result.stderr)

    def test_what_says_the_same_twice_is_refused(self):
        for flags, message in (
                (["--config=x", "--lr=1"], "--lr is given with --config"),
                (["--coordinator=h:1", "--weight-decay=0"],
                 "--weight-decay is given with --coordinator"),
                (["--coordinator=h:1", "--config=x"], "--config is given")):
            with contextlib.redirect_stderr(io.StringIO()) as text:
                with self.assertRaises(SystemExit):
                    launch.parse([*flags, "x.py"])
            self.assertIn(message, text.getvalue())

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
