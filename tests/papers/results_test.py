"""Of results.py, cells.py and tuning.py: with runs that no server makes."""

import json
import math
import pathlib
import tempfile
import unittest

from tests.papers import cells, fake_job, results, script, tuning
from tests.papers.description import Run


def a_run(seed=0, rate=0.1, **fields):
    return Run(task="fashion_mlp", ranks=2, seed=seed, batch=1, rounds=4,
               learning_rate={"rate": rate}, **fields)


class BookTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "made" / "book.json"

    def book(self, **options):
        book = results.Book(self.path, call=fake_job.run_job, **options)
        self.addCleanup(book.close)
        return book

    def test_a_stopped_book_goes_on(self):
        with self.book(jobs=2) as book:
            first = book.results([a_run(0), a_run(1)])
        with self.book(jobs=0) as book:  # runs nothing
            self.assertEqual(first, book.results([a_run(0), a_run(1)]))
            with self.assertRaisesRegex(results.MissingError, "1 of 2 runs"):
                book.results([a_run(1), a_run(2)])
        # Where parameters lie is no other experiment.
        with self.book(jobs=0) as book:
            book.results([a_run(0, shards=2)])

    def test_the_file_says_what_it_is_of(self):
        with self.book(jobs=1, quick=True) as book:
            book.results([a_run()])
        stored = json.loads(self.path.read_text("utf-8"))
        self.assertTrue(stored["quick"])
        self.assertEqual({"python", "torch", "numpy", "agg_server", "cpu",
                          "date"}, set(stored["versions"]))
        self.assertEqual("fashion_mlp", stored["runs"][0]["run"]["task"])
        self.assertEqual(4, stored["runs"][0]["result"]["rounds"])

    def test_fresh_forgets(self):
        with self.book(jobs=1) as book:
            book.results([a_run()])
        with self.book(jobs=0, fresh=True) as book:
            self.assertRaises(results.MissingError, book.results, [a_run()])

    def test_prune_forgets_what_was_not_asked_for(self):
        with self.book(jobs=1) as book:
            book.results([a_run(0), a_run(1)])
        with self.book(jobs=0) as book:
            book.results([a_run(1)])
            self.assertEqual(1, book.prune())
            self.assertEqual([1], [run["seed"] for run, _ in book.asked])
        with self.book(jobs=0) as book:
            self.assertRaises(results.MissingError, book.results, [a_run(0)])

    def test_a_job_that_breaks_says_why_and_keeps_the_others(self):
        with self.book(jobs=1) as book:
            book.results([a_run(0)])
            with self.assertRaisesRegex(results.RunFailedError,
                                        "shard 0 said last: out of luck"):
                book.results([a_run(666)])
            book.results([a_run(0)])

    def test_a_file_of_something_else_is_refused(self):
        self.path.parent.mkdir()
        self.path.write_text('{"runs": 1}', "utf-8")
        with self.assertRaisesRegex(ValueError, "no file of results"):
            self.book()

    def test_json_has_no_numbers_that_json_has_not(self):
        self.assertEqual({"a": [None, 0.123457, 3, None, True]}, results.plain(
            {"a": (math.nan, 0.123456789, 3, math.inf, True)}))


class TuningTest(unittest.TestCase):

    def best(self, scores, higher=True):
        """Of a grid with these scores by rate; a text is a failure."""

        class Said:
            @staticmethod
            def results(runs):
                values = [scores[run.learning_rate["rate"]] for run in runs]
                return [{"failed": value, "score": 0.1}
                        if isinstance(value, str) else
                        {"failed": "", "score": value} for value in values]

        return tuning.best_rate(
            Said, lambda rate, seed: a_run(seed, rate, evaluate="validation"),
            sorted(scores), (0, 1), higher)

    def test_the_best_of_the_grid(self):
        best = self.best({.1: .5, .2: .7, .4: .6})
        self.assertEqual((.2, False), (best.rate, best.edge))
        best = self.best({.1: .5, .2: .7, .4: .6}, higher=False)
        self.assertEqual((.1, True), (best.rate, best.edge))
        self.assertEqual(.1, self.best({.1: .5, .2: .5, .4: .4}).rate)

    def test_the_worst_seed_counts(self):
        scores = {(.1, 0): .9, (.1, 1): .4, (.2, 0): .6, (.2, 1): .5}

        class Said:
            @staticmethod
            def results(runs):
                return [{"failed": "", "score": scores[
                    run.learning_rate["rate"], run.seed]} for run in runs]

        def make(rate, seed):
            return a_run(seed, rate, evaluate="validation")

        self.assertEqual(.2, tuning.best_rate(Said, make, [.1, .2],
                                              (0, 1)).rate)
        scores[.1, 0] = .55
        self.assertEqual(.1, tuning.best_rate(Said, make, [.1, .2], (0, 1),
                                              higher=False).rate)

    def test_a_rate_that_fails_is_not_the_best(self):
        best = self.best({.1: .5, .2: .7, .4: "guesses"})
        self.assertEqual((.2, False), (best.rate, best.edge))
        self.assertTrue(math.isnan(best.scores[.4]))
        best = self.best({.1: "guesses", .2: "not finite"})
        self.assertEqual((.1, True), (best.rate, best.edge))

    def test_tests_choose_no_rates(self):
        with self.assertRaisesRegex(ValueError, 'scored by "test"'):
            tuning.best_rate(None, lambda rate, seed: a_run(seed, rate), [.1])
        with self.assertRaisesRegex(ValueError, "0 rates"):
            tuning.best_rate(None, lambda rate, seed: a_run(seed, rate), [])


