"""Small reductions beside the model: agg.allreduce({"accuracy": t}, worker)."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy as np
import torch

from tests.python.job_case import PACKAGE, WAIT, JobCase, agg
from tests.python.torch.dtype_test import heard
from tests.python.torch.interrupt_test import interrupt

from agg_server.local_server import binary_path, text_form

_RANK_2 = """
import sys, time, torch
import agg_server as agg
worker = agg.Worker({"x": torch.zeros(2, requires_grad=True)}, sys.argv[1], 2)
print("in", flush=True)
time.sleep(600)
"""


class _Lines(logging.Handler):
    def __init__(self, lines):
        super().__init__()
        self._lines = lines

    def emit(self, record):
        self._lines.append(record.getMessage())


class ReductionTest(JobCase):

    def setUp(self):
        self.lines = []
        handler = _Lines(self.lines)
        logger = logging.getLogger("agg_server")
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)

    def until(self, condition):
        deadline = time.monotonic() + WAIT
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def worker(self, server, rank, **options):
        worker = agg.Worker({"x": torch.zeros(2, requires_grad=True)},
                            server.address, rank, **options)
        self.addCleanup(worker.close)
        return worker

    def workers(self, server, number, **options):
        return self.team(number,
                         lambda rank: self.worker(server, rank, **options))

    def all_of(self, workers, values, **options):
        """What each rank gets."""
        return self.team(len(workers), lambda rank: agg.allreduce(
            values(rank), workers[rank], **options))

    def step(self, workers):
        def run(rank):
            tensor = workers[rank]._tensors["x"]
            tensor.grad = torch.ones_like(tensor)
            return workers[rank].step()
        return self.team(len(workers), run)

    def test_a_metric_of_all_workers(self):
        server = self.serve(shards=2, workers=3, lr=1.0,
                            config={"max_rounds": 2})
        workers = self.workers(server, 3)
        for version in range(3):
            found = self.all_of(workers, lambda rank: {
                "accuracy": torch.tensor(0.1 * (rank + 1) + version),
                "by class": torch.full((2, 3), float(rank))})
            for each in found:
                self.assertEqual(each["accuracy"].dtype, torch.float32)
                self.assertEqual(each["accuracy"].shape, ())
                self.assertAlmostEqual(each["accuracy"].item(), 0.2 + version,
                                       6)
                self.assertEqual(each["by class"].tolist(), [[1.0] * 3] * 2)
            self.assertEqual(workers[0].reduced_ranks, (0, 1, 2))
            if version < 2:
                self.step(workers)
        # The job has finished: the accuracy at the end.
        self.assertTrue(workers[0].finished)
        self.assertEqual(workers[0].version, 2)

    def test_all_have_the_same_bytes(self):
        server = self.serve(workers=3, lr=1.0)
        workers = self.workers(server, 3)
        for _ in range(5):
            found = self.all_of(
                workers, lambda rank: torch.tensor(0.1, dtype=torch.float64)
                * 10 ** (7 * rank), examples=1 / 3)
            self.assertEqual(len({each.item().hex() for each in found}), 1)

    def test_what_may_be_given(self):
        server = self.serve(workers=2, lr=1.0)
        workers = self.workers(server, 2)
        cases = (
            (lambda r: 0.25 + r, {}, 0.75),  # a number
            (lambda r: {"n": 3 + r}, {"op": "sum"}, {"n": 7}),
            (lambda r: {"n": 3 + r}, {}, {"n": 3.5}),
            # Weights; one without examples adds nothing, not even a NaN.
            (lambda r: {"loss": 1.0 + r}, {"examples": [3, 1]}, {"loss": 1.25}),
            (lambda r: {"loss": [5.0, float("nan")][r]},
             {"examples": [2, 0]}, {"loss": 5.0}))
        for values, options, expected in cases:
            with self.subTest(expected=expected):
                def run(rank, values=values, options=options):
                    given = dict(options)
                    if isinstance(given.get("examples"), list):
                        given["examples"] = given["examples"][rank]
                    return agg.allreduce(values(rank), workers[rank], **given)
                for found in self.team(2, run):
                    self.assertEqual(found, expected)
                    self.assertIs(type(found), type(expected))
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32,
                      torch.int64, torch.uint8):
            for found in self.all_of(
                    workers, lambda rank, dtype=dtype: torch.tensor(
                        [rank, 3], dtype=dtype), op="sum"):
                self.assertEqual((found.dtype, found.tolist()),
                                 (dtype, [1, 6]))
        large = 2**53 - 1
        for found in self.all_of(workers, lambda rank: torch.tensor(
                [large, 0][rank]), op="sum"):
            self.assertEqual(found.item(), large)
        for found in self.all_of(workers, lambda rank: np.array([1.0, rank]),
                                 op="sum"):
            self.assertEqual(found.tolist(), [2.0, 1.0])
        with heard() as texts:
            found = [each.item() for each in self.all_of(
                workers, lambda rank: torch.tensor(60000.0).half(), op="sum")]
        self.assertEqual(found, [float("inf")] * 2)
        self.assertRegex(" ".join(texts), '"value".*float16.*beyond')

    def test_what_may_not_be_given(self):
        server = self.serve(workers=1, lr=1.0)
        worker = self.worker(server, 0)
        one = torch.ones(())
        for values, options, said in (
                ({}, {}, "nothing is given"),
                ({"a": one > 0}, {}, '"a".*bool.*count'),
                ({"a": True}, {}, '"a".*bool'),
                ({"a": one.to(torch.complex64)}, {}, '"a".*complex64'),
                ({"a": torch.ones(2, dtype=torch.int64)}, {},
                 '"a".*integers.*op="sum"'),
                ({"a": torch.tensor(2**53 + 1)}, {"op": "sum"},
                 r'"a".*2\*\*53'),
                ({"a": torch.ones(2, device="meta")}, {}, '"a".*meta'),
                ({"a": torch.ones(8192)}, {}, "8192 numbers.*8191.*--job"),
                ({"a": torch.ones(0)}, {}, "0 numbers"),
                ({"a" * 5000: one}, {}, "bytes.*4096"),
                ({"a": one}, {"op": "max"}, 'op is "max".*"mean", "sum"'),
                ({"a": one}, {"op": "sum", "examples": 3}, "examples is 3"),
                ({"a": one}, {"examples": -1}, "examples is -1"),
                ({"a": one}, {"examples": float("nan")}, "examples is nan")):
            with self.subTest(said), self.assertRaisesRegex(agg.ManifestError,
                                                            said):
                agg.allreduce(values, worker, **options)
        wide = torch.tensor([200, 1], dtype=torch.uint8)
        server2 = self.serve(workers=2, lr=1.0)
        for error in self.team(2, lambda rank: self.error_of(
                lambda: agg.allreduce(wide, self.worker(server2, rank),
                                      op="sum"))):
            self.assertRegex(str(error), '"value" is beyond torch.uint8')

    @staticmethod
    def error_of(run):
        try:
            return run()
        except agg.Error as error:
            return error

    def test_beside_the_jobs_own_tensors(self):
        server = self.serve(workers=2, rule="sum", optimizer="none")
        tensors = {"x": torch.ones(2)}
        workers = self.team(2, lambda rank: agg.Worker(
            tensors, server.address, rank, mode="combine"))
        for worker in workers:
            self.addCleanup(worker.close)
        for rank in (0, 1):
            self.assertEqual(workers[rank].version, 0)
        for found in self.all_of(workers, lambda rank: tensors):
            self.assertEqual(found["x"].tolist(), [2.0, 2.0])
        for found in self.all_of(workers, lambda rank: {"accuracy": 1.0 + rank}):
            self.assertEqual(found, {"accuracy": 1.5})
        self.assertEqual(workers[0].version, 1)  # of the first one alone
        with self.assertRaisesRegex(agg.ManifestError, 'op is "sum".*rule'):
            agg.allreduce(tensors, workers[0], op="sum")

    def test_two_that_differ_are_named(self):
        server = self.serve(workers=2, lr=1.0)
        workers = self.workers(server, 2)
        errors = self.team(2, lambda rank: self.error_of(
            lambda: agg.allreduce({"accuracy": torch.ones(rank + 1)},
                                  workers[rank])))
        for error in errors:
            self.assertIsInstance(error, agg.ManifestError)
            self.assertIn("rank 0", str(error))
            self.assertIn("rank 1", str(error))
            self.assertIn('"accuracy" [1]', str(error))
            self.assertIn('"accuracy" [2]', str(error))
        # All can go on.
        for found in self.all_of(workers, lambda rank: 1.0 + rank):
            self.assertEqual(found, 1.5)

    def test_a_wait_says_for_whom_and_ends(self):
        server = self.serve(workers=2, lr=1.0)
        workers = self.workers(server, 2, round_timeout=12)
        with self.assertLogs("agg_server", "WARNING") as logs:
            with self.assertRaisesRegex(
                    agg.Timeout, 'the mean of "accuracy".*version 0 waits for '
                    "rank 1"):
                agg.allreduce({"accuracy": 1.0}, workers[0])
        self.assertRegex("\n".join(logs.output),
                         'mean of "accuracy".*waits for rank 1')
        for found in self.all_of(workers, lambda rank: {"accuracy": 2.0 + rank}):
            self.assertEqual(found, {"accuracy": 2.5})

    def test_who_is_gone_is_not_waited_for(self):
        server = self.serve(workers=3, lr=1.0,
                            config={"reconnect_grace_seconds": 1})
        environment = dict(os.environ, PYTHONPATH=str(PACKAGE))
        third = subprocess.Popen([sys.executable, "-c", _RANK_2,
                                  server.address], stdout=subprocess.PIPE,
                                 env=environment)
        self.addCleanup(third.wait)
        self.addCleanup(third.stdout.close)
        self.addCleanup(third.kill)
        workers = self.workers(server, 2)
        self.assertEqual(third.stdout.readline(), b"in\n")
        found = []
        asks = threading.Thread(target=lambda: found.append(
            self.all_of(workers, lambda rank: 1.0 + rank)), daemon=True)
        asks.start()
        self.until(lambda: "waits for rank 2" in "\n".join(self.lines))
        third.send_signal(signal.SIGKILL)
        asks.join(WAIT)
        self.assertEqual(found, [[1.5, 1.5]])
        self.assertEqual(workers[0].reduced_ranks, (0, 1))
        workers[1].close()
        self.assertEqual(agg.allreduce(3.0, workers[0]), 3.0)
        self.assertEqual(workers[0].reduced_ranks, (0,))

    def test_ctrl_c_leaves_a_state_to_go_on_with(self):
        server = self.serve(workers=2, lr=1.0)
        workers = self.workers(server, 2)
        interrupt(workers[0])
        with self.assertRaises(KeyboardInterrupt):
            agg.allreduce({"a": 100.0}, workers[0])
        for found in self.all_of(workers, lambda rank: {"b": 1.0 + rank}):
            self.assertEqual(found, {"b": 1.5})
        self.step(workers)
        for found in self.all_of(workers, lambda rank: 5.0):
            self.assertEqual(found, 5.0)

    def test_a_job_waits_for_who_evaluates_and_not_the_other_way_round(self):
        """Rank 1 makes a round while rank 0 reduces: neither hangs."""
        server = self.serve(workers=2, lr=1.0)
        workers = self.workers(server, 2)

        def run(rank):
            if rank == 0:
                found = agg.allreduce(4.0, workers[0])
                self.assertEqual((found, workers[0].reduced_ranks), (4.0, (0,)))
            tensor = workers[rank]._tensors["x"]
            tensor.grad = torch.ones_like(tensor)
            return workers[rank].step().version

        self.assertEqual(self.team(2, run), [1, 1])
        self.assertRegex("\n".join(self.lines), r"none of ranks \[1\]")
        for found in self.all_of(workers, lambda rank: 1.0 + rank):
            self.assertEqual(found, 1.5)

    def test_the_sums_survive_the_loss_of_shard_0(self):
        """Rank 0 has them, and rank 1 has not, when it is killed."""
        server = self.serve(shards=2, workers=2, lr=1.0)
        workers = self.workers(server, 2)
        self.step(workers)
        session = workers[1]._session

        def interrupted(operation):
            """Once the server has what this worker gives."""
            def waits():
                operation.done(0.1)
                session._drain_events()
                return "waits for rank 0" in "\n".join(self.lines)
            self.until(waits)
            del session._await_operation
            raise KeyboardInterrupt

        session._await_operation = interrupted
        with self.assertRaises(KeyboardInterrupt):
            agg.allreduce({"a": 2.0}, workers[1], op="sum")
        self.assertEqual(agg.allreduce({"a": 1.0}, workers[0], op="sum"),
                         {"a": 3.0})
        os.kill(server.pids[0], signal.SIGKILL)
        config = server.folder / "again.textproto"
        config.write_text(server._text
                          + text_form({"shards": list(server.addresses)}))
        with open(server.folder / "again.log", "wb") as log:
            again = subprocess.Popen(
                [binary_path("agg_server"), f"--config={config}", "--shard=0",
                 "--port=" + server.address.rpartition(":")[2],
                 "--exit_with_stdin"], stdin=subprocess.PIPE, stdout=log,
                stderr=log)
        self.addCleanup(again.wait)
        self.addCleanup(again.stdin.close)
        self.addCleanup(again.kill)
        self.assertEqual(agg.allreduce({"a": 77.0}, workers[1], op="sum"),
                         {"a": 3.0})
        for found in self.all_of(workers, lambda rank: {"a": 5.0 + rank}):
            self.assertEqual(found, {"a": 5.5})
        self.step(workers)


if __name__ == "__main__":
    unittest.main()
