"""adasum: the shape of its runs, and its verdicts on made-up numbers."""

import unittest

from tests.papers import adasum, adasum_claims, adasum_runs, fake_job
from tests.papers.cells import Cell
from tests.papers.results import Book
from tests.papers.script import DOES_NOT, HOLDS, IN_PART, NOT_TRIED, VERDICTS

_BEST = {"sgd": .04, "adam": .008}


def _cell(score: float, failed: str = "") -> Cell:
    return Cell(values=(score, score + .001, score - .001),
                failed=(failed,) * 3)


def _best(quick: bool) -> dict[str, float]:
    return {name: _BEST[name.split("/")[0]]
            for name in adasum_runs.grids(quick)}


class RunsTest(unittest.TestCase):
    def test_ten_seeds_of_every_rule_size_and_rate(self):
        runs = adasum_runs.tables(False, _best(False))
        for ranks in (16, 32, 64):
            for rule in ("mean", "adasum", "adasum_delta"):
                for which in ("one", "tuned"):
                    self.assertEqual(
                        len(runs[f"sgd/{rule}/{ranks}/{which}"]), 10)
            self.assertEqual(len(runs[f"sgd/sum/{ranks}/one"]), 10)

    def test_no_rule_has_a_larger_budget_than_another(self):
        for name, grid in adasum_runs.grids(False).items():
            if "/single/" not in name:
                self.assertEqual((4, 2), (len(grid.rates), len(grid.seeds)),
                                 name)

    def test_two_passes_over_the_examples(self):
        runs = adasum_runs.tables(False, _best(False))
        for name, seeds in runs.items():
            run = seeds[0]
            self.assertAlmostEqual(
                run.rounds * run.ranks * run.batch / 110000, 1, delta=.01,
                msg=name)

    def test_the_server_has_the_optimizer_but_for_deltas(self):
        runs = adasum_runs.tables(False, _best(False))
        self.assertEqual(runs["sgd/adasum/16/one"][0].push, "gradient")
        self.assertEqual(runs["adam/sum_delta/16/one"][0].push, "delta")
        self.assertEqual(runs["adam/sum_delta/16/one"][0].rule, "sum")

    def test_rates_are_tuned_on_validation_examples_alone(self):
        for quick in (True, False):
            for name, grid in adasum_runs.grids(quick).items():
                self.assertEqual(sorted(grid.rates), list(grid.rates), name)
                run = grid.make_run(grid.rates[0], 0)
                self.assertEqual(run.evaluate, "validation")
                self.assertEqual(run.learning_rate["rate"], grid.rates[0])
                self.assertEqual(f"{run.ranks}", name.split("/")[2])

    def test_the_first_round_has_a_rate(self):
        rate = adasum_runs.tables(False, _best(False))[
            "sgd/mean/64/one"][0].learning_rate
        self.assertEqual(rate["warmup_start_factor"], 1 / 5)
        self.assertEqual(rate["warmup_steps"] + rate["decay_steps"], 54)

    def test_to_target_has_a_constant_rate_and_ten_scores_a_pass(self):
        for name, seeds in adasum_runs.to_target(False).items():
            run = seeds[0]
            self.assertEqual(run.learning_rate["schedule"], "constant")
            self.assertEqual(run.stop_at, .87)
            scores = 55000 / (run.ranks * run.batch * run.evaluate_every)
            self.assertAlmostEqual(scores, 10, delta=1.1, msg=name)


class TablesTest(unittest.TestCase):
    def test_tables_and_verdicts_of_both_sets(self):
        for quick in (True, False):
            with Book(None, 1, call=fake_job.run_job) as book:
                cells = adasum.cells(book, quick)
                series = adasum.series(book, quick)
            for table in adasum.tables(cells, series):
                for row in table.rows:
                    self.assertEqual(len(row), len(table.header))
            for claim in adasum.CLAIMS:
                word, why = claim.verdict(cells, series)
                self.assertIn(word, VERDICTS)
                self.assertTrue(why or claim.needed or word == NOT_TRIED)

    def test_passes(self):
        results = [{"reached": 430, "rounds": 430, "curve": [[430, .87]]},
                   {"reached": None, "rounds": 859, "curve": [[859, .86]]}]
        found = adasum._passes(results, 16)
        self.assertAlmostEqual(found.values[0], 4, delta=.01)
        self.assertIsNone(found.values[1])
        cells = {"it": found, "best/it": adasum._best(results)}
        self.assertEqual(adasum._passes_text(cells, "it"),
                         "4.0, never (best .870)")


