"""Short jobs through real shards, and the same ones from the papers' formulas.

The replay shares no code with server, package and tasks but the streams of
random numbers: float64, full vectors, a rank at a time.

The bound: a float32 dot product of n terms is off by at most n u times the sum
of its terms' magnitudes, u = 2^-24. Nothing here sums more than the 784 inputs
of a hidden unit, and a parameter's error is that of its change so far. So
parameters may differ by n u times their changes, a round's worth for each round.
The bound is 4e-4; measured were 5e-7 to 5e-6, and another formula, as the last
test shows, gives about 1.
"""

import math
import tempfile
import unittest

import numpy as np

from tests.papers import fashion, job, streams, worker
from tests.papers.description import Run

import agg_server as agg

ROUNDS, RANKS, BATCH = 8, 4, 8
UNIT = 2.0 ** -24
LONGEST_SUM = 784
MULTISTEP = {"schedule": "multistep", "rate": 0.1, "boundaries": [3, 6],
             "gamma": 0.5}


def forward(weights, images):
    """The MLP's hidden units and probabilities."""
    hidden = np.maximum(
        images @ weights["hidden/weights"].T + weights["hidden/bias"], 0)
    logits = hidden @ weights["output/weights"].T + weights["output/bias"]
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return hidden, powers / powers.sum(1, keepdims=True)


def gradient(weights, images, labels):
    """Of the mean cross-entropy."""
    hidden, probabilities = forward(weights, images)
    by_logits = probabilities.copy()
    by_logits[np.arange(len(labels)), labels] -= 1
    by_logits /= len(labels)
    by_hidden = (by_logits @ weights["output/weights"]) * (hidden > 0)
    return {"hidden/weights": by_hidden.T @ images,
            "hidden/bias": by_hidden.sum(0),
            "output/weights": by_logits.T @ hidden,
            "output/bias": by_logits.sum(0)}


def examples(seed):
    """For each round and rank, images and labels."""
    # pylint: disable=protected-access
    pixels, labels = (t.numpy() for t in fashion._read_part("train"))
    pixels = pixels[:fashion.TRAINING].astype(np.float64)
    # Of the package: the two numbers are rounded.
    pixels = (pixels - fashion._MEAN) / fashion._DEVIATION
    batches = [streams.Batches(seed, rank, fashion.TRAINING, BATCH)
               for rank in range(RANKS)]
    for _ in range(ROUNDS):
        indices = [each.next() for each in batches]
        yield [(pixels[i], labels[i]) for i in indices]


def adasum(rows):
    """The pair tree (Maleki et al. 2020, eq. 3): neighbours first."""
    while len(rows) > 1:
        pairs = []
        for a, b in zip(rows[::2], rows[1::2]):
            dot = (a * b).sum()
            pairs.append((1 - dot / (2 * (a * a).sum())) * a +
                         (1 - dot / (2 * (b * b).sum())) * b)
        rows = pairs
    return rows[0]


def square(row):
    """||row||^2 over all tensors."""
    return math.fsum((part * part).sum() for part in row.values())


class Gain:
    """AdaScale's (Johnson et al. 2020, section 3.3), the averages debiased."""

    def __init__(self):
        self._sigma = self._mu = self._weight = 0.0

    def take(self, rows):
        """The round's gain."""
        count = len(rows)
        mean = {name: sum(row[name] for row in rows) / count
                for name in rows[0]}
        squares, of_mean = [square(row) for row in rows], square(mean)
        sigma = (sum(squares) - count * of_mean) / (count - 1)
        mu = of_mean - sigma / count
        theta = 1 - count / 1000
        self._sigma = theta * self._sigma + (1 - theta) * max(sigma, 1e-6)
        self._mu = theta * self._mu + (1 - theta) * max(mu, 0.0)
        self._weight = theta * self._weight + (1 - theta)
        sigma, mu = self._sigma / self._weight, self._mu / self._weight
        return (sigma + mu) / (sigma / count + mu)


