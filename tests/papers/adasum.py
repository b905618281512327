"""Adasum (Maleki and others, 2020) on Fashion-MNIST with a small CNN.

    python -m tests.papers.adasum [--quick]

Two passes with 16, 32 and 64 workers of batch 32, at one worker's best learning
rate and at each rule's own; passes until 87% of the test examples are right, at
a constant rate; and how orthogonal the workers' rows are over training.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any, Optional, Sequence

from tests.papers import adasum_runs as runs
from tests.papers import rates, script, tuning
from tests.papers.adasum_claims import CLAIMS as CLAIMS
from tests.papers.cells import Cell, cell, number
from tests.papers.results import Book, Result

NAME = "adasum"
TITLE = "Adasum"

_OPTIMIZERS = {"sgd": "momentum SGD", "adam": "Adam"}
_RULES = {
    "single": "one worker",
    "mean": "mean",
    "sum": "sum",
    "sum_delta": "sum of deltas",
    "adasum": "Adasum of gradients",
    "adasum_delta": "Adasum of deltas",
}


def cells(book: Book, quick: bool) -> dict[str, Cell]:
    """By the names of adasum_runs."""
    grids = runs.grids(quick)
    to_target = runs.to_target(quick)
    # All that needs no other run's result at once, so that no core waits.
    book.results(
        [grid.make_run(rate, seed) for grid in grids.values()
         for rate in grid.rates for seed in grid.seeds]
        + [run for found in (to_target, runs.orthogonality(quick))
           for seeds in found.values() for run in seeds])
    best = tuning.best_rates(book, grids)
    tables_ = runs.tables(quick, {name: it.rate for name, it in best.items()})
    book.results([run for seeds in tables_.values() for run in seeds])
    found = {}
    for name, seeds in tables_.items():
        if not name.endswith("/tuned"):
            found[name] = cell(book.results(seeds))
            continue
        tuned = best[name.removesuffix("/tuned")]
        found[name] = cell(book.results(seeds), rate=tuned.rate,
                           edge=tuned.edge)
    for opt in runs.OPTIMIZERS:
        grid = grids[f"{opt}/single/1"]
        for rate in grid.rates:
            found[f"validation/{opt}/{rate:g}"] = cell(book.results(
                [grid.make_run(rate, seed) for seed in grid.seeds]))
    for name, seeds in to_target.items():
        results = book.results(seeds)
        found[name] = _passes(results, seeds[0].ranks)
        found[f"best/{name}"] = _best(results)
    return found


def _passes(results: Sequence[Result], ranks: int) -> Cell:
    """Until the target was reached; None: never."""
    values = tuple(
        None if result.get("reached") is None else
        rates.passes(result["reached"], ranks, runs.BATCH)
        for result in results)
    return Cell(values=values, wanted=False,
                failed=tuple(result.get("failed") or "" for result in results),
                rounds=tuple(result["rounds"] for result in results))


def _best(results: Sequence[Result]) -> Cell:
    """Of each seed's curve."""
    return Cell(values=tuple(
        max((score for _, score in result["curve"] if score is not None),
            default=None) for result in results))


def series(book: Book, quick: bool) -> dict[str, Any]:
    """Orthogonality in equal spans of training, the mean of the seeds; of each
    tensor, too ("orthogonality/cnn/delta/64/NAME"), and at a rate that stays
    ("constant/cnn/gradient/64"). "decays": where the rate
    falls, as shares of training."""
    found: dict[str, Any] = {"decays": list(rates.DECAYS)}
    for name, seeds in runs.orthogonality(quick).items():
        results = book.results(seeds)
        found[name] = _mean_spans([it["orthogonality"] for it in results])
        for tensor in results[0]["tensor_orthogonality"]:
            found[f"{name}/{tensor}"] = _mean_spans(
                [it["tensor_orthogonality"][tensor] for it in results])
    return found


def _mean_spans(seeds: Sequence[Sequence[Optional[float]]]
                ) -> list[Optional[float]]:
    """Span by span; None where no seed has a value."""
    return [statistics.fmean(there) if there else None
            for there in ([value for value in values if value is not None]
                          for values in zip(*seeds))]


