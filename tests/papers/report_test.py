"""Of report.py and findings.py: the committed page, and pages of made-up results."""

import importlib
import pathlib
import re
import statistics
import tempfile
import unittest

from tests.papers import cells, fake_job, findings, report, results, script

_NUMBERS = {"cpu": "2 x A", "date": "2026-11-23", "agg_server": "1",
            "torch": "2", "numpy": "3", "python": "4"}


def made_set(name="adasum", **fields):
    """With one cell, one table and two claims."""
    good = cells.cell([{"score": .8, "failed": "", "rounds": 3}] * 3)
    fields = {
        "cells": {"sgd/single/1": good}, "series": {"decays": [.5]},
        "tables": [script.Table("Ours", ["", "a|b"], [["x", good.text()]])],
        "claims": [script.Claim("Adasum", "It works.",
                                lambda made, _: (script.HOLDS, made[
                                    "sgd/single/1"].text())),
                   script.Claim("Adasum", "It scales.", needed="more cores")],
        "versions": _NUMBERS, "runs": 7, "seconds": 60.0, **fields}
    return report.Set(name, name.title(), **fields)


class PageTest(unittest.TestCase):

    def body(self, *sets, **expected):
        names = {name: {} for name in script.SCRIPTS}
        return report.body(sets, {**names, **expected,
                                  "explained": expected.get("explained", names)})

    def test_tables_claims_and_versions(self):
        text = self.body(made_set())
        self.assertIn("| Adasum | It works. | **holds** | .8000 ± .0000 |", text)
        self.assertIn("| Adasum | It scales. | **not tried** | Needed: more cores |",
                      text)
        self.assertIn("|  | a\\|b |\n| --- | --- |\n| x | .8000 ± .0000 |", text)
        self.assertIn("`adasum`: 7 runs, 1 minutes of one job after the other; "
                      "2026-11-23, 2 x A, agg_server 1, torch 2", text)

    def test_nothing_is_said_of_a_set_that_is_missing(self):
        text = self.body(made_set(missing="has not been run", cells={},
                                  tables=()))
        self.assertIn("`adasum`: the full set has not been run here", text)
        self.assertIn("| It works. | **not tried** | the set has not been run |",
                      text)
        self.assertNotIn(".svg", text)

    def test_a_finding_is_shown_with_its_reason(self):
        text = self.body(made_set(), adasum={"sgd/single/1": [.7, .001]},
                         explained={"adasum": {"sgd/single/1": "Less noise."}})
        self.assertIn("1 numbers are those of a simulation, too; 1 differ", text)
        self.assertRegex(text, r"\| `adasum` sgd/single/1 \| .8000 ± .0000 \| "
                         r".7000 ± .0010 \| \+\d+.\d standard errors \| "
                         r"Less noise. \|")

    def test_only_what_is_between_the_markers_is_made(self):
        old = f"mine\n{report.BEGIN}\nold\n{report.END}\nmine, too\n"
        new = report.page(old, "new\n")
        self.assertEqual(
            f"mine\n{report.BEGIN}\nnew\n{report.END}\nmine, too\n", new)
        self.assertEqual(new, report.page(new, "new\n"))
        with self.assertRaisesRegex(ValueError, "markers|not one"):
            report.page("mine", "new")

    def test_a_wrong_verdict_is_refused(self):
        claim = script.Claim("A", "b", lambda *_: ("maybe", ""))
        with self.assertRaisesRegex(ValueError, 'the verdict on "b" is "maybe"'):
            claim.verdict({}, {})

    def test_a_plot_of_other_numbers_is_stale(self):
        made = made_set()
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            self.assertEqual(["adasum_accuracy", "adasum_orthogonality"],
                             report.stale_plots([made], folder))
            for name, _ in report.PLOTS["adasum"]:
                (folder / f"{name}.svg").write_text(
                    f"<svg>numbers {made.digest()}</svg>", "utf-8")
            self.assertEqual([], report.stale_plots([made], folder))
            made.series = {"decays": [.6]}
            self.assertEqual(2, len(report.stale_plots([made], folder)))


class FindingsTest(unittest.TestCase):

    def found(self, values, theirs, failed=""):
        cell = cells.cell([{"score": value, "failed": failed, "rounds": 1}
                           for value in values])
        return [it.apart for it in findings.findings({"x": cell}, {"x": theirs})]

    def test_three_standard_errors(self):
        # sd .01 on both sides: the error is .01 sqrt(2/3) = .00816.
        self.assertEqual([], self.found([.79, .80, .81], [.824, .01]))
        self.assertEqual(["-3.1 standard errors"],
                         self.found([.79, .80, .81], [.825, .01]))
        self.assertEqual(1, len(self.found([.79, .80, .81], [.83])))
        # One seed has no deviation: theirs is taken, sqrt(1 + 1/3) of it.
        self.assertEqual([], self.found([.80], [.834, .01]))
        self.assertEqual(1, len(self.found([.80], [.835, .01])))

    def test_failures(self):
        self.assertEqual(["3 of 3 fail"], self.found(
            [None] * 3, [.8, .01], "not finite"))
        self.assertEqual([], self.found([None] * 3, {"failed": 2}, "guesses"))
        # Not trained there, and not here: numbers like others.
        self.assertEqual([], self.found([.1, .3, .2], [.21, .02], "guesses"))
        self.assertEqual(["0 of 3 fail, 3 there"],
                         self.found([.8, .8, .8], {"failed": 3}))

    def test_medians(self):
        wide = {"median": 40, "least": 10, "most": 400}
        self.assertEqual([], self.found([9, 300, 9000], wide))
        self.assertEqual(["12 times"], self.found([9, 500, 9000], wide))
        self.assertEqual([], self.found([200, 205, 210], {"median": 190}))
        self.assertEqual(["1.2 times"],
                         self.found([210, 220, 230], {"median": 190}))

    def test_values(self):
        self.assertEqual([], self.found([4, 5, None], {"values": [4, 5, 4]}))
        self.assertEqual(["1 of 3 get there, 3 of 3 there"], self.found(
            [4, None, None], {"values": [4, 5, 4]}))
        self.assertEqual(1, len(self.found([8, 9, 8], {"values": [4, 5, 4]})))
        # One seed says little.
        self.assertEqual([], self.found([9], {"values": [4, 5, 4]}))
        self.assertEqual(1, len(self.found([None], {"values": [4, 5, 4]})))


