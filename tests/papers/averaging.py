"""Which rounds AdaScale's averages are of, and whether it matters.

    python -m tests.papers.averaging [--quick]

The ICML paper, its slides, fairscale and AdaptDL take the present round into the
averages before its gain; the submission to ICLR has r_t of the iterations before
t, and r_0 = 1 (server/combine/README.md 5.3). The three conventions of the server
train the MLP of tests.papers.adascale with its settings and seeds.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Optional

from tests.papers import adascale_runs, script
from tests.papers.cells import EQUAL, UNDECIDED, Cell, cell, compare
from tests.papers.description import Run
from tests.papers.results import Book
from tests.papers.script import Cells, Claim, Series, Verdict, each

NAME = "averaging"
TITLE = "AdaScale: which rounds a gain is of"

MODEL = "mlp"
_DEFAULT = "debiased"
AVERAGINGS = {
    "debiased": "debiased average, with this round (the default)",
    "paper": "mean, then average, with this round",
    "lagged": "mean, then average, of prior rounds",
}
# Spans of adascale_runs.SPANS whose gain the table shows.
_SHOWN = (0, 1, 9, 10, 19)


def sizes(quick: bool) -> tuple[int, ...]:
    return (4,) if quick else (4, 16)


def runs(quick: bool) -> dict[str, list[Run]]:
    """By cell: "debiased/16"."""
    total = adascale_runs.length(quick)
    return {f"{averaging}/{ranks}": [
        dataclasses.replace(
            adascale_runs.adascale(MODEL, ranks, seed, total),
            averaging="" if averaging == _DEFAULT else averaging)
        for seed in adascale_runs.seeds(quick)]
        for averaging in AVERAGINGS for ranks in sizes(quick)}


def cells(book: Book, quick: bool) -> dict[str, Cell]:
    """By the names of runs(); "gain/debiased/16" and "rounds/debiased/16" too."""
    wanted = runs(quick)
    # All at once, so that no core waits; then they are there.
    book.results([run for seeds in wanted.values() for run in seeds])
    found = {}
    for name, seeds in wanted.items():
        results = book.results(seeds)
        found[name] = cell(results)
        found[f"gain/{name}"] = cell(results, "mean_gain")
        found[f"rounds/{name}"] = cell(results, "rounds", wanted=False)
    return found


def series(book: Book, quick: bool) -> dict[str, Any]:
    """The gain in equal spans of tau, of each seed: "debiased/16"."""
    return {name: [result["gain"] for result in book.results(seeds)]
            for name, seeds in runs(quick).items()}


def _sizes(cells_: Cells) -> list[int]:
    return sorted({int(name.split("/")[1]) for name in cells_
                   if name.startswith(f"{_DEFAULT}/")})


def _accuracy(cells_: Cells) -> script.Table:
    rows = []
    for averaging, words in AVERAGINGS.items():
        rows.append([words] + [
            f"{cells_[f'{averaging}/{ranks}'].text()} "
            f"({round(cells_[f'rounds/{averaging}/{ranks}'].mean)}; "
            f"{cells_[f'gain/{averaging}/{ranks}'].mean:.3g})"
            for ranks in _sizes(cells_)])
    return script.Table(
        "Test accuracy of the MLP (iterations; mean gain)",
        ["averages"] + [f"S = {ranks}" for ranks in _sizes(cells_)], rows,
        "Mean and standard deviation of the seeds of tests.papers.adascale.")


def _mean(values: list[list[Any]], span: int) -> str:
    """Of the seeds that have a round in the span."""
    there = [seed[span] for seed in values if seed[span] is not None]
    return f"{sum(there) / len(there):.3g}" if there else ""


def _gains(series_: Series) -> script.Table:
    share = 100 // adascale_runs.SPANS
    return script.Table(
        "The gain over training", ["averages, S"] + [
            f"{span * share}-{(span + 1) * share}%" for span in _SHOWN],
        [[name.replace("/", ", ")] + [_mean(seeds, span) for span in _SHOWN]
         for name, seeds in series_.items()],
        "Means of the rounds in a span of scale-invariant iterations.")


def tables(cells_: Cells, series_: Series) -> list[script.Table]:
    return [_accuracy(cells_), _gains(series_)]


def does_not_matter(cells_: Cells, _: Series) -> Verdict:
    """The conventions are equal in accuracy."""
    found: list[Optional[bool]] = []
    words = []
    for ranks in _sizes(cells_):
        for other in ("debiased", "paper"):
            made = compare(cells_[f"lagged/{ranks}"], cells_[f"{other}/{ranks}"])
            found.append(None if made.verdict == UNDECIDED
                         else made.verdict == EQUAL)
            words.append(f"S = {ranks}: lagged beside {other} {made.text()}")
    return each(found), "; ".join(words)


CLAIMS = [
    Claim("AdaScale", "It does not matter whether a gain has its own round in its "
          "averages.", does_not_matter,
          needed="More seeds: three of them show differences of a percent."),
]


if __name__ == "__main__":
    sys.exit(script.main(sys.modules[__name__], sys.argv[1:]))