def _accuracy(opt: str, cells_: script.Cells) -> script.Table:
    sizes = sorted({int(name.split("/")[2]) for name in cells_
                    if name.startswith(f"{opt}/")} - {1})
    header = [f"{_OPTIMIZERS[opt]}, 2 passes"]
    for ranks in sizes:
        header += [f"S = {ranks}, one worker's rate", "tuned"]
    blank = [""] * (len(header) - 2)
    rows = [[_RULES["single"], cells_[f"{opt}/single/1"].text(), *blank]]
    for rule in runs.rules(opt):
        row = [_RULES[rule]]
        for ranks in sizes:
            for which in ("one", "tuned"):
                there = cells_.get(f"{opt}/{rule}/{ranks}/{which}")
                row.append(there.text() if there else
                           "the mean's, at a S-th of its rate")
        rows.append(row)
    grid = ", ".join(f"{name.split('/')[2]} {there.text()}"
                     for name, there in cells_.items()
                     if name.startswith(f"validation/{opt}/"))
    return script.Table(
        f"Test accuracy with {_OPTIMIZERS[opt]}", header, rows,
        f"One worker's rate is {runs.RATE_OF_ONE[opt]:g}, an independent "
        f"study's best; here its validation accuracy is, by rate: {grid}. "
        "Other rates are chosen on the validation examples; \"edge\": the best "
        "one is the least or the largest that was tried.")


def _passes_text(cells_: script.Cells, name: str) -> str:
    there, best = cells_.get(name), cells_.get(f"best/{name}")
    if there is None or best is None:
        return ""
    words = ["never" if value is None else f"{value:.1f}"
             for value in there.values]
    text = ", ".join(words)
    if not there.finite:
        text = "never" if best.finite else "diverges"
    if "never" in words and best.finite:
        text += f" (best {number(max(best.finite), 3)})"
    return text


def _epochs(cells_: script.Cells) -> script.Table:
    names = [name.split("/")[1:] for name in cells_
             if name.startswith("epochs/")]
    columns = sorted({(opt, int(ranks)) for opt, rule, ranks in names
                      if rule != "single"}, key=lambda it: (it[0] != "sgd",
                                                            it[1]))
    present = {rule for _, rule, _ in names}
    rows = []
    for rule, words in _RULES.items():
        if rule not in present:
            continue
        row = [words]
        for opt, ranks in columns:
            size = ranks
            if rule == "single":
                size = 1 if (opt, ranks) in (columns[0], next(
                    it for it in columns if it[0] == "adam")) else 0
            row.append(_passes_text(cells_, f"epochs/{opt}/{rule}/{size}"))
        rows.append(row)
    return script.Table(
        "Passes until 87% of the test examples are right, each seed",
        [""] + [f"{_OPTIMIZERS[opt]}, S = {ranks}" for opt, ranks in columns],
        rows, "A constant rate, .01 with SGD and .001 with Adam; at most 8 "
        "passes; scored by the test ten times in each.")


def _orthogonality(series_: script.Series) -> script.Table:
    """Where it starts, before and after the rate falls, and where it ends."""
    rows = []
    for name, values in series_.items():
        if name == "decays":
            continue
        spans = len(values)
        shown = [0]
        for share in rates.DECAYS:
            shown += [int(share * spans) - 1, int(share * spans)]
        kind, *words = name.split("/")
        rows.append([" ".join([words[0].upper(), words[1], f"S = {words[2]}",
                               *words[3:]])
                     + (", constant rate" if kind == "constant" else "")]
                    + ["" if values[at] is None else number(values[at], 2)
                       for at in [*shown, spans - 1]])
    return script.Table(
        "Orthogonality in spans of training",
        ["", "first", "before 50%", "after", "before 80%", "after", "last"],
        rows, "||Adasum||² / Σ||g||²: 1 where all rows are orthogonal, 1/S "
        "where all are equal. The rate falls to a tenth at 50% and 80%, but for "
        "the constant one, which is the first.")


def tables(cells_: script.Cells, series_: script.Series
           ) -> list[script.Table]:
    return [_accuracy("sgd", cells_), _accuracy("adam", cells_),
            _epochs(cells_), _orthogonality(series_)]


if __name__ == "__main__":
    sys.exit(script.main(sys.modules[__name__], sys.argv[1:]))
