"""Parts without a server: errors, configurations, checkpoints, listeners."""

import contextlib
import gc
import importlib.util
import io
import json
import logging
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

import numpy as np

from tests.python.job_case import PACKAGE, WAIT, JobCase, agg
from agg_server import (_abi, _session, _shown, errors, launch,
                        local_server)
from agg_server._abi import library_path
from agg_server.outcome import Outcome

OUTCOME = Outcome(
    round=3, version=4, kind="applied", included=True, ranks=(0,),
    excluded_ranks=(), learning_rate=0.5, gain=1.0, tau=4.0,
    orthogonality=float("nan"), loss=float("nan"), combined_norm=2.0,
    rule="mean", scope="global", step_scale="none", finished=False,
    message="")


class ErrorsTest(unittest.TestCase):

    def test_a_code_and_the_state_decide_the_type(self):
        for code, finished, left, event, kind in (
                (14, False, False, None, agg.ShardLost),
                (10, False, False, 2, agg.Superseded),
                (10, False, False, 6, agg.Evicted),
                (10, False, False, None, agg.EpochOver),
                (10, False, True, None, agg.Cancelled),
                (9, True, False, None, agg.JobFinished),
                (9, False, False, None, agg.NotNow),
                (4, False, False, None, agg.Timeout),
                (3, False, False, None, agg.ManifestError),
                (7, False, False, None, agg.NotAllowed),
                (16, False, False, None, agg.NotAllowed),
                (15, False, False, None, agg.Error)):
            error = errors.error_of(code, "shard 12 (h:1): x", finished, left,
                                    event)
            self.assertIs(type(error), kind, code)
            self.assertEqual(error.shard, 12)
        self.assertIsInstance(error, RuntimeError)
        self.assertTrue(issubclass(agg.ManifestError, ValueError))
        self.assertTrue(issubclass(agg.Timeout, TimeoutError))
        self.assertIsNone(agg.Error("no shards").shard)

    def test_what_a_shard_says_goes_before_what_was_heard(self):
        """The event may come behind the answer, or be of an earlier session.
        """
        for code, said, kind in (
                (10, "Push: superseded: another session joined as rank 0",
                 agg.Superseded),
                (10, "Push: evicted: too slow", agg.Evicted),
                (10, "evicted: superseded: by hand", agg.Evicted),
                (10, "Push: this session has left the job", agg.Cancelled),
                (10, "Push: stale epoch 3; current epoch 4", agg.EpochOver),
                (10, "the shards have begun epoch 5 after 4", agg.EpochOver),
                (10, "Pull: version 3 was replaced while it was being pulled",
                 agg.VersionGone),
                (10, "Push: attempt 1 of round 3 was replaced by attempt 2",
                 agg.Error),
                (9, "Commit: the job has finished at version 7: enough",
                 agg.JobFinished),
                (5, "the lease ran out", agg.LeaseExpired),
                (5, "the session is over: Join", agg.LeaseExpired),
                (5, "session 4 is not known here: Join (again) first",
                 agg.LeaseExpired),
                (5, "cannot open x.npz", agg.Error),
                (16, "a token is wanted", agg.NotAllowed)):
            for event in (None, 2, 5, 6):
                error = errors.error_of(code, f"shard 1 (h:1): {said}", False,
                                        False, event)
                self.assertIs(type(error), kind, (said, event))
            self.assertFalse(error.code.isdigit(), error.code)


