"""adascale: the shape of its runs, and its verdicts on made-up cells."""

import unittest

from tests.papers import (adascale, adascale_claims, adascale_runs, elastic,
                          fake_job)
from tests.papers.cells import Cell
from tests.papers.description import Run, RunError
from tests.papers.results import Book
from tests.papers.script import DOES_NOT, HOLDS, IN_PART, VERDICTS


def _cell(score: float, failed: str = "") -> Cell:
    return Cell(values=(score, score + .001, score - .001),
                failed=(failed,) * 3, rounds=(10,) * 3, gain=(2.,) * 3)


class RunsTest(unittest.TestCase):
    def test_a_run_of_its_own_for_each_cell_and_seed(self):
        for quick in (True, False):
            runs = [run for seeds in adascale_runs.first(quick).values()
                    for run in seeds]
            self.assertEqual(len({run.key() for run in runs}), len(runs))

    def test_three_seeds_but_for_the_longest_control(self):
        runs = adascale_runs.first(False)
        self.assertEqual({name: len(seeds) for name, seeds in runs.items()
                          if len(seeds) != 3}, {"mlp/identity/16": 1})
        self.assertNotIn("mlp/identity/64", runs)

    def test_adascale_has_one_workers_schedule_and_end(self):
        runs = adascale_runs.first(False)
        one = runs["mlp/one/1"][0]
        self.assertEqual(one.rounds, 13750)
        for ranks in (4, 16, 64):
            run = runs[f"mlp/adascale/{ranks}"][0]
            self.assertEqual(run.learning_rate, one.learning_rate)
            self.assertEqual(run.scale_invariant_iterations, 13750)

    def test_lsw_goes_from_one_workers_rate_to_all_of_theirs(self):
        run = adascale_runs.first(False)["cnn/lsw/64"][2]
        self.assertEqual((run.rounds, run.step_scale), (215, "linear"))
        rate = run.learning_rate
        self.assertEqual(rate["rate"], .01)
        self.assertAlmostEqual(64 * rate["warmup_start_factor"], 1)
        self.assertAlmostEqual(rate["warmup_steps"], .055 * 215)
        self.assertEqual(rate["boundaries"], [.5 * 215, .8 * 215])

    def test_lsw_plus_has_adascales_rounds(self):
        iterations = {f"{model}/{ranks}": 100 + ranks for model in
                      ("mlp", "cnn") for ranks in (4, 16, 64)}
        later = adascale_runs.later(False, iterations)
        self.assertEqual(later["mlp/lsw+/16"][1].rounds, 116)
        self.assertEqual(later["mlp/lsw+/16"][1].learning_rate["boundaries"],
                         [58, .8 * 116])


    def test_an_elastic_job_sees_one_workers_iterations(self):
        runs = elastic.runs(False)
        self.assertEqual({5}, {len(seeds) for seeds in runs.values()})
        up = runs["cnn/lsw/up"][0]
        # 13750 / 4 of 4 workers, as many of 16, half of 64.
        self.assertEqual(859 + 215 + 107, up.rounds)
        sizes = [up.ranks_at(done / up.rounds) for done in range(up.rounds)]
        self.assertEqual([859, 215, 107],
                         [sizes.count(ranks) for ranks in (4, 16, 64)])
        self.assertAlmostEqual(
            1, sum(sizes) / 13750, delta=.01)
        half, later = up.learning_rate["boundaries"]
        self.assertAlmostEqual(859 + 215, half)
        self.assertAlmostEqual(859 + 215 + .6 * 107, later)
        down = runs["cnn/adascale/down"][4]
        self.assertEqual([64, 16, 16, 4], [down.ranks_at(part) for part in
                                           (0, .25, .49, .5)])
        self.assertEqual(64, down.most_ranks)

    def test_later_ranks_are_checked(self):
        for fields, said in (({"later_ranks": ((.5, 4), (.2, 8))}, "rising"),
                             ({"later_ranks": ((.5, 0),)}, "1 rank or more"),
                             ({"later_ranks": ((.5, 4),), "push": "delta"},
                              "no random labels")):
            with self.subTest(said), self.assertRaisesRegex(RunError, said):
                Run(task="fashion_mlp", ranks=2, seed=0, batch=1, rounds=9,
                    learning_rate={"rate": .1}, **fields)


class TablesTest(unittest.TestCase):
    def test_tables_and_verdicts_of_both_sets(self):
        for quick in (True, False):
            with Book(None, 1, call=fake_job.run_job) as book:
                cells = adascale.cells(book, quick)
                series = adascale.series(book, quick)
            tables = adascale.tables(cells, series)
            self.assertEqual(len(tables), 3)
            for table in tables:
                for row in table.rows:
                    self.assertEqual(len(row), len(table.header))
            for claim in adascale.CLAIMS:
                word, why = claim.verdict(cells, series)
                self.assertIn(word, VERDICTS)
                self.assertTrue(why or claim.needed)


class VerdictsTest(unittest.TestCase):
    def setUp(self):
        self.cells = {}
        for model in ("mlp", "cnn"):
            self.cells[f"{model}/one/1"] = _cell(.88)
            for ranks in (16, 64):
                self.cells[f"{model}/adascale/{ranks}"] = _cell(.881)
                self.cells[f"{model}/lsw/{ranks}"] = _cell(.86)

    def test_holds(self):
        self.assertEqual(
            adascale_claims.keeps_quality(self.cells, {})[0], HOLDS)
        self.assertEqual(adascale_claims.lsw_falls(self.cells, {})[0], HOLDS)

    def test_in_part_where_one_cell_falls(self):
        self.cells["cnn/adascale/64"] = _cell(.87)
        self.assertEqual(
            adascale_claims.keeps_quality(self.cells, {})[0], IN_PART)

    def test_does_not_hold_where_lsw_is_as_good(self):
        for name in self.cells:
            if "/lsw/" in name:
                self.cells[name] = _cell(.881)
        self.assertEqual(
            adascale_claims.lsw_falls(self.cells, {})[0], DOES_NOT)

    def test_lsw_that_diverges_falls(self):
        for name in self.cells:
            if "/lsw/" in name:
                self.cells[name] = Cell(values=(None,) * 3,
                                        failed=("not finite",) * 3)
        self.assertEqual(adascale_claims.lsw_falls(self.cells, {})[0], HOLDS)

    def test_gain_has_to_rise_before_the_decay_too(self):
        rising = {"mlp/gain/16": [1.] + [5.] * 9 + [8.] * 6 + [9.] * 4}
        self.assertEqual(adascale_claims.gain_rises({}, rising)[0], HOLDS)
        flat = {"mlp/gain/16": [5.] * 20}
        self.assertEqual(adascale_claims.gain_rises({}, flat)[0], DOES_NOT)
        gap = {"mlp/gain/16": [None] * 20}
        self.assertEqual(adascale_claims.gain_rises({}, gap)[0], "not tried")


if __name__ == "__main__":
    unittest.main()
