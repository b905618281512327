"""Which runs AdaCons's tables are made of, and how its claims are judged."""

import collections
import unittest

from tests.papers import (adacons, adacons_claims as claims, adacons_runs as runs,
                          fake_job, findings, script)
from tests.papers.cells import Cell
from tests.papers.results import Book

_VERDICTS = set(script.VERDICTS)


def _cells(ours, mean, control, no_momentum=None):
    """Each rule with three seeds around its score."""
    scores = {"adacons": ours, "mean": mean, "unit_mean": control,
              "no_momentum": mean if no_momentum is None else no_momentum,
              "adacons+": ours}
    found = {}
    for rule, score in scores.items():
        found.update({
            f"cnn/{setting}/{rule}": Cell((score - .001, score, score + .001),
                                          failed=("",) * 3)
            for setting in runs.SETTINGS})
        name = ("adacons_no_momentum" if rule == "no_momentum" else rule)
        # Less is better, and the seeds are an order of magnitude apart.
        loss = 10 ** (100 * (.9 - score))
        for ranks in (8, 32):
            found[f"regression/{name}/{ranks}"] = Cell(
                (loss / 3, loss, loss * 3), failed=("",) * 3, wanted=False)
    return found


class RunsTest(unittest.TestCase):

    def test_control_has_the_scope_of_adacons(self):
        for rule in ("adacons", "adacons+", "no_momentum", "unit_mean"):
            run = runs.cnn("clean", rule, .1, 0, False)
            self.assertEqual("global", run.scope, rule)
        plus = runs.cnn("clean", "unit_mean+", .1, 0, False)
        # Of the whole model, too (description.Run.push).
        self.assertEqual(("unit", "mean_norm"), (plus.push, plus.unit_scale))

    def test_one_rule_differs_from_another_in_its_rule_alone(self):
        made = {rule: runs.cnn("labels", rule, .1, 0, False).as_dict()
                for rule in runs.CNN_RULES}
        own = {"rule", "scope", "adacons", "push", "unit_scale"}
        rest = {rule: {name: value for name, value in fields.items()
                       if name not in own} for rule, fields in made.items()}
        for rule, fields in rest.items():
            self.assertEqual(rest["mean"], fields, rule)
        self.assertEqual(4, rest["mean"]["random_labels"])

    def test_regression_shares_one_batch(self):
        for name, seeds in runs.regression(False).items():
            for run in seeds:
                self.assertEqual(128, run.batch * run.ranks, name)
                self.assertEqual("oracle", run.step)

    def test_rates_of_unit_steps_are_tried_further_up(self):
        grids = runs.grids(False)
        for setting in runs.SETTINGS:
            rates = {rule: grids[f"cnn/{setting}/{rule}"].rates
                     for rule in runs.CNN_RULES}
            self.assertEqual(rates["adacons"], rates["unit_mean"])
            self.assertGreater(max(rates["adacons"]), max(rates["mean"]))

    def test_each_set_fills_its_tables(self):
        for quick in (True, False):
            with Book(None, 1, call=fake_job.run_job) as book:
                cells = adacons.cells(book, quick)
                tables = adacons.tables(cells, adacons.series(book, quick))
                tests = [run for run, _ in book.asked
                         if run["task"] == "fashion_cnn"
                         and "evaluate" not in run]
            for table in tables:
                for row in table.rows:
                    self.assertEqual(len(table.header), len(row))
                    self.assertTrue(all(row), row)
            each = collections.Counter(run["seed"] for run in tests)
            self.assertEqual(1 if quick else 10, len(each))
            if not quick:
                expected = findings.load()["adacons"]
                lacking = set(expected) - set(cells)
                # They take rates of their own, which were not run.
                self.assertTrue(all(name.startswith(("regression/fixed",
                                                     "regression/noise"))
                                    for name in lacking), lacking)


class ClaimsTest(unittest.TestCase):

    def judge(self, cells):
        return {claim.judge: claim.verdict(cells, {})[0]
                for claim in claims.CLAIMS if claim.judge}

    def test_better_than_the_mean_and_not_than_the_control(self):
        found = self.judge(_cells(.86, .85, .87))
        self.assertEqual(script.HOLDS, found[claims.beats_mean_in_regression])
        self.assertEqual(script.HOLDS, found[claims.beats_mean_in_training])
        self.assertEqual(script.DOES_NOT,
                         found[claims.coefficients_are_the_cause])

    def test_a_tie_is_not_better(self):
        found = self.judge(_cells(.86, .86, .86))
        for judge, word in found.items():
            self.assertEqual(script.DOES_NOT, word, judge.__name__)

    def test_better_than_the_control(self):
        found = self.judge(_cells(.87, .85, .86))
        self.assertEqual(script.HOLDS,
                         found[claims.coefficients_are_the_cause])

    def test_some_settings_are_a_part(self):
        cells = _cells(.87, .85, .86)
        cells["cnn/labels/unit_mean"] = cells["cnn/labels/adacons"]
        found = self.judge(cells)
        self.assertEqual(script.IN_PART,
                         found[claims.coefficients_are_the_cause])

    def test_what_has_no_value_breaks_nothing(self):
        cells = {name: Cell((None,), failed=("not finite",),
                            wanted=cell.wanted)
                 for name, cell in _cells(.87, .85, .86).items()}
        for word in self.judge(cells).values():
            self.assertIn(word, _VERDICTS)


if __name__ == "__main__":
    unittest.main()
