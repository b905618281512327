"""agg.compare and agg.advise, of logs whose truth is known."""

import contextlib
import io
import math
import sys
import unittest
from unittest import mock

import numpy as np

from tests.python.job_case import JobCase, agg
from tests.python.log_records import RUN, of_gram
from tests.python.offline_case import adasum, find_program
from agg_server import advice, comparison, programs

find_program()
TRUE = np.zeros(200)
TRUE[0] = 1.0


def gradients(rounds, noise, seed=1):
    """Rows of workers with this much noise each around one gradient."""
    noises = np.random.default_rng(seed).standard_normal(
        (rounds, len(noise), len(TRUE))) / math.sqrt(len(TRUE))
    return TRUE + noises * np.asarray(noise)[:, None]


class LogCase(JobCase):

    def log(self, rounds, more=lambda rows: "", rule="mean", examples=None):
        """A log of the rounds' rows; `more` adds fields of a record."""
        records = []
        for i, rows in enumerate(rounds):
            fields = f'rule: "{rule}" scope: "global" {more(rows)} '
            gram = (rows @ rows.T).tolist()
            records.append(of_gram(i + 1, gram,
                                   fields + (RUN if i == 0 else ""),
                                   None if examples is None else examples[i]))
        path = self.temporary_folder() / "rounds.binlog"
        path.write_bytes(b"".join(records))
        return agg.RoundLog(path)