class ScriptsTest(unittest.TestCase):
    """What the scripts make of a whole set, of results that no server made."""

    def sets(self):
        for name in script.SCRIPTS:
            module = importlib.import_module("tests.papers." + name)
            book = fake_job.InstantBook()
            yield (module, module.cells(book, False),
                   module.series(book, False))

    def test_whole_sets(self):
        expected = findings.load()
        for module, made, lines in self.sets():
            with self.subTest(module.NAME):
                tables = module.tables(made, lines)
                for table in tables:
                    self.assertTrue(table.rows)
                    for row in table.rows:
                        self.assertEqual(len(table.header), len(row))
                for claim in module.CLAIMS:
                    claim.verdict(made, lines)
                # A name that is mistyped would be compared with nothing.
                left = expected["not_run"][module.NAME]
                self.assertEqual(
                    sorted(left), sorted(set(expected[module.NAME])
                                         - set(made)))
                self.assertEqual(set(report.PLOTS), set(script.SCRIPTS))


class CommittedTest(unittest.TestCase):

    def test_the_page_is_what_the_results_say(self):
        sets = [report.read_set(name, script.RESULTS)
                for name in script.SCRIPTS]
        new = report.page(report.PAGE.read_text("utf-8"),
                          report.body(sets, findings.load()))
        self.assertEqual([], report.check(new, sets, report.PAGE,
                                          script.FOLDER / "figures"))

    def test_each_finding_has_a_reason_and_nothing_else_has(self):
        expected = findings.load()
        for name in script.SCRIPTS:
            made = report.read_set(name, script.RESULTS)
            found = {it.cell for it in findings.findings(made.cells,
                                                         expected[name])}
            with self.subTest(name):
                self.assertEqual(found, set(expected["explained"][name]))

    def test_the_summary_has_these_numbers(self):
        page = report.PAGE.read_text("utf-8")
        section = page.split("\n## In short\n")[1].split("\n## ")[0]
        said = " ".join(section.split())
        made, series = {}, {}
        for name in script.SCRIPTS:
            found = report.read_set(name, script.RESULTS)
            made.update(found.cells)
            series.update(found.series)
        rows = series["orthogonality/cnn/gradient/64"]
        constant = series["constant/cnn/gradient/64"]

        def mean(cell, digits=3):
            return cells.number(made[cell].mean, digits)

        def fewer(model):
            one, many = (statistics.fmean(made[f"{model}/{name}"].rounds)
                         for name in ("one/1", "adascale/64"))
            return f"{one / many:.0f}"

        def examples(model):
            one, many = (statistics.fmean(made[f"{model}/{name}"].rounds)
                         for name in ("one/1", "adascale/64"))
            return f"{64 * many / one:.2g}"

        for words in (
                f"64 workers compute {examples('mlp')} and {examples('cnn')} "
                "times as many",
                f"stays they end at {cells.number(constant[-1], 2)}",
                f"MLP {mean('mlp/adascale/64')} (one worker "
                f"{mean('mlp/one/1')}), CNN {mean('cnn/adascale/64')} "
                f"({mean('cnn/one/1')}), in {fewer('mlp')} and {fewer('cnn')} "
                "times fewer",
                f"ends at {mean('mlp/lsw/64', 2)} and "
                f"{mean('cnn/lsw/64', 2)} there; given as many iterations, the "
                f"MLP ends at {mean('mlp/lsw+/64', 2)}, and the CNN at "
                f"{mean('cnn/lsw+/64')}",
                f"({mean('sgd/adasum/64/one')} against "
                f"{mean('sgd/mean/64/tuned')} at 64)",
                f"({mean('adam/sum_delta/16/one')}; Adasum "
                f"{mean('adam/adasum_delta/16/one')})",
                f"does not reach one worker ({mean('sgd/single/1')})",
                f"from {cells.number(rows[0], 2)} to "
                f"{cells.number(rows[-1], 2)}"):
            self.assertIn(words, said)
        # And no others.
        self.assertEqual(16, len(re.findall(r"(?<![\w.])[.]\d\d+", said)))

    def test_files_of_results_are_of_whole_sets_and_small(self):
        for path in script.RESULTS.glob("*.json"):
            with self.subTest(path.name):
                self.assertLess(path.stat().st_size, 400_000)
                with results.Book(path, jobs=0) as book:
                    self.assertFalse(book.quick)
                    self.assertTrue(book.versions)


if __name__ == "__main__":
    unittest.main()
