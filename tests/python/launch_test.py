"""agg-launch: workers' environment, exit codes."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import unittest
from unittest import mock

import numpy as np

from tests.python.job_case import PACKAGE, ROOT, WAIT, JobCase, agg
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


def command(*arguments):
    return [sys.executable, "-B", "-m", "agg_server.launch", *arguments]


class LaunchTest(JobCase):

    def setUp(self):
        self.folder = self.temporary_folder()

    def file(self, text, name="train.py"):
        """Its path."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)

    def launch(self, script, *flags, arguments=()):
        return self.run_launch(*flags, self.file(script), *arguments)

    def run_launch(self, *arguments, cwd=None):
        return subprocess.run(
            command(*arguments), capture_output=True, text=True, timeout=WAIT,
            check=False, cwd=cwd, stdin=subprocess.DEVNULL,
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
        for text, message in (
                ('combination { rule: "sum" }\n'
                 'learning_rate { rate: 0.5 }', ""),
                ('# workers: 1\n job: "x" workers: 2\n'
                 'combination { rule: "sum" }\n'
                 'learning_rate { rate: 0.5 }', ""),
                ('shards: "127.0.0.1:1"\n', "names shards; allowed: none"),
                ("no_such_field: 1", "no_such_field")):
            path = self.file(text, "job.textproto")
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
            self.assert_refused(flags, message)

    def assert_refused(self, flags, message):
        with contextlib.redirect_stderr(io.StringIO()) as text:
            with self.assertRaises(SystemExit) as caught:
                launch.parse([*flags, "x.py"])
        self.assertEqual(caught.exception.code, 2)
        self.assertIn(message, text.getvalue())

    def started(self, script, *flags):
        """A running one, whose output is read by lines."""
        process = subprocess.Popen(
            command(*flags, self.file(script)),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            stdin=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(PACKAGE)})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def test_ctrl_c_goes_to_each_worker_once(self):
        """Whether a terminal sends it to all of the group, or a person to
        agg-launch: each has the time that its handler takes."""
        for to_group in (True, False):
            process = self.started("""if True:
                import os, signal, time
                signals = []
                def interrupted(*_):
                    signals.append(1)
                    raise KeyboardInterrupt
                signal.signal(signal.SIGINT, interrupted)
                signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"term\\n"))
                try:
                    os.write(1, b"here\\n")
                    while True: signal.pause()
                except KeyboardInterrupt:
                    for _ in range(3): time.sleep(0.05)  # as a save does
                    os.write(1, f"saved {len(signals)}\\n".encode())
                """, "-n", "2", "--lr=1")
            for _ in range(2):
                self.assertEqual(process.stdout.readline(), "here\n")
            if to_group:
                os.killpg(process.pid, signal.SIGINT)
            else:
                process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=WAIT)
            self.assertEqual((process.returncode, out, err),
                             (130, "saved 1\n" * 2, ""))

    def test_a_second_ctrl_c_does_not_wait(self):
        process = self.started(
            "import os, signal\n"
            "signal.signal(signal.SIGINT, lambda *_: os.write(1, b'int\\n'))\n"
            "os.write(1, b'here\\n')\n"
            "while True: signal.pause()\n", "--lr=1")
        self.assertEqual(process.stdout.readline(), "here\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.stdout.readline(), "int\n")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=WAIT)  # SIGTERM has ended it
        self.assertEqual((process.returncode, out), (130, ""))

    def test_what_ends_by_no_signal_is_killed(self):
        with mock.patch.object(launch, "_STOP_SECONDS", 0.1):
            process = subprocess.Popen(
                [sys.executable, "-c",
                 "import signal\n"
                 "for n in (2, 15): signal.signal(n, signal.SIG_IGN)\n"
                 "print('here', flush=True)\n"
                 "while True: signal.pause()"], stdout=subprocess.PIPE)
            self.addCleanup(process.stdout.close)
            self.assertEqual(process.stdout.readline(), b"here\n")
            with contextlib.redirect_stderr(io.StringIO()) as text:
                launch._end([process], signal.SIGINT)
        self.assertEqual(process.wait(WAIT), -signal.SIGKILL)
        self.assertIn("1 workers go on after SIGTERM", text.getvalue())

    def test_rounds_that_change_nothing_are_said(self):
        result = self.launch("""if True:
            import numpy as np
            import agg_server as agg
            x = np.zeros(2, np.float32)
            with agg.Client({"x": x}) as client:
                for i in range(5):
                    client.step({"x": np.full(2, 1 if i < 2 else np.nan,
                                              np.float32)})
            """, "-n2", "--lr=1")
        self.assertEqual(result.returncode, 0, result.stderr)
        # Each worker says so, once, and how many there were in the end.
        said = [line for line in result.stderr.splitlines()
                if "skipped" in line]
        self.assertEqual(len([line for line in said if line.startswith(
            "round 2 was skipped, and has changed nothing: ")]), 2, said)
        self.assertEqual(len([line for line in said if
                              "3 of 5 rounds were skipped" in line]), 2, said)

    def test_a_rank_that_is_killed_is_named(self):
        for code, said in (("os.kill(os.getpid(), 9)",
                            "was ended by SIGKILL (signal 9)"),
                           ("os._exit(7)", "exited with 7"),
                           ("os.abort()", "was ended by SIGABRT (signal 6)")):
            result = self.launch(
                "import os, threading\n"
                f"if os.environ['RANK'] == '1': {code}\n"
                "threading.Event().wait()", "-n", "2", "--lr=1")
            self.assertRegex(
                result.stderr, r"^agg-launch: rank 1 \(pid \d+\) "
                + re.escape(said) + "; ending the other 1\n$")

    def test_the_size_of_the_world(self):
        script = ("import os\nprint(*[os.environ[n] for n in ('RANK', "
                  "'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE')], "
                  "flush=True)")
        for flags, expected in (
                (["--lr=1", "-n2"], {"0 0 2 2", "1 1 2 2"}),
                (["--lr=1", "-n2", "--first-rank=2"], {"2 0 4 2", "3 1 4 2"}),
                (["--coordinator=nobody:1", "-n2", "--first-rank=2"],
                 {"2 0 4 2", "3 1 4 2"}),
                (["--coordinator=nobody:1", "-n2", "--world-size=8"],
                 {"0 0 8 2", "1 1 8 2"})):
            result = self.launch(script, *flags)
            self.assertEqual(set(result.stdout.splitlines()), expected,
                             result.stderr)
            self.assertEqual("--world-size" in result.stderr,
                             "--coordinator=nobody:1" in flags and
                             "--world-size=8" not in flags, result.stderr)

    def test_the_size_of_a_world_that_the_job_knows(self):
        os.chmod(self.file('#!/bin/sh\n[ "$1" = --coordinator=nobody:1 ] && '
                           "echo '{\"expectedWorkers\": 8}'\n", "aggctl"), 0o755)
        with mock.patch.dict(os.environ, {
                "PATH": f"{self.folder}:{os.environ['PATH']}"}):
            options = launch.parse(["--coordinator=nobody:1", "x.py"])
            self.assertEqual(launch._world_size(options), 8)

    def test_a_folder_for_logs_that_is_not_there(self):
        logs = self.folder / "a" / "b"
        result = self.launch("", "--lr=1", "--logs", str(logs))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue((logs / "shard0.log").exists())
        file = self.file("", "file")
        result = self.launch("", "--lr=1", "--logs", file)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr,
                         f"^agg-launch: folder is {file}: .*\n$")

    def test_a_module(self):
        for name, text in (("__init__", ""), ("other", "NAME = 'other'"),
                           ("train", "import sys\nfrom pkg import other\n"
                            "print(other.NAME, __name__, sys.argv[1:])")):
            self.file(text, f"pkg/{name}.py")
        result = self.run_launch("--lr=1", "-m", "pkg.train", "-m", "--x",
                                 cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "other __main__ ['-m', '--x']\n")

    def test_several_jobs(self):
        config = self.file('optimizer { kind: "none" }\n'
                           'combination { rule: "mean" }\n',
                           "metrics.textproto")
        result = self.launch("""if True:
            import os
            import numpy as np
            import agg_server as agg
            x, y, a = (np.zeros(1, np.float32) for _ in range(3))
            one = np.ones(1, np.float32)
            rank = int(os.environ["RANK"])
            with agg.Client({"x": x}, job="making") as making, \
                    agg.Client({"y": y}, job="judging") as judging, \
                    agg.Client({"accuracy": a}, job="metrics") as metrics:
                judging.step({"y": 2 * one})
                making.step({"x": one})
                mean = metrics.all_reduce({"accuracy": rank * one})
                print(making.job.name, judging.job.name, x[0], y[0],
                      mean["accuracy"][0], flush=True)
            """, "-n2", "--lr=1", "--job", "making", "--job", "judging",
            "--job", f"metrics={config}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "making judging -1.0 -2.0 0.5\n" * 2)

    def test_workers_that_a_job_of_several_says(self):
        script = "import os\nprint(os.environ['WORLD_SIZE'])"
        for said, message in (
                ("workers: 2", ""), ("", ""),
                ("workers: 1 max_workers: 2", ""),
                ("workers: 5", ""),
                ("workers: 1", "says workers: 1, and --first-rank and "
                 "--workers make 2; allowed: 1 or fewer here, or "
                 "workers: 2 there")):
            path = self.file('optimizer { kind: "none" }\n'
                             'combination { rule: "mean" }\n' + said,
                             "job.textproto")
            for flag in (f"--job=x={path}", f"--config={path}"):
                for more in ([], ["--world-size=6"]):
                    with self.subTest(said, flag=flag, more=more):
                        result = self.launch(script, "-n2", flag, *more)
                        self.assertEqual(result.returncode,
                                         1 if message else 0)
                        self.assertIn(message, result.stderr)
                        size = 6 if more else 5 if "5" in said else 2
                        self.assertEqual(
                            result.stdout,
                            "" if message else f"{size}\n" * 2)

    def test_jobs_have_names(self):
        for flags, message in (
                (["--lr=1", "--job=a", "--job=a"], "each name once"),
                (["--lr=1", "--job=a b"], '--job is "a b"; allowed: letters'),
                (["--coordinator=h:1", "--job=a"], "--job is given with"),
                (["--lr=1", "--first-rank=-1"], "--first-rank is -1"),
                (["--lr=1", "-n4", "--world-size=3"], "--world-size is 3; "
                 "allowed: 4")):
            self.assert_refused(flags, message)
        with self.assertRaisesRegex(agg.ManifestError, "AGG_COORDINATOR_A is "
                                    "not set.*--job"):
            agg.Client({"x": np.zeros(1, np.float32)}, rank=0, job="a")
        with self.assertRaisesRegex(agg.ManifestError, "one of the two"):
            agg.Observer("h:1", job="a")

    def test_a_worker_that_fails_ends_all(self):
        result = self.launch(
            "import os, sys, threading\n"
            "if os.environ['RANK'] == '1': sys.exit(7)\n"
            "threading.Event().wait()", "-n", "2", "--lr=1")
        self.assertEqual(result.returncode, 7, result.stderr)

    def test_its_end_is_the_workers_end(self):
        process = self.started("import threading\nprint('here', flush=True)\n"
                               "threading.Event().wait()", "--lr=1")
        self.assertEqual(process.stdout.readline(), "here\n")
        process.terminate()
        # The worker has the pipe, too: this waits for its end.
        process.communicate(timeout=WAIT)
        self.assertEqual(process.returncode, 143)

    def test_a_rate_that_is_not_given(self):
        for flags in ([], ["--optimizer=adam"], ["--job=a"]):
            result = self.launch("", *flags)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, "^agg-launch: --lr is not given; "
                             "allowed: a number > 0, or .*--config.*\n$")

    def test_a_wrong_rule(self):
        result = self.launch("", "--rule=median", "--lr=1")
        self.assertEqual(result.returncode, 1)
        self.assertIn('rule is "median"', result.stderr)

    def test_a_wrong_number(self):
        self.assert_refused(["-n", "0"], "--workers is 0; allowed: 1 or more")
        self.assertTrue(agg.__version__)


