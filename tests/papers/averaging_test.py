"""averaging: the shape of its runs and tables, and its verdict."""

import unittest

from tests.papers import averaging, fake_job
from tests.papers.cells import Cell
from tests.papers.script import DOES_NOT, HOLDS


class RunsTest(unittest.TestCase):
    def test_they_differ_in_the_averages_alone(self):
        for quick in (True, False):
            runs = averaging.runs(quick)
            self.assertEqual(
                {name.split("/")[0] for name in runs},
                {"debiased", "paper", "lagged"})
            for name, seeds in runs.items():
                words, ranks = name.split("/")
                for run, default in zip(seeds, runs[f"debiased/{ranks}"]):
                    fields = run.as_dict()
                    self.assertEqual(fields.pop("averaging", "debiased"), words)
                    self.assertEqual(fields, default.as_dict())

    def test_the_default_is_the_run_of_adascale(self):
        run = averaging.runs(False)["debiased/16"][2]
        self.assertEqual(
            run.key(), averaging.adascale_runs.first(False)[
                "mlp/adascale/16"][2].key())


class TablesTest(unittest.TestCase):
    def test_a_row_for_each_convention(self):
        for quick in (True, False):
            book = fake_job.InstantBook(quick)
            cells = averaging.cells(book, quick)
            series = averaging.series(book, quick)
            accuracy, gains = averaging.tables(cells, series)
            sizes = len(averaging.sizes(quick))
            self.assertEqual(len(accuracy.rows), 3)
            self.assertEqual(len(gains.rows), 3 * sizes)
            for table in (accuracy, gains):
                for row in table.rows:
                    self.assertEqual(len(row), len(table.header))

    def test_a_span_without_a_round_is_empty(self):
        gains = averaging.tables(
            {f"{extra}{name}/4": Cell(values=(1.,), rounds=(3,))
             for name in averaging.AVERAGINGS
             for extra in ("", "rounds/", "gain/")},
            {"paper/4": [[None] * 20, [1.5] + [None] * 19]})[1]
        self.assertEqual(gains.rows[0], ["paper, 4", "1.5", "", "", "", ""])


class VerdictTest(unittest.TestCase):
    def cells(self, lagged):
        return {f"{name}/4": Cell(values=(score, score + .001, score - .001))
                for name, score in (("debiased", .88), ("paper", .88),
                                    ("lagged", lagged))}

    def test_it_matters_where_one_is_not_equal(self):
        self.assertEqual(
            averaging.does_not_matter(self.cells(.8801), {})[0], HOLDS)
        for lagged in (.87, .89):
            self.assertEqual(
                averaging.does_not_matter(self.cells(lagged), {})[0], DOES_NOT)


if __name__ == "__main__":
    unittest.main()
