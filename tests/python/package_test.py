"""Parts without a server: errors, configurations, checkpoints, listeners."""

import gc
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np

from tests.python.job_case import ROOT, WAIT, JobCase, agg
from agg_server import errors, local_server
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
        # A shard may say it before the event is there.
        self.assertIsInstance(errors.error_of(
            10, "shard 0 (h:1): Push: superseded: another session joined as "
            "rank 0", False, False, None), agg.Superseded)
        self.assertIsInstance(error, RuntimeError)
        self.assertTrue(issubclass(agg.ManifestError, ValueError))
        self.assertTrue(issubclass(agg.Timeout, TimeoutError))
        self.assertIsNone(agg.Error("no shards").shard)


class ImportTest(unittest.TestCase):

    def run_python(self, script, **environment):
        return subprocess.run(
            [sys.executable, "-B", "-c", script], capture_output=True,
            text=True, timeout=60, check=False,
            env={**os.environ, **environment,
                 "PYTHONPATH": str(ROOT / "worker_client" / "python")})

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
        library = os.environ["AGG_LIBRARY"]
        for name, value, allowed in (("ABI_VERSION", 2, "2.1 or a later 2.x"),
                                     ("ABI_MINOR", 99, "1.99 or a later 1.x")):
            out = self.refused("from agg_server import _abi\n"
                               f"_abi.{name} = {value}")
            self.assertRegex(out, rf"^{re.escape(library)} has version 1\.\d+ "
                             rf"of the ABI; allowed: {re.escape(allowed)}")

    def test_a_library_of_something_else(self):
        self.assertIn("is no libagg.so", self.refused(
            "", AGG_LIBRARY=_libc()))


def _libc():
    """The path of a shared library that every process has."""
    maps = pathlib.Path("/proc/self/maps").read_text()
    return re.search(r"\S+/libc\.so\.6$", maps, re.MULTILINE).group(0)


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

    def test_a_server_that_does_not_start_says_why(self):
        with self.assertRaisesRegex(agg.Error, 'rule is "median"'):
            agg.LocalServer(rule="median", lr=1.0)

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
                env={**os.environ, "PATH": folder, "PYTHONPATH":
                     str(ROOT / "worker_client" / "python")})
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
