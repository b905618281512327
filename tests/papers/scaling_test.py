"""The autoscaler's arithmetic, how runs are compared, and workers that join and
leave a real job by what they are asked for."""

import math
import os
import re
import time
import unittest
import urllib.request
from unittest import mock

import numpy as np

from tests.papers import digits, job, scaling

_PLAN = scaling.Plan(fixed=0, most=3, iterations=60, batch=16, rate=0.1,
                     smoothing=0.9, every=5, compute_seconds=0.0, seed=0)
# Of a machine that has other things to do.
_LONGEST = 120


class WantedTest(unittest.TestCase):

    def test_as_the_horizontal_pod_autoscaler(self):
        for useful, now, expected in (
                (4.0, 2, 4), (4.2, 2, 5), (2.19, 2, 2), (1.85, 2, 2),
                (2.21, 2, 3), (1.0, 8, 1), (20.0, 8, 8), (math.inf, 2, 8),
                (math.nan, 3, 3), (0.2, 1, 1)):
            with self.subTest(useful=useful, now=now):
                self.assertEqual(expected, scaling.wanted(useful, now, 8))


def summary(fixed, accuracies, rounds, worker_rounds):
    return scaling.Summary(fixed, tuple(
        scaling.Result(accuracy, rounds, worker_rounds, 1.0, (1.0,) * 5)
        for accuracy in accuracies))


class VerdictsTest(unittest.TestCase):

    def test_each_is_of_the_best_fixed_number(self):
        lines = scaling.verdicts([
            summary(1, (.90, .92), 400, 400), summary(2, (.90, .92), 280, 560),
            summary(4, (.90, .92), 220, 880), summary(0, (.90, .92), 250, 600)])
        self.assertEqual([
            "by worth is as accurate as one worker",
            "worker-rounds: 150% of the best fixed number, 1",
            "worker-rounds of those that take no more rounds: 68% of the best "
            "fixed number, 4",
            "worker-rounds and those of 2 shards: 98% of the best fixed "
            "number, 2"], lines)

    def test_who_is_less_accurate_does_not_count(self):
        lines = scaling.verdicts([
            summary(1, (.90, .91), 400, 400), summary(4, (.80, .81), 220, 880),
            summary(0, (.80, .81), 250, 600)])
        self.assertIn("NOT as accurate", lines[0])
        self.assertTrue(lines[2].endswith("no fixed number"), lines[2])

    def test_the_table_has_a_line_for_each(self):
        table = scaling.table([summary(1, (.90, .92), 400, 400),
                               summary(0, (.90, .92), 250, 600)])
        self.assertIn("| 1 | 0.9100 ± 0.0100 | 400 | 400 | 1200 | 1.0 |", table)
        self.assertIn("| by worth | 0.9100 ± 0.0100 | 250 | 600 | 1100 |", table)


class DigitsTest(unittest.TestCase):

    def test_gradients_are_the_slopes_of_the_loss(self):
        parameters = {name: array.astype(np.float64)
                      for name, array in digits.initial(1).items()}
        batches = np.arange(12).reshape(1, 12)
        rows, _ = digits.gradients(parameters, batches)
        for name, array in parameters.items():
            place = np.unravel_index(
                np.abs(rows[name][0]).argmax(), array.shape)
            kept = array[place]
            losses = []
            for step in (1e-4, -1e-4):
                array[place] = kept + step
                losses.append(digits.gradients(parameters, batches)[1])
            array[place] = kept
            slope = (losses[0] - losses[1]) / 2e-4
            self.assertAlmostEqual(1, rows[name][0][place] / slope, 2, name)


class JobTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        job.find_programs()
        if "AGG_SERVER" not in os.environ:
            raise unittest.SkipTest("AGG_SERVER is not set, and not built")

    def joined(self, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics",
                                    timeout=60) as page:
            text = page.read().decode()
        return int(re.search(r"(?m)^aggserver_workers_joined\S* (\d+)$",
                             text)[1])

    def test_workers_join_and_leave_as_they_are_asked_to(self):
        looks = []

        def useful(port):
            """3; once they are there no change for some rounds; then 1."""
            looks.append(port)
            if len(looks) == 2:
                deadline = time.monotonic() + _LONGEST
                while self.joined(port) < 3 and time.monotonic() < deadline:
                    time.sleep(0.01)  # polls
            return {1: 3.0, 3: 1.0}.get(len(looks), math.nan)

        training = scaling.Training(_PLAN)
        with mock.patch.object(scaling, "useful_workers", useful):
            result = training.run()
        rows = [rows for _, rows in training._rounds]
        self.assertEqual((1, 3, 1), (rows[0], max(rows), rows[-1]))
        self.assertEqual(len(rows), result.rounds)
        self.assertEqual(sum(rows), result.worker_rounds)
        self.assertLess(result.rounds, result.worker_rounds)

    def test_the_metric_is_followed(self):
        seen = []
        read = scaling.useful_workers

        def useful(port):
            seen.append(read(port))
            return seen[-1]

        with mock.patch.object(scaling, "useful_workers", useful):
            result = scaling.Training(_PLAN).run()
        self.assertTrue(seen)
        self.assertTrue(all(value >= 1 for value in seen), seen)
        self.assertGreaterEqual(result.worker_rounds, result.rounds)

    def test_a_fixed_number_stays(self):
        result = scaling.Training(scaling.dataclasses.replace(
            _PLAN, fixed=2)).run()
        self.assertEqual(2 * result.rounds, result.worker_rounds)


if __name__ == "__main__":
    unittest.main()