class CompareTest(LogCase):

    def test_it_orders_rules_as_the_true_gradient_does(self):
        """One worker of five is very noisy: a mean follows it, unit_mean does
        not. The log has the Gram matrices alone."""
        rows = gradients(30, (1, 1, 1, 1, 8))
        scores = agg.compare(self.log(rows), ["mean", "unit_mean", "sum"])
        self.assertEqual([(each.rule, each.verdict) for each in scores][:2],
                         [("mean", "first"), ("unit_mean", "better")])
        self.assertAlmostEqual(scores[0].progress, 1.0)
        # Another length is no other direction.
        self.assertEqual(scores[2].verdict, "undecided")
        self.assertAlmostEqual(scores[2].difference.mean, 0)

        def cosines(weigh):
            """Of the combinations of four rows and the true gradient."""
            found = []
            for each in rows:
                for held_out in range(5):
                    others = np.delete(each, held_out, axis=0)
                    u = (others / weigh(others)[:, None]).sum(axis=0)
                    found.append(u[0] / np.linalg.norm(u))
            return np.mean(found)

        truth = cosines(lambda a: np.linalg.norm(a, axis=1)) / cosines(
            lambda a: np.ones(len(a)))
        # 150 products of a row with noise of its own length: about .04.
        self.assertAlmostEqual(scores[1].progress / truth, 1, delta=0.1)
        self.assertGreater(scores[1].difference.low, 0.3)

    def test_each_tensor_by_itself(self):
        """Against Adasum on the vectors, tensor by tensor and of the whole."""
        rows = gradients(6, (1, 2, 1, 2, 1))
        parts = (slice(0, 50), slice(50, None))

        def grams(each):
            packed = [each[:, part] @ each[:, part].T for part in parts]
            return " ".join(f"tensor_grams: {float(gram[i, j])!r}"
                            for gram in packed for i in range(5)
                            for j in range(i, 5))

        log = self.log(rows, grams)
        found = agg.compare(log, ["adasum/global", "adasum/per_tensor"])

        def progress(combine):
            values = []
            for each in rows:
                for held_out in range(5):
                    u = combine(np.delete(each, held_out, axis=0))
                    values.append(u @ each[held_out] / np.linalg.norm(u))
            return np.mean(values)

        ratio = progress(lambda others: np.concatenate(
            [adasum(others[:, part]) for part in parts])) / progress(adasum)
        self.assertNotAlmostEqual(ratio, 1, 6)
        self.assertAlmostEqual(found[1].progress, ratio, 10)

    def test_a_rule_of_ones_own(self):
        log = self.log(gradients(20, (1, 1, 1, 1, 8)))

        def by_length(gram, _):
            return 1 / np.sqrt(np.diagonal(gram))

        theirs, own = agg.compare(log, ["unit_mean", by_length])
        self.assertEqual(own.rule, "by_length")
        # Another length of the sum, and the same direction.
        self.assertAlmostEqual(own.difference.mean, 0)
        self.assertAlmostEqual(own.progress, theirs.progress)
        for bad in (lambda gram, _: [1.0], lambda gram, _: gram[0] * np.nan):
            with self.assertRaisesRegex(agg.ManifestError, "finite weight"):
                agg.compare(log, [bad])

    def test_the_weighted_mean_weighs_by_each_rounds_examples(self):
        rows = gradients(12, (1, 2, 1, 3))
        examples = np.random.default_rng(2).integers(1, 90, rows.shape[:2])
        log = self.log(rows, examples=examples)
        found = agg.compare(log, ["mean", "weighted_mean"])

        def progress(weights):
            values = []
            for each, of_rows in zip(rows, weights):
                for held_out in range(4):
                    others = np.delete(np.arange(4), held_out)
                    u = of_rows[others] @ each[others]
                    values.append(u @ each[held_out] / np.linalg.norm(u))
            return np.mean(values)

        ratio = progress(examples) / progress(np.ones(rows.shape[:2]))
        self.assertGreater(abs(ratio - 1), 0.001)
        self.assertAlmostEqual(found[1].progress, ratio, 10)
        with self.assertRaisesRegex(agg.ManifestError,
                                    'options of "weighted_mean" are .*clip'):
            agg.compare(log, ["mean", ("weighted_mean", {"clip_norm": 1})])

    def test_rows_that_were_seen_do_not_judge(self):
        """Of nothing but noise no rule finds a gradient, though each is along
        the rows that it has combined."""
        rows = gradients(40, (1,) * 6) - TRUE
        score = agg.compare(self.log(rows), ["mean", "adacons"])[0]
        self.assertEqual(score.verdict, "first")
        found = [comparison._progress(
            [[each @ each.T] for each in rows], np.ones(rows.shape[:2]), j,
            comparison._weigher("mean", {})) for j in range(6)]
        self.assertLess(abs(np.mean(found)), 0.05)

    def test_intervals(self):
        values = np.repeat(np.arange(10.0), 7)
        found = comparison.interval_of(values)
        half = 2.262 * np.std(np.arange(10), ddof=1) / math.sqrt(10)
        np.testing.assert_allclose(found, (4.5, 4.5 - half, 4.5 + half))
        self.assertTrue(math.isnan(comparison.interval_of(np.ones(1)).low))
        self.assertTrue(math.isnan(comparison.interval_of(np.empty(0)).mean))

    def test_what_cannot_be_compared_is_named(self):
        log = self.log(gradients(3, (1, 1)))
        for rules, said in ((["mean"], "3 rounds of 2 workers"),
                            (["mean/tensor"], 'rule is "mean/tensor"')):
            with self.assertRaisesRegex(agg.ManifestError, said):
                agg.compare(log, rules)
        log = self.log(gradients(3, (1, 1, 1)))
        with self.assertRaisesRegex(agg.ManifestError, "grams"):
            agg.compare(log, ["mean", "adasum/per_tensor"])
        with self.assertRaisesRegex(agg.ManifestError, 'rule is "median"'):
            agg.compare(log, ["median"])


def estimates(noise):
    """A round's fields, as AdaScale estimates them for one worker."""

    def fields(rows):
        mean = rows.mean(axis=0)
        sigma2 = float(np.square(rows - mean).sum()) / (len(rows) - 1)
        mu2 = float(mean @ mean) - sigma2 / len(rows)
        return (f"sigma2: {sigma2!r} mu2: {mu2!r} sigma2_mean: {noise ** 2!r} "
                f"mu2_mean: 1 gradient_noise_scale: {4 * noise ** 2!r} "
                f"gain: 2.5 ")

    return fields