class VerdictsTest(unittest.TestCase):
    def setUp(self):
        self.cells = {"sgd/single/1": _cell(.87), "adam/single/1": _cell(.87)}
        for opt, sizes in (("sgd", (16, 32)), ("adam", (16,))):
            for ranks in sizes:
                for rule, score in (("mean", .83), ("adasum", .86),
                                    ("adasum_delta", .86)):
                    for which in ("one", "tuned"):
                        self.cells[f"{opt}/{rule}/{ranks}/{which}"] = _cell(
                            score)

    def test_holds_in_part_where_one_size_does_not(self):
        judge = adasum_claims.beats_tuned_mean
        self.assertEqual(judge(self.cells, {})[0], HOLDS)
        self.cells["sgd/mean/32/tuned"] = _cell(.87)
        self.assertEqual(judge(self.cells, {})[0], IN_PART)

    def test_one_workers_score_is_not_reached(self):
        self.assertEqual(adasum_claims.reaches_one(self.cells, {})[0],
                         DOES_NOT)

    def test_a_better_rate_refutes_no_tuning(self):
        judge = adasum_claims.needs_no_tuning
        self.assertEqual(judge(self.cells, {})[0], HOLDS)
        self.cells["sgd/adasum/16/tuned"] = _cell(.88)
        self.assertEqual(judge(self.cells, {})[0], IN_PART)

    def test_a_sum_that_guesses_diverges(self):
        self.cells["sgd/sum/16/one"] = _cell(.1, "guesses")
        self.cells["sgd/sum/32/one"] = Cell(values=(None,) * 3,
                                            failed=("not finite",) * 3)
        self.cells["adam/sum_delta/16/one"] = _cell(.1, "guesses")
        judge = adasum_claims.sum_diverges
        self.assertEqual(judge(self.cells, {})[0], HOLDS)
        self.cells["adam/sum_delta/16/one"] = _cell(.86)
        self.assertEqual(judge(self.cells, {})[0], IN_PART)
        self.cells["adam/sum_delta/16/one"] = _cell(.1, "guesses")
        self.cells["sgd/sum/16/one"] = _cell(.8)
        self.assertEqual(judge(self.cells, {})[0], IN_PART)

    def test_the_target_is_reached_where_the_mean_never_does(self):
        never = Cell(values=(None,) * 3, wanted=False)
        cells = {}
        for opt in ("sgd", "adam"):
            cells.update({f"epochs/{opt}/single/1": _cell(4),
                          f"epochs/{opt}/mean/16": never,
                          f"epochs/{opt}/adasum_delta/16": _cell(5)})
        judge = adasum_claims.reaches_target
        self.assertEqual(judge(cells, {})[0], HOLDS)
        cells["epochs/sgd/adasum_delta/16"] = never
        self.assertEqual(judge(cells, {})[0], IN_PART)

    def test_a_drop_at_each_decay(self):
        drop = [.1] + [.8] * 9 + [.3] + [.9] * 5 + [.5] + [.9] * 3
        rise = [.1] + [.5] * 9 + [.6] * 6 + [.9] * 4
        series = {"decays": [.5, .8], "orthogonality/cnn/delta/64": drop,
                  "orthogonality/cnn/delta/64/conv1/bias": rise}
        judge = adasum_claims.drops_at_decay
        self.assertEqual(judge({}, series)[0], HOLDS)
        series["orthogonality/cnn/gradient/64"] = rise
        self.assertEqual(judge({}, series)[0], IN_PART)
        self.assertEqual(
            adasum_claims.becomes_orthogonal({}, series)[0], HOLDS)
        series["constant/cnn/gradient/64"] = [.1] + [.5] * 19
        self.assertEqual(
            adasum_claims.becomes_orthogonal({}, series)[0], IN_PART)
        self.assertEqual(adasum_claims.each_layer_rises({}, series)[0], HOLDS)


if __name__ == "__main__":
    unittest.main()