class ImportTest(unittest.TestCase):

    def run_python(self, script, **environment):
        return subprocess.run(
            [sys.executable, "-B", "-c", script], capture_output=True,
            text=True, timeout=60, check=False,
            env={**os.environ, **environment,
                 "PYTHONPATH": str(PACKAGE)})

    def test_needs_no_torch(self):
        result = self.run_python(
            "import agg_server, sys; assert 'torch' not in sys.modules; "
            "assert agg_server.Client; print(len(agg_server.__all__))")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_every_name_is_there(self):
        for name in agg.__all__:
            if name not in agg._TORCH:
                self.assertTrue(hasattr(agg, name), name)
        with self.assertRaises(AttributeError):
            agg.no_such_name  # pylint: disable=pointless-statement

    def test_who_is_waited_for_is_said_without_a_logging_set_up(self):
        result = self.run_python(
            "import agg_server, logging\n"
            "from agg_server import _calls\n"
            "waiting, recovering = 7, 8\n"
            "for kind in (waiting, recovering):\n"
            "    _calls._log.log(_calls._LEVELS[kind], 'heard %d', kind)")
        self.assertEqual(result.stderr, "heard 7\nheard 8\n")

    def test_a_library_that_is_not_there(self):
        result = self.run_python(
            "import agg_server as agg\n"
            "try: agg.Observer('h:1')\n"
            "except agg.Error as e: print(e)", AGG_LIBRARY="/no/such/file")
        self.assertIn("/no/such/file is not there", result.stdout,
                      result.stderr)

    def test_a_library_of_another_kind(self):
        result = self.run_python(
            "import agg_server as agg\n"
            "try: agg.Observer('h:1')\n"
            "except agg.Error as e: print(e)", AGG_LIBRARY=__file__)
        self.assertIn("cannot be loaded", result.stdout, result.stderr)


    def refused(self, head, **environment):
        result = self.run_python(
            f"import agg_server as agg\n{head}\n"
            "try: agg.Observer('h:1')\n"
            "except agg.LibraryError as e: print(e)", **environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_a_library_of_another_abi(self):
        library = str(library_path())
        for name, value, allowed in (("ABI_VERSION", 2, r"2\.\d+ or a later 2\.x"),
                                     ("ABI_MINOR", 99, r"1\.99 or a later 1\.x")):
            out = self.refused("from agg_server import _abi\n"
                               f"_abi.{name} = {value}")
            self.assertRegex(out, rf"^{re.escape(library)} has version 1\.\d+ "
                             rf"of the ABI; allowed: {allowed}")

    def test_a_library_of_something_else(self):
        self.assertIn("is no libagg.so", self.refused(
            "", AGG_LIBRARY=_libc()))


def _libc():
    """The path of a shared library that every process has."""
    maps = pathlib.Path("/proc/self/maps").read_text()
    return re.search(r"\S+/libc\.so\.6$", maps, re.MULTILINE).group(0)


class SlowInterrupt:
    """A library whose agg_interrupt comes late: it waits for `go`, and then
    ends the round that runs. In the first round somebody calls it."""

    def __init__(self):
        self.go, self._called = threading.Event(), threading.Event()
        self._runs = self._ended = False
        self.session, self._caller = None, None

    def agg_interrupt(self, _):
        self._called.set()
        self.go.wait(WAIT)
        self._ended = self._runs

    def agg_push_pull(self, *_):
        if self._caller is None:
            self._caller = threading.Thread(target=self.session.interrupt)
            self._caller.start()
            self._called.wait(WAIT)
            return 0  # for itself, at the same time
        self._runs = True
        self.go.set()
        self._caller.join(WAIT)
        self._runs = False
        return 1 if self._ended else 0

    def agg_error(self):
        return b"interrupted"


class DescribeTest(unittest.TestCase):
    run_python = ImportTest.run_python

    def test_what_repeats_a_run(self):
        text = agg.describe_run(seed=17)
        self.assertRegex(text, rf":{os.getpid()}, agg_server "
                         rf"{re.escape(agg.__version__)}, Python 3\.\d+\.\d+, ")
        self.assertIn(f", numpy {np.__version__}, ", text)
        self.assertRegex(text, r", seed 17, \d+ x \w+")
        self.assertLessEqual(len(agg.describe_run("x" * 999).encode()), 512)

    @unittest.skipUnless(importlib.util.find_spec("torch"),
                         "torch is not installed")
    def test_the_seed_of_torch(self):
        result = self.run_python(
            "import torch, agg_server as agg\n"
            "torch.manual_seed(23)\nprint(agg.describe_run())")
        self.assertRegex(result.stdout, r", torch \d\S*, seed 23, ",
                         result.stderr)


class InterruptTest(unittest.TestCase):

    def test_one_of_the_round_before(self):
        library = SlowInterrupt()
        rounds = []

        class Lock:
            """Of the handle. The second round may have to wait for it."""
            lock = threading.RLock()

            def __enter__(self):
                if rounds and threading.current_thread() is main:
                    library.go.set()
                self.lock.acquire()

            def __exit__(self, *_):
                self.lock.release()

        main = threading.current_thread()
        session = object.__new__(_session.Session)
        session.__dict__.update(
            _lib=library, _handle=1, _process=os.getpid(), _left=False,
            _handle_lock=Lock(), close=lambda: None)
        library.session = session
        none = types.SimpleNamespace(array=None, count=0)
        with mock.patch.object(_session, "inside", mock.Mock()):
            for _ in range(2):
                rounds.append(session._round_here(
                    none, _abi.PushInfo(), none, _abi.OutcomeStruct()))
        self.assertEqual(rounds, [(0, "")] * 2)


# Controls, C1 controls, what turns the direction of writing, a line of its own.
_HOSTILE = "a\x1b[2J\x9b31m\u202eb\u2066\x07\rc"
_TAMED = r"a\x1b[2J\x9b31m\u202eb\u2066\x07\rc"


class ShownTest(JobCase):
    """What others name does not reach a terminal as it is."""

    def test_errors_warnings_and_log(self):
        error = agg.Error(f"of {_HOSTILE}:\nmore")
        self.assertEqual(str(error), f"of {_TAMED}:\nmore")
        with self.assertLogs("agg_server", "WARNING") as logs:
            logging.getLogger("agg_server").warning("%s: %d\n1", _HOSTILE, 3)
        self.assertEqual(logs.records[0].getMessage(), _TAMED + r": 3\n1")
        with self.assertWarns(UserWarning) as warned:
            _shown.warn(_HOSTILE)
        self.assertEqual(str(warned.warning), _TAMED)
        self.assertEqual(_shown.shown("Größe, 100 %"), "Größe, 100 %")

    def test_what_a_server_says(self):
        name = _HOSTILE.replace("\r", "")  # of a tensor
        server = self.serve(workers=2, lr=1.0)

        def work(rank):
            w = {name: np.zeros(2, np.float32)}
            with agg.Client(w, server.address, rank) as client:
                with self.assertRaises(agg.ManifestError) as raised:
                    client.step({})
                self.assertIn(name, [t.name for t in client.manifest])
                outcome = client.step({name: np.full(
                    2, np.nan if rank else 1.0)})
            return str(raised.exception), outcome.message

        for texts in self.team(2, work):
            for text in texts:
                self.assertTrue(text.isprintable(), ascii(text))
        self.assertIn("x1b[2J", texts[0])
        with self.assertRaises(agg.ManifestError) as raised:
            agg.Client({"w": np.zeros(1)}, server.address, 0,
                       groups={_HOSTILE: "x"})
        self.assertTrue(str(raised.exception).isprintable())

    def test_agg_launch(self):
        for flags in (["--config", f"/no/{_HOSTILE}"],
                      ["--lr=1", "--job", _HOSTILE],
                      ["--lr=1", "--rule", _HOSTILE]):
            with contextlib.redirect_stderr(io.StringIO()) as text:
                try:
                    launch.main([*flags, "x.py"])
                except SystemExit:
                    pass
            for line in text.getvalue().splitlines():
                self.assertTrue(line.isprintable(), ascii(line))
            self.assertIn("agg-launch: ", text.getvalue())


class LocalServerTest(JobCase):

    def test_the_text_form(self):
        self.assertEqual(
            local_server.text_form({
                "job": 'a "b"', "workers": 2, "x": True, "y": 0.5,
                "rule": {"kind": "add"}, "shards": ["h:1", "h:2"],
                "groups": [{"name": "n"}]}),
            'job: "a \\"b\\""\nworkers: 2\nx: true\ny: 0.5\n'
            'rule {\n  kind: "add"\n}\nshards: "h:1"\nshards: "h:2"\n'
            'groups {\n  name: "n"\n}\n')

    def test_what_a_text_form_names(self):
        for text, workers, shards in (
                ("", False, False),
                ('job: "x" shards: "h:1"', False, True),
                ('rule { a: 1 }shards:["h:1"]', False, True),
                ("job: 'x' workers: 3", True, False),
                ("# workers: 3 shards: 'h:1'", False, False),
                ("workers # of two hosts\n : 3", True, False),
                ("job: 'it\\'s \" # ' shards: \"h:1\" # '", False, True),
                ('a: " shards: \\" workers: 1 # " b: \'"\'', False, False),
                ("krum { byzantine_workers: 1 }", False, False)):
            with self.subTest(text):
                if shards:
                    with self.assertRaisesRegex(agg.Error, "names shards"):
                        local_server.job_text(2, text)
                else:
                    self.assertEqual(local_server.job_text(2, text),
                                     text + "\nworkers: 2" * (not workers)
                                     + "\n")

    def test_a_server_that_does_not_start_says_why(self):
        with self.assertRaisesRegex(agg.Error, 'rule is "median"'):
            agg.LocalServer(rule="median", lr=1.0)

    def test_arguments_that_are_wrong(self):
        for options, said in (
                ({"shards": 0, "lr": 1.0}, "shards is 0; allowed: 1 or more"),
                ({}, "lr is None; allowed: a number > 0"),
                ({"optimizer": {"kind": "adamw"}}, "lr is None"),
                ({"optimizer": "none", "config": {"optimizer": {}}},
                 "lr is None"),
                ({"optimizer": "add", "config": {"optimizer": {"kind": "sgd"}}},
                 "lr is None")):
            with self.subTest(options=options), \
                    self.assertRaisesRegex(agg.ManifestError, said):
                agg.LocalServer(**options)
        agg.LocalServer(config={"learning_rate": {"rate": 1.0}}).close()

    def test_an_optimizer_of_the_configuration_wins(self):
        for kind in ("none", "add"):
            with agg.LocalServer(config={"optimizer": {"kind": kind}}) as server:
                with agg.Client({"w": np.zeros(1, np.float32)},
                                server.address, 0) as client:
                    self.assertEqual(client.job.optimizer, kind)

    def test_one_that_is_forgotten_ends(self):
        server = agg.LocalServer(shards=2, lr=1.0)
        pids = server.pids
        del server
        gc.collect()
        for pid in pids:
            try:
                os.waitpid(pid, 0)  # until it has ended
            except ChildProcessError:
                pass  # Python has waited for it already

    def test_logs_are_kept_where_asked(self):
        with tempfile.TemporaryDirectory() as folder:
            with agg.LocalServer(shards=2, lr=1.0, folder=folder) as server:
                self.assertIn("fingerprint", server.log(1))
                self.assertEqual(len(set(server.addresses)), 2)
            self.assertIn("drained", server.log(0))
            server.close()  # again: nothing


class ProgramsTest(unittest.TestCase):

    @unittest.skipIf((PACKAGE / "agg_server" / "_bin").exists(),
                     "this package has its programs")
    def test_a_command_without_its_program_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "aggctl"
            script.write_text(f"#!{sys.executable}\nimport sys\n"
                              "from agg_server import programs\n"
                              "programs.aggctl()\n")
            script.chmod(0o755)
            result = subprocess.run(
                [script], capture_output=True, text=True, timeout=WAIT,
                check=False, stdin=subprocess.DEVNULL,
                env={**os.environ, "PATH": folder,
                     "PYTHONPATH": str(PACKAGE)})
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("aggctl is not in this package", result.stderr)


class CheckpointTest(unittest.TestCase):

    def test_reads_the_parts_of_all_shards(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "manifest.json").write_text(json.dumps({
                "tensors": [{"name": "w", "shape": [2, 2]},
                            {"name": "b", "shape": []}],
                "parts": [{"file": "0.npz"}, {"file": "1.npz"}]}))
            with self.assertRaises(OSError):
                agg.read_checkpoint(folder)
            np.savez(folder / "0.npz", **{
                "s0.0.parameters": np.array([1, 2], "f4"),
                "s1.0.parameters": np.array([5], "f4"),
                "s1.0.momentum": np.array([9], "f4")})
            np.savez(folder / "1.npz", **{
                "s0.2.parameters": np.array([3, 4], "f4")})
            found = agg.read_checkpoint(name)
            np.testing.assert_array_equal(found["w"], [[1, 2], [3, 4]])
            self.assertEqual(found["b"], 5)
            with self.assertRaisesRegex(agg.ManifestError, "momentum"):
                agg.read_checkpoint(folder, "momentum")

    def test_a_folder_that_is_none(self):
        with self.assertRaisesRegex(agg.ManifestError, "not a complete"):
            agg.read_checkpoint("/no/such/folder")


class ListenersTest(unittest.TestCase):

    def test_tensorboard_gets_finite_numbers(self):
        calls = []

        class Writer:
            def add_scalar(self, *call):
                calls.append(call)

        agg.TensorBoardLog(Writer())(OUTCOME)
        self.assertEqual(calls, [
            ("agg/learning_rate", 0.5, 4), ("agg/gain", 1.0, 4),
            ("agg/tau", 4.0, 4), ("agg/combined_norm", 2.0, 4)])

    def test_wandb_gets_one_dict(self):
        calls = []

        class Run:
            def log(self, values):
                calls.append(values)

        agg.WandbLog(Run(), prefix="")(OUTCOME)
        self.assertEqual(calls, [OUTCOME.as_dict()])
        self.assertNotIn("loss", calls[0])


if __name__ == "__main__":
    unittest.main()
