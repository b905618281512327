"""AdaScale's options through real shards; their numbers from numpy."""

import threading
import time
import unittest

import numpy as np

from tests.python.job_case import WAIT, JobCase, agg

ROUNDS = 4


def parameters():
    return {"w": np.zeros((5, 8), np.float32), "b": np.zeros(6, np.float32)}


def gradients(version, rank):
    """The groups differ in their noise."""
    generator = np.random.default_rng(100 * version + rank)
    return {"w": (.2 + generator.standard_normal((5, 8))).astype(np.float32),
            "b": (1 + .2 * generator.standard_normal(6)).astype(np.float32)}


def estimate(rows):
    """(sigma^2, mu^2) of rows of one baseline batch each, clipped."""
    rows = np.asarray(rows, np.float64)
    number = len(rows)
    local = np.mean(np.sum(rows ** 2, axis=1))
    total = np.sum(rows.mean(axis=0) ** 2)
    variance = (local - total) * number / (number - 1)
    return max(variance, 1e-6), max(total - variance / number, 0)


def gain(average, scale):
    variance, mean = average
    return (variance + mean) / (variance / scale + mean)


class StepScaleTest(JobCase):

    def train(self, workers, config):
        """Each version's parameters, and each round's outcome."""
        server = self.serve(
            shards=2, workers=workers, lr=0.125,
            config={"step_scale": {"kind": "adascale", **config},
                    "groups": [{"name": "bias"}]})

        def work(rank):
            x = parameters()
            versions, outcomes = [], []
            with agg.Client(x, server.address, rank,
                            groups={"b": "bias"}) as client:
                versions.append({name: x[name].copy() for name in x})
                for version in range(ROUNDS):
                    outcomes.append(client.step(gradients(version, rank)))
                    versions.append({name: x[name].copy() for name in x})
            return versions, outcomes

        return self.team(workers, work)[0]

    def samples(self, names, workers):
        """(sigma^2, mu^2) of the named tensors, a row for each round."""
        return np.array([estimate([np.concatenate(
            [gradients(version, rank)[name].ravel() for name in names])
            for rank in range(workers)]) for version in range(ROUNDS)])

    def test_a_lagged_gain_is_of_prior_rounds(self):
        _, outcomes = self.train(3, {"averaging": "lagged"})
        samples = self.samples(("b", "w"), 3)
        expected = [1.0] + [gain(samples[:version].mean(axis=0), 3)
                            for version in range(1, ROUNDS)]
        np.testing.assert_allclose([o.gain for o in outcomes], expected,
                                   rtol=1e-6)
        np.testing.assert_allclose([o.tau for o in outcomes],
                                   np.cumsum(expected), rtol=1e-6)
        np.testing.assert_allclose([o.learning_rate for o in outcomes],
                                   .125 * np.array(expected), rtol=1e-6)

    def test_smoothing_is_of_a_baseline_batch(self):
        _, outcomes = self.train(2, {
            "smoothing": .7, "smoothing_per": "baseline_batch"})
        samples = self.samples(("b", "w"), 2)
        weights = (.7 ** 2) ** np.arange(ROUNDS)[::-1]
        for version, outcome in enumerate(outcomes):
            kept = weights[ROUNDS - 1 - version:]
            average = kept @ samples[:version + 1] / kept.sum()
            self.assertAlmostEqual(outcome.gain, gain(average, 2), places=6)

    def test_each_group_is_stepped_by_its_own_gain(self):
        versions, outcomes = self.train(
            4, {"gain_scope": "per_group", "averaging": "paper"})
        samples = {name: self.samples((name,), 4) for name in ("w", "b")}
        for version, outcome in enumerate(outcomes):
            averages = {name: found[:version + 1].mean(axis=0)
                        for name, found in samples.items()}
            self.assertAlmostEqual(
                outcome.gain, gain(averages["w"] + averages["b"], 4), places=5)
            self.assertGreater(gain(averages["w"], 4),
                               gain(averages["b"], 4) + .5)
            for name, average in averages.items():
                mean = np.mean([gradients(version, rank)[name]
                                for rank in range(4)], axis=0)
                np.testing.assert_allclose(
                    versions[version][name] - versions[version + 1][name],
                    .125 * gain(average, 4) * mean, rtol=1e-4, atol=1e-6)

    def test_moments_begin_anew_with_another_number_of_workers(self):
        server = self.serve(
            shards=2, workers=1, lr=.5,
            config={"max_workers": 2, "optimizer": {"kind": "adam"},
                    "step_scale": {"reset_moments": "on_scale_change"}})
        gradient = {"w": np.ones(3, np.float32)}
        opposite = {"w": -4 * np.ones(3, np.float32)}
        x = {"w": np.zeros(3, np.float32)}
        deadline = time.monotonic() + WAIT

        def alone():
            """Steps until a round has both rows; it, and what it changed."""
            with agg.Client(x, server.address, 0) as client:
                client.step(gradient)
                trained.set()
                while time.monotonic() < deadline:
                    before = x["w"].copy()
                    outcome = client.step(gradient)
                    if outcome.ranks == (0, 1):
                        return outcome, x["w"] - before
            return self.fail("rank 1 was in no round")

        def joins_later():
            self.assertTrue(trained.wait(WAIT))
            with agg.Client({"w": np.zeros(3, np.float32)}, server.address,
                            1) as client:
                client.step(opposite)

        trained = threading.Event()
        outcome, change = self.team(
            2, lambda rank: (alone, joins_later)[rank]())[0]
        self.assertIn("the optimizer's moments began anew: 2 baseline batches "
                      "after 1", outcome.message)
        # The first step of an Adam that is new is its rate, against the mean of
        # 1 and -4. One whose moments know the ones goes on as before.
        np.testing.assert_allclose(change, .5, rtol=1e-2)


if __name__ == "__main__":
    unittest.main()
