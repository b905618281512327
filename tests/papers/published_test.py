"""AdaCons's regression as published: its runs, its rules, and its result."""

import json
import math
import pathlib
import unittest

import numpy as np

from tests.papers import fake_job, published, script, without_servers
from tests.papers.cells import Cell
from tests.papers.results import Book

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"


def lcg_rows(seed, rows, elements):
    """The generator of tests/golden/README.md."""
    x, values = seed, np.empty(rows * elements)
    for at in range(values.size):
        x = (1664525 * x + 1013904223) % 2**32
        values[at] = ((x >> 8) - 8388608) / 8388608
    return values.reshape(rows, elements)


class RunsTest(unittest.TestCase):

    def test_two_batches_an_update(self):
        for name, seeds in published.runs(False).items():
            for run in seeds:
                self.assertEqual(256, run.batch * run.ranks, name)
                self.assertEqual(500, run.rounds)
                self.assertEqual("oracle", run.step)

    def test_a_run_for_each_rule_and_number_of_workers(self):
        self.assertEqual(
            {f"published/{rule}/{ranks}" for rule in published.RULES
             for ranks in (8, 32)}, set(published.runs(False)))


class RulesTest(unittest.TestCase):
    """The rules on whole vectors, against what Main.py computed."""

    def test_adacons_is_the_authors(self):
        recorded = json.loads((GOLDEN / "reference_programs.json").read_text())
        self.assertGreaterEqual(len(recorded["adacons"]), 6)
        differs = 0
        for case in recorded["adacons"]:
            elements = sum(case["elements"])
            gather, scatter = (without_servers.UnitRows(
                "adacons", case["beta"], unsort)
                for unsort in ("gather", "scatter"))
            for step, values in enumerate(case["values"]):
                seed = case["seed"] + step
                rows = np.float32(
                    lcg_rows(seed, case["P"], elements) + case["bias"] *
                    lcg_rows(seed + 1000, 1, elements))
                combined = gather.combine(rows)
                np.testing.assert_allclose(gather.momentum, values["momentum"],
                                           rtol=1e-6)
                np.testing.assert_allclose(combined, values["combined"],
                                           atol=1e-6)
                differs += not np.allclose(scatter.combine(rows), combined,
                                           atol=1e-3)
        self.assertGreater(differs, 0)

    def test_unit_mean_is_the_mean_of_directions(self):
        rows = np.array([[3., 4.], [0., -2.]], np.float32)
        np.testing.assert_allclose(
            without_servers.UnitRows("unit_mean").combine(rows), [.3, -.1])


class ClaimTest(unittest.TestCase):

    def verdict(self, eight, thirty_two):
        cells = {"published/gather/8": Cell((eight / 2, eight * 2)),
                 "published/gather/32": Cell((thirty_two,))}
        return published.reaches_the_published(cells, {})[0]

    def test_within_a_factor_of_ten_of_both(self):
        self.assertEqual(script.HOLDS, self.verdict(9 * 1.27e-5, 1.98e-8 / 9))
        self.assertEqual(script.DOES_NOT, self.verdict(11 * 1.27e-5, 1.98e-8))
        self.assertEqual(script.DOES_NOT, self.verdict(1.27e-5, 1.98e-8 / 11))

    def test_geometric_mean(self):
        self.assertAlmostEqual(1e-4, published.geometric_mean(
            Cell((1e-2, 1e-6))))
        self.assertTrue(math.isnan(published.geometric_mean(Cell((None,)))))

    def test_every_cell_is_in_the_table(self):
        with fake_job.InstantBook() as book:
            table, = published.tables(published.cells(book, False), {})
        self.assertEqual(len(published.RULES) + 2, len(table.rows))
        self.assertEqual(["1.27e-05", "1.98e-08"], list(table.rows[-2][1:]))

    def test_the_committed_results_reach_the_published(self):
        found = []
        for name in ("published", "published_without_servers"):
            with Book(script.RESULTS / f"{name}.json", jobs=0) as book:
                found.append(published.cells(book, False))
        cells, without = found
        word, why = published.CLAIMS[0].verdict(cells, {})
        self.assertEqual(script.HOLDS, word, why)
        for name, cell in cells.items():
            self.assertEqual(without[name].values, cell.values, name)
        # The control ends there, too, and without momentum it is no use.
        for ranks in published.PUBLISHED:
            loss = {rule: published.geometric_mean(
                cells[f"published/{rule}/{ranks}"]) for rule in published.RULES}
            self.assertLess(loss["unit_mean"], 100 * loss["gather"])
            self.assertLess(1e5 * loss["gather"], loss["mean"])
            self.assertLess(loss["mean"], loss["no_momentum"])


if __name__ == "__main__":
    unittest.main()