class AdviseTest(LogCase):

    def test_workers(self):
        noise = 3.0  # sigma^2 / mu^2 = 9: 9 workers are the critical batch
        log = self.log(gradients(100, (noise,) * 4), estimates(noise))
        found = agg.advise(log)
        self.assertEqual(found.warnings, [])
        low, high = found.critical_batch[1:]
        self.assertTrue(low < 36 < high < 60, found.critical_batch)
        self.assertEqual(found.batch, 16)
        self.assertEqual(list(found.gain), [1, 2, 4, 8, 16])
        self.assertAlmostEqual(found.gain[1], 1)
        self.assertAlmostEqual(found.gain[4] / (10 / (9 / 4 + 1)), 1, delta=.1)
        self.assertIn("still pay", str(found))
        # More than the critical batch.
        log = self.log(gradients(60, (0.5,) * 8), estimates(0.5))
        self.assertIn("fewer workers", str(agg.advise(log)))

    def test_nothing_but_noise(self):
        log = self.log(gradients(40, (1, 1)),
                       lambda rows: "sigma2: 1 mu2: -0.01")
        self.assertIn("cannot be said", agg.advise(log).workers[0])

    def test_the_interval_has_the_truth_as_often_as_it_says(self):
        hits = 0
        for seed in range(200):
            rows = gradients(60, (2.0,) * 4, seed)
            means = rows.mean(axis=1)
            sigma2 = np.square(rows - means[:, None]).sum(axis=(1, 2)) / 3
            mu2 = np.square(means).sum(axis=1) - sigma2 / 4
            found = advice.noise_ratio(sigma2, mu2)
            hits += found.low < 4 < found.high
        # Binomial(200, .95): below 178 once in 5,000 times; the seeds stay.
        self.assertGreaterEqual(hits, 178)

    def warned(self, rounds, said, more=lambda rows: "", rule="mean"):
        found = agg.advise(self.log(rounds, more, rule))
        self.assertTrue(any(said in each for each in found.warnings),
                        found.warnings)
        self.assertIn("warning: ", str(found))

    def test_rows_that_are_equal(self):
        rows = gradients(5, (1, 1, 1))
        rows[:, 2] = rows[:, 0]
        self.warned(rows, "ranks 0, 2 push rows that are equal")
        self.warned(gradients(4, (0, 0)), "the gain is 1.0000",
                    lambda rows: "gain: 1")

    def test_rows_that_are_unequal(self):
        rows = gradients(5, (1, 1, 1, 1))
        rows[:, 1] *= 10
        self.warned(rows, "ranks 1 push rows more than 3 times as long")
        self.warned(gradients(3, (1, 1)), "rows have 4 to 9 examples",
                    lambda rows: "rows { rank: 7 examples: 9 norm: 1 }")

    def test_rows_that_are_left_out(self):
        self.warned(gradients(3, (1, 1)), "ranks 7 are left out",
                    lambda rows: "rows { rank: 7 examples: 4 excluded: true }")

    def test_shadow_rules(self):
        shadow = 'shadows { rule: "%s" scope: "global" norm: 1 cosine: 0.5 }'
        log = self.log(gradients(40, (1, 1, 1, 8)),
                       lambda rows: shadow % "unit_mean")
        found = agg.advise(log)
        self.assertIn("unit_mean/global would be better than mean/global",
                      found.rules[0])
        self.assertEqual([each.verdict for each in found.scores],
                         ["first", "better"])
        # A second one with other options cannot be told from the first here.
        log = self.log(gradients(9, (1, 1, 1)),
                       lambda rows: 2 * (shadow % "sum"))
        found = agg.advise(log)
        self.assertEqual([each.rule for each in found.scores],
                         ["mean/global", "sum/global"])
        self.assertIn("sum/global#2 cannot be judged: its options are not in "
                      "the log", found.rules)
        # One that cannot be judged leaves the others.
        log = self.log(gradients(9, (1, 1, 1)),
                       lambda rows: shadow % "of_next_year" + shadow % "sum")
        found = agg.advise(log)
        self.assertIn("of_next_year/global cannot be judged", found.rules[0])
        self.assertIn("undecided", found.rules[1])
        self.assertEqual([each.rule for each in found.scores],
                         ["mean/global", "sum/global"])

    def test_the_command(self):
        log = self.log(gradients(20, (1, 1, 1)), estimates(1.0))
        with mock.patch.object(sys, "argv", ["aggctl", "advise", log.path]), \
                contextlib.redirect_stdout(io.StringIO()) as text, \
                self.assertRaises(SystemExit) as ended:
            programs.aggctl()
        self.assertEqual(ended.exception.code, 0)
        self.assertIn("workers: 3 workers make a round worth",
                      text.getvalue())
        with contextlib.redirect_stderr(io.StringIO()) as text:
            self.assertEqual(advice.main(["/no/such"]), 2)
        self.assertIn("cannot read /no/such", text.getvalue())


if __name__ == "__main__":
    unittest.main()