def replay(run, initial, combine, adascale=False):
    """Parameters, and per round gain and the tensors' orthogonality."""
    weights = {name: array.astype(np.float64)
               for name, array in initial.items()}
    buffers = {name: np.zeros_like(array) for name, array in weights.items()}
    estimate, tau, gains, orthogonality = Gain(), 0.0, [], []
    for batches in examples(run.seed):
        rows = [gradient(weights, *batch) for batch in batches]
        gain = estimate.take(rows)
        t = math.floor(tau)
        rate = 0.1 * 0.5 ** sum(t >= boundary for boundary in (3, 6))
        rate, tau = (rate * gain, tau + gain) if adascale else (rate, tau + 1)
        shares = {}
        for name in weights:
            of_tensor = [row[name] for row in rows]
            shares[name] = ((adasum(of_tensor) ** 2).sum() /
                            sum((part ** 2).sum() for part in of_tensor))
            buffers[name] = 0.9 * buffers[name] + combine(of_tensor)
            weights[name] = weights[name] - rate * buffers[name]
        gains.append(gain)
        orthogonality.append(shares)
    return weights, gains, orthogonality


def mean(rows):
    return sum(rows) / len(rows)


def largest_difference(found, expected, initial):
    """By the largest change: of any parameter."""
    change = max(np.abs(expected[name] - initial[name]).max()
                 for name in initial)
    return max(np.abs(found[name] - expected[name]).max()
               for name in initial) / change


@unittest.skipUnless(fashion.FOLDER.is_dir(),
                     f"{fashion.FOLDER} is not there: dataset-fashion-mnist")
