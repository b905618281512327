"""The linear regression of AdaCons's authors, as their program has it.

    python -m tests.papers.published [--without-servers] [FLAGS]

The authors publish the losses after 1000 batches of 128 examples (README.md of
github.com/yoniLc/AdaCons). Their program adds the gradients of two batches to each
update and reads the sorted momentum at the sort's index: unsort "gather". The sum
of two batches' gradients is twice the mean over both, and no rule here looks at
the length that all rows share; so a run has 500 updates of 256 examples. The
result file is results/published.json, and with --without-servers, of rules on
whole vectors, results/published_without_servers.json.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Sequence

from tests.papers import adacons_runs, script, without_servers
from tests.papers.cells import Cell, cell
from tests.papers.description import Run
from tests.papers.results import Book, run_job
from tests.papers.script import DOES_NOT, HOLDS, Claim

NAME = "published"
TITLE = "AdaCons's regression, as published"

BATCHES_AN_UPDATE = 2
# By the number of workers; the mean's row has one number for both.
PUBLISHED = {8: 1.27e-5, 32: 1.98e-8}
PUBLISHED_MEAN = 33.4
# Losses of seeds lie up to four orders of magnitude apart.
SAME_FACTOR = 10

_ADACONS: dict[str, Any] = {"rule": "adacons", "scope": "global"}
RULES: dict[str, dict[str, Any]] = {
    "mean": {"rule": "mean"},
    "unit_mean": {"rule": "unit_mean", "scope": "global"},
    "gather": {**_ADACONS, "adacons": {"beta": .99, "unsort": "gather"}},
    "scatter": {**_ADACONS, "adacons": {"beta": .99}},
    "no_momentum": {**_ADACONS, "adacons": {"beta": 0.}},
}
_WORDS = {"mean": "mean", "unit_mean": "control: mean of unit gradients",
          "gather": "AdaCons, gather (their program)",
          "scatter": "AdaCons, scatter (the default here)",
          "no_momentum": "AdaCons without momentum"}


def runs(quick: bool) -> dict[str, list[Run]]:
    """By cell, "published/gather/8": a run for each seed."""
    batch = BATCHES_AN_UPDATE * adacons_runs.TOTAL_BATCH
    return {f"published/{rule}/{ranks}": [
        Run(task="regression", ranks=ranks, seed=seed, batch=batch // ranks,
            rounds=8 if quick else adacons_runs.UPDATES, step="oracle", **fields)
        for seed in adacons_runs.regression_seeds(quick)]
        for ranks in PUBLISHED for rule, fields in RULES.items()}


def cells(book: Book, quick: bool) -> dict[str, Cell]:
    """By the names of runs()."""
    made = runs(quick)
    book.results([run for seeds in made.values() for run in seeds])
    return {name: cell(book.results(seeds), wanted=False)
            for name, seeds in made.items()}


def series(_book: Book, _quick: bool) -> dict[str, Any]:
    """None."""
    return {}


def geometric_mean(found: Cell) -> float:
    """Of the losses that are finite and above 0; not a number without one."""
    logs = [math.log(value) for value in found.finite if value > 0]
    return math.exp(math.fsum(logs) / len(logs)) if logs else math.nan


def _text(found: Cell) -> str:
    if not found.finite or found.failures:
        return found.text()
    return (f"{geometric_mean(found):.2g} [{min(found.finite):.1g}, "
            f"{max(found.finite):.1g}]")


def tables(cells_: script.Cells, _series: script.Series) -> list[script.Table]:
    rows = [[_WORDS[rule]] + [_text(cells_[f"published/{rule}/{ranks}"])
                              for ranks in PUBLISHED] for rule in RULES]
    rows.append(["published: AdaCons"] + [f"{loss:g}" for loss in
                                          PUBLISHED.values()])
    rows.append(["published: mean"] + [f"{PUBLISHED_MEAN:g}"] * len(PUBLISHED))
    seeds = len(cells_[f"published/mean/{min(PUBLISHED)}"].values)
    return [script.Table(
        "Linear regression, two batches an update: expected loss after 500 "
        "updates", [""] + [f"P = {ranks}" for ranks in PUBLISHED], rows,
        f"Geometric mean [least, largest] of {seeds} seeds; less is better. "
        "Published is the loss of the last batch, of one seed.")]


def reaches_the_published(cells_: script.Cells, _: script.Series
                          ) -> tuple[str, str]:
    """Whether gather's geometric mean is within SAME_FACTOR of each value."""
    found, words = [], []
    for ranks, published in PUBLISHED.items():
        ours = geometric_mean(cells_[f"published/gather/{ranks}"])
        apart = abs(math.log(ours / published))
        found.append(apart <= math.log(SAME_FACTOR))
        words.append(f"P = {ranks}: {ours:.2g} against {published:g}")
    return HOLDS if all(found) else DOES_NOT, "; ".join(words)


CLAIMS = [Claim(
    "AdaCons", "With two batches an update, AdaCons ends at the losses that its "
    "authors publish, within a factor of 10.", reaches_the_published)]


def main(arguments: Sequence[str]) -> int:
    """The program; returns the process's status."""
    if "--without-servers" not in arguments:
        return script.main(sys.modules[__name__], arguments, run_job)
    rest = [flag for flag in arguments if flag != "--without-servers"]
    if not any(flag.startswith(("--results", "--quick")) for flag in rest):
        file = script.RESULTS / f"{NAME}_without_servers.json"
        rest.append(f"--results={file}")
    return script.main(sys.modules[__name__], rest, without_servers.regression)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
