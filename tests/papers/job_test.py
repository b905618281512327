"""Runs of a few rounds through real shards: what comes back, and how they end."""

import json
import math
import os
import select
import subprocess
import sys
import unittest

import numpy as np
import torch
import torch.nn.functional as F

from tests.papers import fashion, job, local_optimizers, tasks, worker
from tests.papers.description import Run, RunError

_NO_DATA = f"{fashion.FOLDER} is not there: dataset-fashion-mnist"
_SGD = {"kind": "sgd", "momentum": 0.9}


def mlp(**fields):
    """A run of a second."""
    return Run(**{"task": "fashion_mlp", "ranks": 2, "seed": 3, "batch": 16,
                  "rounds": 12, "optimizer": _SGD,
                  "learning_rate": {"rate": 0.05}, **fields})


# Says the worker's process once a job without end has made rounds.
_ENDLESS = """
import threading, time
from tests.papers import job
from tests.papers.description import Run
import agg_server as agg
run = Run(**%r)
job.find_programs()
server = agg.LocalServer(lr=1.0, config=job.configuration(run, ""))
worker = job._Worker()
threading.Thread(target=worker.do, args=(run, server.address)).start()
while True:
    try:
        agg.Observer(server.address).wait(5)
        break
    except agg.NotNow:
        time.sleep(0.01)
print(worker._process.pid, flush=True)
threading.Event().wait()
"""


class DescriptionTest(unittest.TestCase):

    def test_a_key_is_of_what_matters(self):
        run = mlp()
        self.assertEqual(run.key(), mlp(rule="mean", shards=3).key())
        self.assertNotEqual(run.key(), mlp(rule="sum").key())
        self.assertEqual(Run(**json.loads(json.dumps(run.as_dict()))), run)
        self.assertEqual(
            run.key(), subprocess.run(
                [sys.executable, "-B", "-c",
                 "from tests.papers.description import Run\n"
                 f"print(Run(**{run.as_dict()!r}).key())"],
                capture_output=True, text=True, check=True, cwd=job.ROOT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONHASHSEED": "7",
                     "PYTHONPATH": str(job.ROOT)}).stdout.strip())

    def test_a_refusal_names_field_value_and_what_is_allowed(self):
        for fields, words in (
                ({"task": "cifar"}, 'task is "cifar"; allowed: fashion_mlp'),
                ({"push": "row"}, 'push is "row"; allowed: gradient'),
                ({"ranks": 0}, "ranks is 0; allowed: 1 or more"),
                ({"random_labels": 3}, "random_labels is 3; allowed"),
                ({"step": "oracle"}, 'step is "oracle"'),
                ({"unit_scale": "mean_norm"}, 'unit_scale is "mean_norm"'),
                ({"averaging": "paper"}, 'averaging is "paper"'),
                ({"learning_rate": {}}, "learning_rate has no rate"),
                ({"stop_at": 0.5}, "stop_at needs evaluate_every")):
            with self.assertRaises(RunError) as caught:
                mlp(**fields)
            self.assertIn(words, str(caught.exception))


class LocalOptimizersTest(unittest.TestCase):

    def test_schedules(self):
        lr = local_optimizers.learning_rate
        steps = {"schedule": "multistep", "rate": 2.0, "boundaries": [4, 8],
                 "warmup_steps": 2, "warmup_start_factor": 0.5}
        self.assertEqual([lr(steps, t) for t in (0, 1, 2, 3)],
                         [1.0, 1.5, 2.0, 2.0])
        np.testing.assert_allclose([lr(steps, t) for t in (4, 7, 8)],
                                   [0.2, 0.2, 0.02])
        linear = {"schedule": "polynomial", "rate": 1.0, "decay_steps": 8,
                  "warmup_steps": 2}
        self.assertEqual([lr(linear, t) for t in (0, 1, 2, 4, 10, 11)],
                         [0.0, 0.5, 1.0, 0.75, 0.0, 0.0])
        cosine = {"schedule": "cosine", "rate": 1.0, "decay_steps": 4}
        np.testing.assert_allclose([lr(cosine, t) for t in (0, 2, 4)],
                                   [1, 0.5, 0], atol=1e-15)

    def test_against_torch(self):
        # Two ranks, three steps: each at the same parameters.
        generator = np.random.default_rng(1)
        shared = {"w": generator.standard_normal((3, 2)).astype(np.float32)}
        pushed = generator.standard_normal((3, 2, 3, 2)).astype(np.float32)
        for fields, make in (
                (_SGD, lambda p: torch.optim.SGD([p], 0.1, momentum=0.9)),
                ({**_SGD, "nesterov": True, "weight_decay": 0.1},
                 lambda p: torch.optim.SGD([p], 0.1, 0.9, nesterov=True,
                                           weight_decay=0.1)),
                ({"kind": "adam", "beta2": 0.9},
                 lambda p: torch.optim.Adam([p], 0.1, (0.9, 0.9)))):
            with self.subTest(fields):
                ours = local_optimizers.LocalOptimizers(fields, {"rate": 0.1})
                leaves = [torch.zeros(3, 2, dtype=torch.float64,
                                      requires_grad=True) for _ in range(2)]
                theirs = [make(leaf) for leaf in leaves]
                for rows in pushed:
                    changes = ours.step(shared, {"w": rows.copy()})["w"]
                    for rank, (leaf, optimizer) in enumerate(
                            zip(leaves, theirs)):
                        start = torch.from_numpy(shared["w"]).double()
                        leaf.data.copy_(start)
                        leaf.grad = torch.from_numpy(rows[rank]).double()
                        optimizer.step()
                        np.testing.assert_allclose(
                            changes[rank], (leaf.data - start).numpy(),
                            rtol=1e-5)

    def test_lamb(self):
        # You et al. 2020, Algorithm 2, its first step.
        weights = np.array([[3.0, 4.0]], np.float32)
        row = np.array([[[0.5, -2.0]]], np.float32)
        ours = local_optimizers.LocalOptimizers(
            {"kind": "lamb", "weight_decay": 0.1}, {"rate": 0.1})
        change = ours.step({"w": weights}, {"w": row})["w"]
        direction = np.array([1 + 0.3, -1 + 0.4])
        expected = -0.1 * 5 / np.linalg.norm(direction) * direction
        np.testing.assert_allclose(change[0, 0], expected, rtol=1e-5)

    def test_what_is_not_known_is_refused(self):
        for optimizer, rate in (({"kind": "lars"}, {"rate": 1}),
                                ({"kind": "adam", "momentum": 1}, {"rate": 1}),
                                (_SGD, {"rate": 1, "warmup": 3}),
                                (_SGD, {"rate": 1, "schedule": "stairs"})):
            with self.assertRaisesRegex(RunError, "allowed"):
                local_optimizers.LocalOptimizers(optimizer, rate)


