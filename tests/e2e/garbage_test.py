"""One of eight workers pushes garbage: what the rules make of it.

garbage.py trains all combinations with all kinds.
"""

import math
import pathlib
import unittest
from unittest import mock

from tests.e2e import garbage

BIN = pathlib.Path.cwd()
MARGIN = 0.02  # below the clean run's accuracy


class AccuracyTest(unittest.TestCase):

    def accuracy(self, result):
        with mock.patch.object(garbage, "train", side_effect=[result]):
            return garbage.accuracy(BIN, "mean", "noise", seed=0)

    def test_a_job_that_diverged_has_none(self):
        self.assertTrue(math.isnan(self.accuracy(garbage.job.RunError(
            "worker_0 (process 7) ended with 1; the end of its log:\n  it "
            "failed: 100 rounds in a row were skipped (max_skipped_rounds); "
            "the last one: no row is finite"))))
        self.assertTrue(math.isnan(self.accuracy({"test_accuracy": None})))
        self.assertEqual(self.accuracy({"test_accuracy": 0.5}), 0.5)

    def test_a_job_that_did_not_run_is_no_result(self):
        with self.assertRaises(garbage.job.RunError):
            self.accuracy(garbage.job.RunError(
                "shard_1 (process 7) ended with 1; the end of its log:\n  "
                "max_skipped_rounds is -1; allowed: 0 or more"))


class GarbageTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.clean = garbage.accuracy(BIN, "mean", "", seed=0)

    def accuracy(self, combination, kind):
        return garbage.accuracy(BIN, combination, kind, seed=0)

    def test_the_clean_run_learns(self):
        self.assertGreater(self.clean, 0.85)

    def test_the_mean_is_lost(self):
        self.assertFalse(self.accuracy("mean", "noise") > self.clean - 0.1)
        self.assertFalse(self.accuracy("mean", "flip") > self.clean - 0.1)

    def test_robust_rules_reach_the_clean_accuracy(self):
        for combination in ("krum", "multi_krum", "geometric_median",
                            "mean, outliers excluded"):
            for kind in garbage.GARBAGE.values():
                with self.subTest(combination=combination, kind=kind):
                    self.assertGreaterEqual(self.accuracy(combination, kind),
                                            self.clean - MARGIN)


if __name__ == "__main__":
    unittest.main()