class CellsTest(unittest.TestCase):

    @staticmethod
    def cell(*values, failed="", **fields):
        return cells.cell([{"score": value, "failed": failed, "rounds": 7}
                           for value in values], **fields)

    def test_text(self):
        self.assertEqual(".8000 ± .0100",
                         self.cell(.79, .8, .81).text())
        self.assertEqual(".800 (at 0.02, edge)",
                         self.cell(.8, rate=.02, edge=True).text(3))
        self.assertEqual("diverges", self.cell(None, .1,
                                               failed="not finite").text())
        self.assertEqual(".1000 ± .0000 (2 of 2 guesses)",
                         self.cell(.1, .1, failed="guesses").text())
        self.assertEqual("1.500", self.cell(1.5).text(3))

    def test_cells_with_the_same_seeds_are_compared_seed_by_seed(self):
        low, high = self.cell(.79, .8, .81), self.cell(.82, .83, .85)
        made = cells.compare(high, low)
        # Differences .03, .03, .04; 4.3027 is of the table, for 2 df and 95%.
        self.assertAlmostEqual(.1 / 3, made.apart)
        self.assertAlmostEqual(4.3027 * .01 / 3, made.half, places=5)
        self.assertEqual((True, 2), (made.paired, made.freedom))
        self.assertEqual("better", made.verdict)
        self.assertEqual("worse", cells.compare(low, high).verdict)
        self.assertEqual("better: +.0333 ± .0143, paired, 2 df, p .010",
                         made.text())

    def test_others_are_compared_by_welch(self):
        low, high = self.cell(.79, .8, .81), self.cell(.82, .84)
        made = cells.compare(high, low)
        # Of the two means .0001/3 and .0001; (4e-4/3)^2 / (1e-8/18 + 1e-8).
        self.assertAlmostEqual(1.684, made.freedom, places=3)
        self.assertFalse(made.paired)
        self.assertEqual("undecided", made.verdict)
        self.assertIn("Welch, 1.68 df", made.text())

    def test_what_is_inside_the_margin_is_equal(self):
        one, other = self.cell(.801, .802, .803), self.cell(.8, .801, .802)
        self.assertEqual("equal", cells.compare(one, other).verdict)
        self.assertEqual("better", cells.compare(one, other, .0005).verdict)
        self.assertFalse(cells.compare(one, other).better())
        self.assertTrue(cells.compare(other, one).not_worse())

    def test_what_may_be_either_is_undecided(self):
        made = cells.compare(self.cell(.7, .8, .9), self.cell(.79, .8, .78))
        self.assertEqual("undecided", made.verdict)
        self.assertIsNone(made.better())
        self.assertIsNone(made.not_worse())

    def test_not_worse_needs_one_side_of_the_interval_alone(self):
        made = cells.compare(self.cell(.80, .81, .83), self.cell(.8, .8, .8))
        self.assertEqual("undecided", made.verdict)
        self.assertIsNone(made.not_worse())
        made = cells.compare(self.cell(.804, .809, .808),
                             self.cell(.8, .8, .8))
        self.assertEqual("better", made.verdict)
        self.assertTrue(made.not_worse())

    def test_a_loss_is_better_if_less(self):
        low = self.cell(1.0, 1.1, 1.2, wanted=False)
        high = self.cell(2.0, 2.1, 2.2, wanted=False)
        self.assertEqual("better", cells.compare(low, high).verdict)

    def test_one_seed_decides_nothing(self):
        made = cells.compare(self.cell(.99), self.cell(.79, .8, .81))
        self.assertEqual("undecided: no interval", made.text())
        self.assertIsNone(made.not_worse())

    def test_what_fails_is_worse(self):
        fine = self.cell(.3, .3, .3)
        bad = self.cell(None, None, None, failed="not finite")
        self.assertEqual("better: one of them fails",
                         cells.compare(fine, bad).text())
        self.assertEqual("worse", cells.compare(bad, fine).verdict)
        self.assertFalse(cells.compare(bad, fine).not_worse())
        self.assertEqual("undecided", cells.compare(bad, bad).verdict)


class EachTest(unittest.TestCase):
    def test_of_several_settings(self):
        for found, verdict in (
                ([True, True], script.HOLDS), ([False, False], script.DOES_NOT),
                ([True, False], script.IN_PART), ([True, None], script.IN_PART),
                ([False, None], script.UNDECIDED), ([None], script.UNDECIDED),
                ([], script.NOT_TRIED)):
            with self.subTest(found):
                self.assertEqual(verdict, script.each(found))

if __name__ == "__main__":
    unittest.main()