class UnitTest(unittest.TestCase):

    def test_lengths_are_of_the_whole_model(self):
        rows = {"a": np.array([[3.0, 0], [0, 0]], np.float32),
                "b": np.array([[4.0], [0]], np.float32)}
        worker.scale_to_unit(rows, "none")
        np.testing.assert_allclose(rows["a"], [[0.6, 0], [0, 0]], rtol=1e-6)
        np.testing.assert_allclose(rows["b"], [[0.8], [0]], rtol=1e-6)
        rows = {"a": np.array([[2.0], [-6.0]], np.float32)}
        worker.scale_to_unit(rows, "mean_norm")
        np.testing.assert_allclose(rows["a"], [[4], [-4]], rtol=1e-6)


class SpansTest(unittest.TestCase):

    def test_means(self):
        spans = worker.Spans(2)
        for part, value in ((0, 1.0), (0.49, 2.0), (0.2, math.nan),
                            (1.0, 5.0)):
            spans.add(part, value)
        self.assertEqual(spans.means(), [1.5, 5.0])
        self.assertEqual(worker.Spans(1).means(), [None])
        worker.Spans(0).add(0, 1.0)


@unittest.skipUnless(fashion.FOLDER.is_dir(), _NO_DATA)
class FashionTest(unittest.TestCase):

    def test_gradients_are_autograds(self):
        def mlp_logits(w, x):
            hidden = F.relu(F.linear(x, w["hidden/weights"], w["hidden/bias"]))
            return F.linear(hidden, w["output/weights"], w["output/bias"])

        def cnn_logits(w, x):
            first = F.relu(F.conv2d(
                x.view(-1, 1, 28, 28), w["conv1/weights"][:, None],
                w["conv1/bias"], 3))
            second = F.relu(F.conv2d(
                first, w["conv2/weights"].permute(0, 3, 1, 2),
                w["conv2/bias"], 2))
            return F.linear(second.permute(0, 2, 3, 1).flatten(1),
                            w["output/weights"], w["output/bias"])

        # pylint: disable=protected-access
        images, labels = fashion._read_part("train")
        for name, logits in (("fashion_mlp", mlp_logits),
                             ("fashion_cnn", cnn_logits)):
            # 100 ranks: more than what is computed at once.
            run = mlp(task=name, ranks=100, batch=16)
            task = tasks.make(name, run)
            initial = task.initial(3)
            rows, losses = task.gradients(initial, range(100), 0)
            for rank in (0, 31, 32, 99):
                with self.subTest(name, rank=rank):
                    indices = fashion.streams.Batches(
                        3, rank, fashion.TRAINING, 16).next()
                    weights = {key: torch.tensor(value, requires_grad=True)
                               for key, value in initial.items()}
                    x = (images[indices].float() - 72.94) / 90.02
                    loss = F.cross_entropy(logits(weights, x),
                                           labels[indices])
                    loss.backward()
                    self.assertAlmostEqual(losses[rank], loss.item(), 5)
                    for key, leaf in weights.items():
                        # Sums of up to 1024 terms in float32.
                        np.testing.assert_allclose(
                            rows[key][rank], leaf.grad.numpy(),
                            atol=1024 * 2.0 ** -24 *
                            leaf.grad.abs().max().item())

    def test_random_labels_are_of_the_first_ranks_alone(self):
        images = tasks.make("fashion_mlp", mlp())
        noisy = tasks.make("fashion_mlp", mlp(random_labels=1))
        initial = images.initial(0)
        rows = [task.gradients(initial, range(2), 0)[0]["output/bias"].copy()
                for task in (images, noisy)]
        self.assertFalse(np.array_equal(rows[0][0], rows[1][0]))
        np.testing.assert_array_equal(rows[0][1], rows[1][1])

    def test_every_example_comes_once_in_a_pass(self):
        batches = fashion.streams.Batches(1, 0, 10, 4)
        seen = np.concatenate([batches.next() for _ in range(5)])
        np.testing.assert_array_equal(np.sort(seen[:10]), np.arange(10))
        np.testing.assert_array_equal(np.sort(seen[10:]), np.arange(10))


class JobTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.addClassCleanup(job.close)
        if not fashion.FOLDER.is_dir():
            raise unittest.SkipTest(_NO_DATA)

    def test_what_comes_back(self):
        found = job.run_job(mlp(evaluate_every=5, spans=3,
                                evaluate="validation"))
        self.assertEqual(json.loads(json.dumps(found)), found)
        self.assertEqual((found["rounds"], found["examples"],
                          found["failed"], found["reached"]),
                         (12, 12 * 2 * 16, "", None))
        self.assertEqual([at for at, _ in found["curve"]], [5, 10, 12])
        self.assertEqual(found["curve"][-1][1], found["score"])
        self.assertEqual((len(found["gain"]), len(found["orthogonality"])),
                         (3, 3))
        self.assertTrue(1 <= found["mean_gain"] <= 2)
        self.assertTrue(0.5 <= min(found["orthogonality"]) <=
                        max(found["orthogonality"]) <= 1)
        # Of another part, another accuracy of the same parameters.
        again = job.run_job(mlp(spans=3))
        self.assertEqual(again["gain"], found["gain"])
        self.assertEqual(again["train_loss"], found["train_loss"])
        self.assertNotEqual(again["score"], found["score"])

    def test_the_shards_change_no_result(self):
        one, three = (job.run_job(mlp(shards=n, rule="adasum"))
                      for n in (1, 3))
        self.assertEqual((one["score"], one["train_loss"]),
                         (three["score"], three["train_loss"]))

    def test_it_stops_where_the_curve_says(self):
        found = job.run_job(mlp(rounds=200, evaluate_every=2, stop_at=0.3))
        self.assertGreaterEqual(found["curve"][-1][1], 0.3)
        self.assertEqual(found["reached"], found["curve"][-1][0])
        self.assertEqual(found["rounds"], found["reached"])
        self.assertLess(found["rounds"], 200)

    def test_the_server_ends_it_by_tau(self):
        found = job.run_job(mlp(rounds=50, step_scale="adascale",
                                scale_invariant_iterations=20, spans=4,
                                learning_rate={"rate": 0.01}))
        self.assertLess(found["rounds"], 20)
        self.assertGreaterEqual(found["rounds"] * found["mean_gain"], 20)
        self.assertLess((found["rounds"] - 1) * found["mean_gain"], 20)
        self.assertNotIn(None, found["gain"])

    def test_a_lagged_gain_is_one_in_the_first_round(self):
        run = mlp(rounds=1, step_scale="adascale", averaging="lagged")
        self.assertEqual(
            job.configuration(run, "")["step_scale"],
            {"kind": "adascale", "averaging": "lagged"})
        self.assertEqual(job.run_job(run)["mean_gain"], 1)
        self.assertGreater(
            job.run_job(mlp(rounds=1, step_scale="adascale"))["mean_gain"], 1)

    def test_what_diverges_says_so(self):
        for rate in (1e38, 50.0):
            found = job.run_job(mlp(rounds=40, rule="sum",
                                    learning_rate={"rate": rate}))
            with self.subTest(rate):
                self.assertIn(found["failed"], ("not finite", "guesses"))
                self.assertLess(found["score"], 0.2)
            json.dumps(found, allow_nan=False)

    def test_the_ranks_end_with_who_wanted_them(self):
        # Killed amid a job, it can say nothing to the process of the ranks.
        run = mlp(ranks=1, rounds=10 ** 9)
        with subprocess.Popen(
                [sys.executable, "-B", "-c", _ENDLESS % run.as_dict()],
                cwd=job.ROOT, stdin=subprocess.DEVNULL, text=True,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(job.ROOT)}) as script:
            try:
                handle = os.pidfd_open(int(script.stdout.readline()))
            finally:
                script.kill()
        ended, _, _ = select.select([handle], [], [], 120)
        os.close(handle)
        self.assertTrue(ended, "it goes on after 120 s")

    def test_a_broken_run_says_why_and_the_next_one_works(self):
        with self.assertRaisesRegex(job.JobError, "(?s)ended with 1.*RunError"
                                    ".*optimizer.kind is .lars."):
            job.run_job(mlp(push="delta", optimizer={"kind": "lars"}))
        self.assertEqual(job.run_job(mlp(rounds=2))["rounds"], 2)


if __name__ == "__main__":
    unittest.main()