class CpusTest(JobCase):
    """CPU quotas of control groups, in a file system of the test's own."""

    def setUp(self):
        self.root = self.temporary_folder()

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def granted(self, affinity=32):
        return launch.granted_cpus(affinity, str(self.root))

    def test_version_two_and_parents(self):
        self.assertEqual(self.granted(), 32)
        self.write("proc/self/cgroup", "0::/pod/container\n")
        self.write("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n")
        self.assertEqual(self.granted(), 32)
        self.write("sys/fs/cgroup/pod/cpu.max", "250000 100000\n")
        self.assertEqual(self.granted(), 3)
        self.write("sys/fs/cgroup/pod/container/cpu.max", "1000 100000\n")
        self.assertEqual(self.granted(), 1)
        self.assertEqual(self.granted(1), 1)

    def test_the_root_that_a_container_sees(self):
        self.write("proc/self/cgroup", "0::/\n")
        self.write("sys/fs/cgroup/cpu.max", "200000 100000\n")
        self.assertEqual(self.granted(), 2)

    def test_version_one_whose_path_is_the_hosts(self):
        self.write("proc/self/cgroup", "4:cpu,cpuacct:/docker/x\n5:memory:/\n")
        self.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
        self.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
        self.assertEqual(self.granted(), 32)
        self.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n")
        self.assertEqual(self.granted(), 4)

    def test_junk_is_no_quota(self):
        self.write("proc/self/cgroup", "junk\n0::/a\n")
        for text in ("", "junk", "100000", "100000 0", "-1 100000", "1 2 3"):
            self.write("sys/fs/cgroup/a/cpu.max", text)
            self.assertEqual(self.granted(), 32, text)

    def test_of_this_process(self):
        self.assertGreaterEqual(launch.granted_cpus(), 1)


if __name__ == "__main__":
    unittest.main()