class ReplayTest(unittest.TestCase):

    BOUND = LONGEST_SUM * UNIT * ROUNDS

    def train(self, **fields):
        """The run, its initial parameters, its last ones and its result."""
        run = Run(task="fashion_mlp", ranks=RANKS, seed=5, batch=BATCH,
                  rounds=ROUNDS, optimizer={"kind": "sgd", "momentum": 0.9},
                  learning_rate=MULTISTEP, spans=ROUNDS, **fields)
        job.find_programs()
        with tempfile.TemporaryDirectory() as folder:
            with agg.LocalServer(
                    shards=job.shards_of(run), workers=RANKS, folder=folder,
                    lr=1.0, config=job.configuration(run, folder)) as server:
                training = worker.Training(run, server.address)
                initial = {name: array.copy()
                           for name, array in training.parameters.items()}
                result = training.result()
            last = {name: array.copy()
                    for name, array in training.parameters.items()}
        return run, initial, last, result

    def check(self, combine, adascale=False, **fields):
        run, initial, last, result = self.train(**fields)
        expected, gains, _ = replay(run, initial, combine, adascale)
        self.assertLess(largest_difference(last, expected, initial),
                        self.BOUND)
        np.testing.assert_allclose(result["gain"], gains, rtol=self.BOUND)
        self.assertEqual(result["rounds"], ROUNDS)

    def test_mean(self):
        self.check(mean)

    def test_sum_on_one_shard(self):
        self.check(sum, rule="sum", shards=1)

    def test_adasum(self):
        self.check(adasum, rule="adasum")

    def test_adascale(self):
        self.check(mean, adascale=True, step_scale="adascale")

    def test_deltas(self):
        # Of one rank's optimizer each: its momentum is not the others'.
        run, initial, last, _ = self.train(rule="adasum", push="delta")
        weights = {name: array.astype(np.float64)
                   for name, array in initial.items()}
        buffers = [{name: np.zeros_like(array)
                    for name, array in weights.items()} for _ in range(RANKS)]
        for t, batches in enumerate(examples(run.seed)):
            rate = 0.1 * 0.5 ** sum(t >= boundary for boundary in (3, 6))
            rows = [gradient(weights, *batch) for batch in batches]
            for name in weights:
                for buffer, row in zip(buffers, rows):
                    buffer[name] = 0.9 * buffer[name] + row[name]
                weights[name] = weights[name] + adasum(
                    [-rate * buffer[name] for buffer in buffers])
        self.assertLess(largest_difference(last, weights, initial), self.BOUND)

    def test_unit_gradients(self):
        for scale in ("none", "mean_norm"):
            run, initial, last, _ = self.train(push="unit", unit_scale=scale)
            weights = {name: array.astype(np.float64)
                       for name, array in initial.items()}
            buffers = {name: np.zeros_like(a) for name, a in weights.items()}
            for t, batches in enumerate(examples(run.seed)):
                rate = 0.1 * 0.5 ** sum(t >= boundary for boundary in (3, 6))
                rows = [gradient(weights, *batch) for batch in batches]
                norms = [math.sqrt(square(row)) for row in rows]
                length = mean(norms) if scale == "mean_norm" else 1.0
                for name in weights:
                    buffers[name] = 0.9 * buffers[name] + length * mean(
                        [row[name] / norm for row, norm in zip(rows, norms)])
                    weights[name] = weights[name] - rate * buffers[name]
            self.assertLess(largest_difference(last, weights, initial),
                            self.BOUND)

    def test_orthogonality_by_tensor(self):
        run = Run(task="fashion_mlp", ranks=RANKS, seed=5, batch=BATCH,
                  rounds=ROUNDS, optimizer={"kind": "sgd", "momentum": 0.9},
                  learning_rate=MULTISTEP, spans=ROUNDS, tensors=True)
        job.find_programs()
        self.addCleanup(job.close)
        found = job.run_job(run)["tensor_orthogonality"]
        initial = fashion.Mlp(run).initial(run.seed)
        _, _, expected = replay(run, initial, mean)
        for name in initial:
            # The log has float32's digits.
            np.testing.assert_allclose(
                found[name], [of_round[name] for of_round in expected],
                rtol=self.BOUND)

    def test_another_formula_is_far_beyond_the_bound(self):
        run, initial, last, _ = self.train()
        others = {
            "sum": replay(run, initial, sum),
            "adasum": replay(run, initial, adasum),
            "adascale": replay(run, initial, mean, adascale=True),
            "the next seed's examples": replay(
                Run(**{**run.as_dict(), "seed": 6}), initial, mean)}
        for name, (weights, _, _) in others.items():
            with self.subTest(name):
                self.assertGreater(largest_difference(last, weights, initial),
                                   1000 * self.BOUND)


class OracleTest(unittest.TestCase):

    def test_the_mean_and_the_exact_step(self):
        self.addCleanup(job.close)
        run = Run(task="regression", ranks=RANKS, seed=1, batch=BATCH,
                  rounds=ROUNDS, step="oracle", evaluate_every=1)
        found = np.array([score for _, score in job.run_job(run)["curve"]])
        weights = streams.stream(1, streams.WEIGHTS).uniform(
            -5, 5, 1000).astype(np.float32).astype(np.float64)
        size = weights @ weights
        random = [streams.stream(1, streams.BATCHES, rank)
                  for rank in range(RANKS)]
        expected = []
        for _ in range(ROUNDS):
            inputs = [each.random((BATCH, 1000), np.float32).astype(np.float64)
                      for each in random]
            row = mean([x.T @ (x @ weights) / BATCH for x in inputs])
            weights = weights - (weights @ row) / (row @ row) * row
            # E (x w)^2 / 2 of x uniform in (0, 1)^1000.
            expected.append((weights @ weights / 12 +
                             weights.sum() ** 2 / 4) / 2)
        # A loss is a square with up to 1000 / 8 times ||w||^2.
        np.testing.assert_allclose(found, expected, rtol=0,
                                   atol=1000 * UNIT * ROUNDS * size)
        self.assertLess(expected[-1], 0.1 * size)


if __name__ == "__main__":
    unittest.main()
