"""Which runs the text's tables are made of, and how the claims are judged."""

import unittest

from tests.papers import (fake_job, findings, script, text, text_claims as claims,
                          text_runs as runs)
from tests.papers.cells import Cell
from tests.papers.results import Book


def _cell(loss):
    if loss is None:
        return Cell((None,) * 3, failed=("diverges",) * 3, wanted=False)
    return Cell((loss - .005, loss, loss + .005), failed=("",) * 3,
                wanted=False)


def _cells(**losses):
    """Adam's, LAMB's and word2vec's cells: Adasum well, but for `losses`."""
    found = {}
    for model, rule, size in (("transformer/adam", "adasum_delta", 16),
                              ("transformer/lamb", "adasum_delta", 16),
                              ("word2vec", "adasum", 32)):
        values = {"single": 1.5, "mean_one": 2.2, "mean_tuned": 1.9,
                  "adasum_one": 1.7, "adasum_tuned": 1.7, **losses}
        found[f"{model}/single/1"] = _cell(values["single"])
        for which in ("one", "tuned"):
            found[f"{model}/mean/{size}/{which}"] = _cell(
                values[f"mean_{which}"])
            found[f"{model}/{rule}/{size}/{which}"] = _cell(
                values[f"adasum_{which}"])
    found["word2vec/sum/32/one"] = _cell(None)
    return found


class RunsTest(unittest.TestCase):

    def test_as_many_examples_with_many_workers_as_with_one(self):
        for name in [*runs.grids(False), "word2vec/sum"]:
            model = name.rsplit("/", 1)[0]
            run = runs.make(name, .1, 0, False)
            one = runs.make(f"{model}/single", .1, 0, False)
            self.assertEqual(one.batch, run.batch)
            self.assertEqual(one.rounds, run.rounds * run.ranks, name)

    def test_deltas_are_of_optimizers_of_the_workers(self):
        for opt in runs.OPTIMIZERS:
            run = runs.make(f"transformer/{opt}/adasum_delta", .1, 0, False)
            self.assertEqual(("delta", "adasum", {"kind": opt}),
                             (run.push, run.rule, run.optimizer))

    def test_untuned_is_one_workers_best_rate(self):
        best = {name: .5 for name in runs.grids(False)}
        best["transformer/adam/single"] = .25
        made = runs.tables(False, best)
        for cell, rate in (("transformer/adam/mean/16/one", .25),
                           ("transformer/adam/mean/16/tuned", .5),
                           ("word2vec/sum/32/one", .5)):
            self.assertEqual(
                {rate}, {run.learning_rate["rate"] for run in made[cell]})

    def test_each_set_fills_its_tables(self):
        for quick in (True, False):
            with Book(None, 1, call=fake_job.run_job) as book:
                cells = text.cells(book, quick)
                tables = text.tables(cells, text.series(book, quick))
            for table in tables:
                for row in table.rows:
                    self.assertEqual(len(table.header), len(row))
            if not quick:
                expected = set(findings.load()["text"])
                # The sum's best is the mean's, at a 32nd of its rate.
                self.assertEqual({"word2vec/sum/32/tuned"},
                                 expected - set(cells))

    def test_worse_than_untrained_diverges(self):
        results = [{"score": score, "failed": "", "rounds": 1}
                   for score in (2.5, 40.0, None)]
        # A private name: no run of a test ends like that.
        cell = text._cell("word2vec/sum/32/one", results)
        self.assertEqual((2.5, None, None), cell.values)
        self.assertEqual(2, cell.failures)


class ClaimsTest(unittest.TestCase):

    def judge(self, cells):
        return {claim.judge: claim.verdict(cells, {})[0]
                for claim in claims.CLAIMS if claim.judge}

    def test_between_the_tuned_mean_and_one_worker(self):
        found = self.judge(_cells())
        for judge in (claims.adam_beats_tuned_mean, claims.needs_no_tuning,
                      claims.word2vec_beats_tuned_mean, claims.beats_untuned,
                      claims.sum_diverges):
            self.assertEqual(script.HOLDS, found[judge], judge.__name__)
        self.assertEqual(script.DOES_NOT, found[claims.reaches_one_worker])

    def test_a_sum_that_ends_well_does_not_diverge(self):
        cells = {**_cells(), "word2vec/sum/32/one": _cell(3.0)}
        self.assertEqual(script.DOES_NOT,
                         self.judge(cells)[claims.sum_diverges])

    def test_a_tie_with_the_tuned_mean_is_not_better(self):
        found = self.judge(_cells(mean_tuned=1.701))
        self.assertEqual(script.DOES_NOT, found[claims.lamb_beats_tuned_mean])

    def test_better_at_a_rate_of_its_own_is_a_part(self):
        found = self.judge(_cells(adasum_one=None))
        self.assertEqual(script.IN_PART, found[claims.adam_beats_tuned_mean])

    def test_a_better_rate_of_its_own_is_tuning(self):
        found = self.judge(_cells(adasum_tuned=1.6))
        self.assertEqual(script.DOES_NOT, found[claims.needs_no_tuning])

    def test_divergence_is_worse_than_any_number(self):
        found = self.judge(_cells(adasum_one=None, adasum_tuned=None))
        self.assertEqual(script.DOES_NOT, found[claims.adam_beats_tuned_mean])


if __name__ == "__main__":
    unittest.main()
