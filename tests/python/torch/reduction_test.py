"""Small reductions beside the model: agg.allreduce({"accuracy": t}, worker)."""

import logging
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np
import torch

from tests.python.job_case import PACKAGE, WAIT, JobCase, agg
from tests.python.torch.torch_case import heard, interrupt

from agg_server.local_server import binary_path, text_form

# Steps, reduces once when it is told to, and says what happens.
_REDUCES = """
import logging, sys, torch
import agg_server as agg
logging.basicConfig(stream=sys.stdout, level=logging.INFO)
rank, steps = int(sys.argv[2]), int(sys.argv[3])
x = torch.zeros(2, requires_grad=True)
worker = agg.Worker({"x": x}, sys.argv[1], rank)
for _ in range(steps):
    x.grad = torch.ones_like(x)
    worker.step()
print("in", flush=True)
sys.stdin.readline()
print("sums", agg.allreduce({"a": 10.0 ** rank}, worker, op="sum")["a"],
      worker.reduced_ranks, flush=True)
sys.stdin.readline()
"""
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

    def workers(self, number, server=None, **options):
        """Ranks 0 to `number` - 1 of a job, or of one that expects no more."""
        server = server or self.serve(workers=number, lr=1.0)
        return self.team(number,
                         lambda rank: self.worker(server, rank, **options))

    def all_of(self, workers, values, **options):
        """What each rank gets."""
        return self.team(len(workers), lambda rank: agg.allreduce(
            values(rank), workers[rank], **options))

    def process(self, script, server, *arguments):
        """A worker of its own process, which is in."""
        environment = dict(os.environ, PYTHONPATH=str(PACKAGE))
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", script, server.address, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process

    def assert_all(self, workers, values, expected, **options):
        """Every rank gets that."""
        for found in self.all_of(workers, values, **options):
            self.assertEqual(found, expected)

    @staticmethod
    def go_on(process):
        """Lets it reduce."""
        process.stdin.write(b"\n")
        process.stdin.flush()

    @staticmethod
    def hear(process, text):
        """Its lines up to one with `text`, which is returned."""
        for line in process.stdout:
            if text in line.decode():
                return line.decode()
        raise AssertionError(f"the process has ended without {text!r}")

    def in_thread(self, run):
        """Begins it; a function that waits for its result."""
        results = []
        thread = threading.Thread(target=lambda: results.append(run()),
                                  daemon=True)
        thread.start()

        def result():
            thread.join(WAIT)
            self.assertEqual(len(results), 1, "a reduction hangs")
            return results[0]
        return result

    def waits_for(self, text):
        self.until(lambda: text in "\n".join(self.lines))

    def again(self, server, shard):
        """Starts a process for a shard that was killed."""
        config = server.folder / "again.textproto"
        config.write_text(server._text
                          + text_form({"shards": list(server.addresses)}))
        with open(server.folder / "again.log", "wb") as log:
            process = subprocess.Popen(
                [binary_path("agg_server"), f"--config={config}",
                 f"--shard={shard}", "--port="
                 + server.addresses[shard].rpartition(":")[2],
                 "--exit_with_stdin"], stdin=subprocess.PIPE, stdout=log,
                stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.kill)

    def step(self, workers):
        def run(rank):
            tensor = workers[rank]._tensors["x"]
            tensor.grad = torch.ones_like(tensor)
            return workers[rank].step()
        return self.team(len(workers), run)

    def test_a_metric_of_all_workers(self):
        server = self.serve(shards=2, workers=3, lr=1.0,
                            config={"max_rounds": 2})
        workers = self.workers(3, server)
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
        workers = self.workers(3)
        for _ in range(5):
            found = self.all_of(
                workers, lambda rank: torch.tensor(0.1, dtype=torch.float64)
                * 10 ** (7 * rank), examples=1 / 3)
            self.assertEqual(len({each.item().hex() for each in found}), 1)

    def test_what_may_be_given(self):
        workers = self.workers(2)
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
        large = 2**43
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
                ({"a": torch.tensor(2**43 + 1)}, {"op": "sum"},
                 r'"a".*2\*\*43'),
                ({"a": torch.tensor(-2**63)}, {"op": "sum"}, r'"a".*2\*\*43'),
                ({"a": torch.tensor(2**64 - 1, dtype=torch.uint64)},
                 {"op": "sum"}, r'"a".*2\*\*43'),
                ({"a": 10**400}, {"op": "sum"}, r'"a".*2\*\*43'),
                ({"a": 10**400}, {}, r'"a".*2\*\*53'),
                ({"a": 1e300}, {"examples": 10**9}, '"a" times examples'),
                ({1: one}, {}, "name 1 is of int"),
                ({"a\0b": one}, {}, "zero byte"),
                ({"a\udc80": one}, {}, "no UTF-8"),
                ({"a": {"b": one}}, {}, '"a" is object'),
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
        self.assert_all(workers, lambda rank: {"accuracy": 1.0 + rank},
                        {"accuracy": 1.5})
        self.assertEqual(workers[0].version, 1)  # of the first one alone
        with self.assertRaisesRegex(agg.ManifestError, 'op is "sum".*rule'):
            agg.allreduce(tensors, workers[0], op="sum")

    def test_a_sum_beyond_float64_is_said(self):
        workers = self.workers(2)
        for found in self.all_of(workers, lambda rank: {"a": 1.5e308},
                                 op="sum"):
            self.assertEqual(found["a"], float("inf"))
        self.assertRegex("\n".join(self.lines), '"a" is infinite')

    def test_who_differs_is_told_and_the_others_go_on(self):
        workers = self.workers(2)
        first = self.in_thread(lambda: agg.allreduce(
            {"accuracy": torch.ones(2)}, workers[0]))
        self.waits_for("waits for rank 1")
        for other, said in (
                (torch.ones(1), r'"accuracy" \[1\] of floats'),
                (torch.ones(2).long(), r'"accuracy" \[2\] of integers')):
            op = None if other.is_floating_point() else "sum"
            with self.assertRaisesRegex(agg.ManifestError, said) as caught:
                agg.allreduce({"accuracy": other}, workers[1], op=op)
            self.assertRegex(str(caught.exception),
                             r'rank 1 reduces.*rank 0 waits for.*"accuracy" '
                             r'\[2\] of floats')
        self.waits_for("rank 1 has asked for the sum of")
        found = agg.allreduce({"accuracy": torch.zeros(2)}, workers[1])
        self.assertEqual(found["accuracy"].tolist(), [0.5, 0.5])
        self.assertEqual(first()["accuracy"].tolist(), [0.5, 0.5])

    def test_integers_and_floats_are_two_things(self):
        """One would round what the other does not."""
        workers = self.workers(2)
        first = self.in_thread(
            lambda: agg.allreduce(torch.tensor([2]), workers[0], op="sum"))
        self.waits_for("waits for rank 1")
        with self.assertRaisesRegex(agg.ManifestError,
                                    "of floats.*of integers"):
            agg.allreduce(torch.tensor([2.5]), workers[1], op="sum")
        self.assertEqual(agg.allreduce(torch.tensor([3]), workers[1],
                                       op="sum").tolist(), [5])
        self.assertEqual(first().tolist(), [5])

    def test_at_whatever_version_a_worker_is(self):
        """An older one is evaluated, by all or by one of them."""
        workers = self.workers(2, round_timeout=WAIT)
        self.step(workers)
        self.step(workers)

        def run(rank):
            worker, found = workers[rank], []
            for value, older in ((1.0, None), (10.0, 1), (100.0, None)):
                if value > 1 and (rank == 0 or value != 10.0):
                    worker.pull(older)
                found.append(agg.allreduce({"a": value + rank}, worker,
                                           op="sum")["a"])
            worker.pull(1)
            found.append(agg.allreduce({"a": 5.0 + rank}, worker, op="sum")["a"])
            worker.pull()
            found.append(agg.allreduce({"a": 7.0 + rank}, worker, op="sum")["a"])
            return found

        for found in self.team(2, run):
            self.assertEqual(found, [3.0, 21.0, 201.0, 11.0, 15.0])
        self.assertEqual(workers[0].reduced_ranks, (0, 1))
        self.step(workers)

    def test_who_joins_late_ends_nobodys_reduction(self):
        server = self.serve(workers=2, lr=1.0)
        workers = self.workers(2, server)
        self.step(workers)
        self.all_of(workers, lambda rank: {"accuracy": 1.0 + rank})
        workers[1].close()
        # Its parameters are those after the round that is open.
        joins = self.in_thread(lambda: self.worker(server, 1))
        self.waits_for("waits for its end")
        self.step(workers[:1])
        late = joins()
        first = self.in_thread(
            lambda: agg.allreduce({"accuracy": 1.0}, workers[0]))
        self.waits_for("waits for rank 1")
        with self.assertRaisesRegex(agg.ManifestError, "rank 1 reduces"):
            agg.allreduce(0.0, late)
        self.assertEqual(agg.allreduce({"accuracy": 2.0}, late),
                         {"accuracy": 1.5})
        self.assertEqual(first(), {"accuracy": 1.5})

    def test_a_wait_says_for_whom_and_ends(self):
        workers = self.workers(2, round_timeout=4)
        with self.assertRaisesRegex(
                agg.Timeout, 'the mean of "accuracy".*waits for rank 1; its '
                "values are taken back"):
            agg.allreduce({"accuracy": 1.0}, workers[0])
        self.assertRegex("\n".join(self.lines),
                         'mean of "accuracy".*waits for rank 1')
        # It does not stand in the way of what comes next, whatever that is.
        self.assert_all(workers, lambda rank: {"loss": 3.0 + rank},
                        {"loss": 3.5})
        self.assert_all(workers, lambda rank: {"accuracy": 2.0 + rank},
                        {"accuracy": 2.5})

    def test_who_is_gone_is_not_waited_for(self):
        server = self.serve(workers=3, lr=1.0,
                            config={"reconnect_grace_seconds": 1})
        third = self.process(_RANK_2, server)
        workers = self.workers(2, server)
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
        workers = self.workers(2)
        interrupt(workers[0])
        with self.assertRaises(KeyboardInterrupt):
            agg.allreduce({"a": 100.0}, workers[0])
        self.assert_all(workers, lambda rank: {"b": 1.0 + rank}, {"b": 1.5})
        self.step(workers)
        self.assert_all(workers, lambda rank: 5.0, 5.0)

    def test_a_job_waits_for_who_evaluates_and_not_the_other_way_round(self):
        """Rank 1 makes a round while rank 0 reduces: neither hangs."""
        workers = self.workers(2)

        def run(rank):
            if rank == 0:
                found = agg.allreduce(4.0, workers[0])
                self.assertEqual((found, workers[0].reduced_ranks), (4.0, (0,)))
            tensor = workers[rank]._tensors["x"]
            tensor.grad = torch.ones_like(tensor)
            return workers[rank].step().version

        self.assertEqual(self.team(2, run), [1, 1])
        self.assertRegex("\n".join(self.lines), r"none of ranks \[1\]")
        self.assert_all(workers, lambda rank: 1.0 + rank, 1.5)

    def test_a_worker_that_is_killed_midway_does_not_count(self):
        # What it gave is withdrawn at once, and not with its session.
        server = self.serve(workers=3, lr=1.0,
                            config={"reconnect_grace_seconds": 2 * WAIT})
        third = self.process(_REDUCES, server, "2", "0")
        workers = self.workers(2, server)
        self.hear(third, "in")
        self.go_on(third)
        self.hear(third, "waits for")
        third.send_signal(signal.SIGKILL)
        third.wait()
        first = self.in_thread(
            lambda: agg.allreduce({"a": 1.0}, workers[0], op="sum"))
        self.waits_for("waits for ranks 1, 2")
        second = self.in_thread(
            lambda: agg.allreduce({"a": 2.0}, workers[1], op="sum"))
        # One that takes its place gives its own.
        self.assertEqual(agg.allreduce({"a": 4.0}, self.worker(server, 2),
                                       op="sum"), {"a": 7.0})
        self.assertEqual((first(), second()), ({"a": 7.0}, {"a": 7.0}))
        self.assertEqual(workers[0].reduced_ranks, (0, 1, 2))

    def test_ctrl_c_and_the_same_call_again(self):
        """The others have the result: it gets that, and says so."""
        workers = self.workers(2)
        session = workers[1]._session
        first = self.in_thread(
            lambda: agg.allreduce({"a": 1.0}, workers[0], op="sum"))

        def interrupted(_):
            del session._await_operation
            first()
            raise KeyboardInterrupt

        session._await_operation = interrupted
        with self.assertRaises(KeyboardInterrupt):
            agg.allreduce({"a": 2.0}, workers[1], op="sum")
        self.assertEqual(first(), {"a": 3.0})
        self.assertEqual(agg.allreduce({"a": 77.0}, workers[1], op="sum"),
                         {"a": 3.0})
        self.assertRegex("\n".join(self.lines),
                         "was interrupted after.*this call gives that")
        self.assert_all(workers, lambda rank: {"a": 5.0 + rank}, {"a": 5.5})

    def test_the_sums_survive_the_loss_of_shard_0(self):
        """Ranks 0 and 2 have them, and rank 1 has not, when it is killed."""
        self.check_loss_of_shard_0(self.serve(shards=2, workers=3, lr=1.0))

    def test_the_sums_survive_a_rewind(self):
        """Likewise, and the job goes back from version 3 to version 2."""
        with tempfile.TemporaryDirectory() as folder:
            server = self.serve(shards=2, workers=3, lr=1.0, config={
                "replication": "none",
                "checkpoint": {"path": folder, "every_rounds": 2}})
            workers = self.check_loss_of_shard_0(server, 3, lambda: self.until(
                lambda: list(pathlib.Path(folder).rglob("manifest.json"))))
            # Its parameters are of a past that was given up: it gives nothing.
            with self.assertRaisesRegex(agg.Error, "gone back.*version 2"):
                agg.allreduce({"a": 1.0}, workers[0])

    def check_loss_of_shard_0(self, server, steps=0, checkpointed=lambda: None):
        """Rank 1 hears of the sums behind it; the other workers."""
        second = self.process(_REDUCES, server, "1", str(steps))
        workers = {rank: worker for rank, worker in zip(
            (0, 2), self.team(2, lambda i: self.worker(server, 2 * i)))}
        for _ in range(steps):
            self.step(list(workers.values()))
        checkpointed()
        self.hear(second, "in")
        self.go_on(second)
        self.hear(second, "waits for")
        # It does not ask again after the answer that it has to wait, which the
        # server has given when a call that came later has it, too.
        second.send_signal(signal.SIGSTOP)
        third = self.in_thread(
            lambda: agg.allreduce({"a": 100.0}, workers[2], op="sum"))
        self.waits_for("waits for rank 0")
        self.assertEqual(agg.allreduce({"a": 1.0}, workers[0], op="sum"),
                         {"a": 111.0})
        self.assertEqual(third(), {"a": 111.0})
        os.kill(server.pids[0], signal.SIGKILL)
        self.again(server, 0)
        second.send_signal(signal.SIGCONT)
        self.assertIn("sums 111.0 (0, 1, 2)", self.hear(second, "sums"))
        return workers


if __name__ == "__main__":
    unittest.main()
