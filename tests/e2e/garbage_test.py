"""One of eight workers pushes garbage: what the rules make of it.

garbage.py trains all combinations with all kinds.
"""

import pathlib
import unittest

from tests.e2e import garbage

BIN = pathlib.Path.cwd()
MARGIN = 0.02  # below the clean run's accuracy


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
            for kind in ("noise", "flip"):
                with self.subTest(combination=combination, kind=kind):
                    self.assertGreaterEqual(self.accuracy(combination, kind),
                                            self.clean - MARGIN)

    def test_garbage_of_the_usual_length_does_no_harm(self):
        for combination in ("krum", "multi_krum", "geometric_median"):
            with self.subTest(combination=combination):
                self.assertGreaterEqual(self.accuracy(combination, "matched"),
                                        self.clean - MARGIN)


if __name__ == "__main__":
    unittest.main()
