"""AdaCons (Choukroun and others, 2024) and the mean of unit gradients.

    python -m tests.papers.adacons [--quick]

The linear regression of the authors' code, and the CNN on Fashion-MNIST with 16
workers, all of them honest or 4 of them with random labels; each rule of the CNN
at its own best learning rate. The control, a mean of gradients of length 1, is in
each comparison: it does what AdaCons does but for its coefficients.
"""

from __future__ import annotations

import sys
from typing import Any

from tests.papers import adacons_runs as runs
from tests.papers import script, tuning
from tests.papers.adacons_claims import CLAIMS as CLAIMS
from tests.papers.cells import Cell, cell
from tests.papers.results import Book

NAME = "adacons"
TITLE = "AdaCons"

_WORDS = {
    "mean": "mean",
    "adacons": "AdaCons",
    "adacons+": "AdaCons, times the mean norm (+)",
    "adacons_no_momentum": "AdaCons without momentum",
    "no_momentum": "AdaCons without momentum",
    "unit_mean": "control: mean of unit gradients",
    "unit_mean+": "control, times the mean norm (+)",
}
_SETTINGS = {"clean": "all workers honest",
             "labels": f"{runs.RANDOM_LABELS} with random labels"}


def cells(book: Book, quick: bool) -> dict[str, Cell]:
    """By the names of adacons_runs."""
    grids, regression = runs.grids(quick), runs.regression(quick)
    # All that needs no other run's result at once, so that no core waits.
    book.results(
        [run for seeds in regression.values() for run in seeds]
        + [grid.make_run(rate, seed) for grid in grids.values()
           for rate in grid.rates for seed in grid.seeds])
    best = tuning.best_rates(book, grids)
    tuned = runs.tables(quick, {name: it.rate for name, it in best.items()})
    book.results([run for seeds in tuned.values() for run in seeds])
    found = {name: cell(book.results(seeds), wanted=False)
             for name, seeds in regression.items()}
    for name, seeds in tuned.items():
        found[name] = cell(book.results(seeds), rate=best[name].rate,
                           edge=best[name].edge)
    return found


def series(_book: Book, _quick: bool) -> dict[str, Any]:
    """None."""
    return {}


def _spread(found: Cell) -> str:
    """Median and range: the values of seeds lie orders of magnitude apart."""
    if not found.finite:
        return found.text()
    return (f"{found.median:.2g} [{min(found.finite):.1g}, "
            f"{max(found.finite):.1g}]")


def _regression(cells_: script.Cells) -> script.Table:
    sizes = sorted({int(name.split("/")[2]) for name in cells_
                    if name.startswith("regression/")})
    rows = [[_WORDS[rule]] + [_spread(cells_[f"regression/{rule}/{ranks}"])
                              for ranks in sizes]
            for rule in runs.REGRESSION_RULES]
    seeds = len(cells_[f"regression/mean/{sizes[0]}"].values)
    return script.Table(
        "Linear regression: expected loss after 500 updates",
        [""] + [f"P = {ranks}" for ranks in sizes], rows,
        f"Median [least, largest] of {seeds} seeds; less is better. 1000 "
        "weights, 128 examples an update, and the authors' step, which knows "
        "where the least loss is.")


def _accuracy(cells_: script.Cells) -> script.Table:
    rows = [[_WORDS[rule]] + [cells_[f"cnn/{setting}/{rule}"].text()
                              for setting in runs.SETTINGS]
            for rule in runs.CNN_RULES]
    return script.Table(
        "Test accuracy of the CNN, 16 workers, 2 passes",
        [""] + [_SETTINGS[setting] for setting in runs.SETTINGS], rows,
        "Each rule at its own best rate, chosen on the validation examples; "
        "\"edge\": it is the least or the largest that was tried.")


def tables(cells_: script.Cells, _series: script.Series
           ) -> list[script.Table]:
    return [_regression(cells_), _accuracy(cells_)]


if __name__ == "__main__":
    sys.exit(script.main(sys.modules[__name__], sys.argv[1:]))
