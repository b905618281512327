"""AdaScale (ICML 2020) on Fashion-MNIST, in the shape of its second table.

    python -m tests.papers.adascale [--quick]

An MLP and a small CNN, each with 1, 4, 16 and 64 workers of batch 32. One
worker trains for 8 passes, with a rate that falls to a tenth at 50% and at 80%
of its 13750 iterations; that schedule is never tuned again. The server follows
it at tau, and ends the job when tau has reached 13750.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any, Optional

from tests.papers import adascale_runs as runs
from tests.papers import rates, script, tuning
from tests.papers.adascale_claims import CLAIMS as CLAIMS
from tests.papers.cells import Cell, cell
from tests.papers.results import Book

NAME = "adascale"
TITLE = "AdaScale"

_MODELS = {"mlp": "MLP", "cnn": "CNN"}
_ARMS = {
    "one": "one worker",
    "adascale": "AdaScale",
    "lsw": "linear + warm-up (LSW)",
    "lsw+": "LSW, AdaScale's iterations (LSW+)",
    "tuned": "mean, rate tuned, AdaScale's iterations",
    "linear": "linear, no warm-up",
    "same_rate": "one worker's rate",
    "identity": "one worker's rate and iterations",
}
# Spans of SPANS at which the table shows the gain: decays come before the
# spans 10 and 16.
_SHOWN = (0, 2, 4, 7, 9, 10, 13, 16, 19)


def _iterations(book: Book, quick: bool) -> dict[str, int]:
    """AdaScale's number of rounds, the mean of the seeds, by "mlp/16"."""
    first = runs.first(quick)
    found = {}
    for model in runs.TASKS:
        for ranks in runs.sizes(quick):
            results = book.results(first[f"{model}/adascale/{ranks}"])
            found[f"{model}/{ranks}"] = max(1, round(statistics.fmean(
                result["rounds"] for result in results)))
    return found


def cells(book: Book, quick: bool) -> dict[str, Cell]:
    """By the names of adascale_runs."""
    first = runs.first(quick)
    # All at once, so that no core waits; then they are there.
    book.results([run for seeds in first.values() for run in seeds])
    iterations = _iterations(book, quick)
    ranks = runs.most(quick)
    rounds = iterations[f"mlp/{ranks}"]
    later = runs.later(quick, iterations)
    grid = tuning.Grid(
        lambda factor, seed: runs.plain("mlp", ranks, seed, rounds, factor,
                                        "validation"), runs.tuned_grid(quick))
    best = tuning.best_rates(book, {"tuned": grid})["tuned"]
    later.update(runs.tuned(quick, iterations, best.rate))
    book.results([run for seeds in later.values() for run in seeds])
    found = {name: cell(book.results(seeds))
             for name, seeds in {**first, **later}.items()}
    found[f"mlp/tuned/{ranks}"] = cell(
        book.results(later[f"mlp/tuned/{ranks}"]), edge=best.edge,
        rate=best.rate * runs.RATE["mlp"])
    for name in iterations:
        model, size = name.split("/")
        results = book.results(first[f"{model}/adascale/{size}"])
        found[f"{model}/rounds/{size}"] = cell(results, "rounds",
                                               wanted=False)
        found[f"{model}/mean_gain/{size}"] = cell(results, "mean_gain")
    return found


def series(book: Book, quick: bool) -> dict[str, Any]:
    """The gain in SPANS equal spans of tau, the mean of the seeds
    ("mlp/gain/16"), and where the rate falls ("decays")."""
    first = runs.first(quick)
    found: dict[str, Any] = {"decays": list(rates.DECAYS)}
    for model in runs.TASKS:
        for ranks in runs.sizes(quick):
            results = book.results(first[f"{model}/adascale/{ranks}"])
            found[f"{model}/gain/{ranks}"] = _mean_spans(
                [result["gain"] for result in results])
    return found


def _mean_spans(seeds: list[list[Optional[float]]]
                ) -> list[Optional[float]]:
    """Span by span; None where no round began in one."""
    return [statistics.fmean(there) if there else None
            for there in ([value for value in values if value is not None]
                          for values in zip(*seeds))]


def _sizes(cells_: script.Cells) -> list[int]:
    return sorted({int(name.split("/")[2]) for name in cells_})


def _accuracy(model: str, cells_: script.Cells) -> script.Table:
    sizes = _sizes(cells_)
    alone = statistics.fmean(cells_[f"{model}/one/1"].rounds)
    rows = []
    for arm, words in _ARMS.items():
        row = [words]
        for ranks in sizes:
            found = cells_.get(f"{model}/{arm}/{ranks}")
            row.append(_text(arm, found, ranks, alone) if found else "")
        if any(row[1:]):
            rows.append(row)
    return script.Table(
        f"Test accuracy of the {_MODELS[model]} (iterations; mean gain; "
        "examples, one worker's being 1)",
        [""] + [f"S = {ranks}" for ranks in sizes], rows,
        "What an iteration saves is paid in examples: each worker computes one "
        "batch in each." + (
            " Identity at S = 16 is one seed."
            if "mlp/identity/16" in cells_ and model == "mlp" else ""))


def _text(arm: str, found: Cell, ranks: int, alone: float) -> str:
    """alone: one worker's iterations; an example is counted each time that it is
    computed."""
    rounds = statistics.fmean(found.rounds)
    text = f"{found.text()} ({round(rounds)}"
    if arm == "adascale" and found.gain:
        text += f"; {statistics.fmean(found.gain):.3g}"
    return f"{text}; {ranks * rounds / alone:.2g})"


def _gains(series_: script.Series) -> script.Table:
    rows = []
    for name, values in series_.items():
        if "/gain/" not in name:
            continue
        model, _, ranks = name.split("/")
        rows.append([f"{_MODELS[model]}, S = {ranks}"] + [
            "" if values[span] is None else f"{values[span]:.3g}"
            for span in _SHOWN])
    share = 100 // runs.SPANS
    return script.Table(
        "The gain over training", ["scale-invariant iterations"]
        + [f"{span * share}-{(span + 1) * share}%" for span in _SHOWN], rows,
        "Means of the rounds in a span. The rate falls to a tenth at 50% and "
        "at 80%.")


def tables(cells_: script.Cells, series_: script.Series
           ) -> list[script.Table]:
    return [_accuracy(model, cells_) for model in _MODELS] + [_gains(series_)]


if __name__ == "__main__":
    sys.exit(script.main(sys.modules[__name__], sys.argv[1:]))
