"""AdaScale with workers that come and go, as the second table of its paper has it.

    python -m tests.papers.elastic [--quick]

The MLP and the CNN on Fashion-MNIST with AdaScale's schedule (adascale.py), where
the number of workers changes in the running job: 4, 16, then 64, or back, at a
quarter and at half of one worker's iterations. Linear scaling with warm-up (LSW)
stands beside, and one worker.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any, Optional

from tests.papers import adascale_runs, rates, script
from tests.papers.adascale_runs import RATE, TASKS, WARMUP
from tests.papers.cells import Cell, cell, compare, number
from tests.papers.description import Run
from tests.papers.results import Book
from tests.papers.script import Cells, Claim, Series, Verdict, each

NAME = "elastic"
TITLE = "AdaScale with workers that come and go"

# Of one worker's iterations.
CHANGES = (.25, .5)
_MODELS = {"mlp": "MLP", "cnn": "CNN"}
_ARMS = {"adascale": "AdaScale", "lsw": "linear + warm-up (LSW)"}
_WAYS = {"up": "4, 16, then 64", "down": "64, 16, then 4"}

Runs = dict[str, list[Run]]


def adascale(model: str, way: list[int], seed: int, total: int) -> Run:
    """`way`: the numbers of workers, one after another."""
    return adascale_runs.make(
        model, way[0], seed, total, rates.step_decay(RATE[model], total),
        "adascale", scale_invariant_iterations=total,
        later_ranks=tuple(zip(CHANGES, way[1:])))


def lsw(model: str, way: list[int], seed: int, total: int) -> Run:
    """Each number of workers for its share of one worker's iterations; the
    server multiplies the rate with what it has."""
    ends = [*CHANGES, 1.]
    shares = [end - begin for begin, end in zip([0., *CHANGES], ends)]
    lengths = [max(1, round(share * total / ranks))
               for share, ranks in zip(shares, way)]
    rounds = sum(lengths)

    def rounds_at(share: float) -> float:
        """Of one worker's iterations."""
        done, begin = 0., 0.
        for end, length in zip(ends, lengths):
            if share <= end:
                return done + length * (share - begin) / (end - begin)
            done, begin = done + length, end
        return done

    rate = {**rates.step_decay(RATE[model], rounds, WARMUP, 1 / way[0]),
            "boundaries": [rounds_at(share) for share in rates.DECAYS]}
    # Half a round early: which round begins a share is no matter of rounding.
    return adascale_runs.make(
        model, way[0], seed, rounds, rate, "linear", later_ranks=tuple(
            ((rounds_at(share) - .5) / rounds, ranks)
            for share, ranks in zip(CHANGES, way[1:])))


def runs(quick: bool) -> Runs:
    """By "mlp/adascale/up" and "mlp/one", with five seeds."""
    total = adascale_runs.length(quick)
    seeds = range(1 if quick else 5)
    up = [1, 2, 4] if quick else list(adascale_runs.sizes(quick))
    found: Runs = {}
    for model in TASKS:
        found[f"{model}/one"] = [adascale_runs.plain(model, 1, seed, total)
                                 for seed in seeds]
        for arm, make in (("adascale", adascale), ("lsw", lsw)):
            for name, way in (("up", up), ("down", up[::-1])):
                found[f"{model}/{arm}/{name}"] = [
                    make(model, way, seed, total) for seed in seeds]
    return found


def cells(book: Book, quick: bool) -> dict[str, Cell]:
    """By the names of runs()."""
    found = runs(quick)
    # All at once, so that no core waits.
    book.results([run for seeds in found.values() for run in seeds])
    return {name: cell(book.results(seeds)) for name, seeds in found.items()}


def series(_book: Book, _quick: bool) -> dict[str, Any]:
    """None."""
    return {}


def _text(found: Cell) -> str:
    return f"{found.text()} ({round(statistics.fmean(found.rounds))})"


def tables(cells_: Cells, _: Series) -> list[script.Table]:
    rows = [["one worker"] + [_text(cells_[f"{model}/one"])
                              for model in _MODELS]]
    rows += [[f"{words}, {numbers}"]
             + [_text(cells_[f"{model}/{arm}/{way}"]) for model in _MODELS]
             for way, numbers in _WAYS.items() for arm, words in _ARMS.items()]
    return [script.Table(
        "Test accuracy where the number of workers changes (iterations)",
        ["", *_MODELS.values()], rows,
        "Mean and standard deviation of five seeds. Sessions join and leave "
        "the running job at 25% and 50% of one worker's iterations: of tau with "
        "AdaScale, of examples with LSW.")]


def survives_changes(cells_: Cells, _: Series) -> Verdict:
    """Jobs whose workers change are not worse than one worker; LSW's beside."""
    found: list[Optional[bool]] = []
    words = []
    for model, name in _MODELS.items():
        one = cells_[f"{model}/one"]
        for way in _WAYS:
            ours = cells_[f"{model}/adascale/{way}"]
            made = compare(ours, one)
            found.append(made.not_worse())
            words.append(f"{name} {way}: {ours.text()}, one worker "
                         f"{number(one.mean)} ({made.text()}), LSW "
                         + cells_[f"{model}/lsw/{way}"].text())
    return each(found), "; ".join(words)


CLAIMS = [
    Claim("AdaScale", "It keeps the quality when the number of workers changes "
          "on the way.", survives_changes),
]


if __name__ == "__main__":
    sys.exit(script.main(sys.modules[__name__], sys.argv[1:]))
