"""Learning rates, chosen on validation examples; a test never sees them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Mapping, Sequence

from tests.papers.results import Book

# Makes the runs of a grid: (rate, seed) -> Run with evaluate="validation".
MakeRun = Callable[[float, int], Any]


@dataclasses.dataclass(frozen=True)
class Best:
    """What a grid gave.

    Attributes:
      rate: the best one.
      edge: it is the least or the largest of the grid.
      scores: the worst seed's score of each rate, not a number where a seed
        failed.
    """

    rate: float
    edge: bool
    scores: Mapping[float, float]


@dataclasses.dataclass(frozen=True)
class Grid:
    """Rates for one setting, and the runs that try them."""

    make_run: MakeRun
    rates: Sequence[float]
    seeds: Sequence[int] = (0,)


def best_rates(book: Book, grids: Mapping[Any, Grid], higher: bool = True
               ) -> dict[Any, Best]:
    """The best rate of each grid; all runs at once, so that no core waits.

    A rate of which a seed fails is never the best, unless all do: then it is
    the least. Of equal ones the least. Grids are not widened: `edge` says that
    a better rate may lie outside.
    Raises ValueError: a grid without rates or seeds, or a run of it that is not
    scored by validation examples.
    """
    runs = []
    for name, grid in grids.items():
        if not grid.rates or not grid.seeds:
            raise ValueError(f"the grid {name} has {len(grid.rates)} rates and "
                             f"{len(grid.seeds)} seeds; allowed: 1 or more")
        for rate in grid.rates:
            for seed in grid.seeds:
                run = grid.make_run(rate, seed)
                if run.evaluate != "validation":
                    raise ValueError(f"a run of the grid {name} is scored by "
                                     f'"{run.evaluate}"; allowed: "validation"')
                runs.append(run)
    results = iter(book.results(runs))
    best = {}
    for name, grid in grids.items():
        scores = {rate: _score([next(results) for _ in grid.seeds], higher)
                  for rate in grid.rates}
        best[name] = _best(scores, higher)
    return best


def best_rate(book: Book, make_run: MakeRun, grid: Sequence[float],
              seeds: Sequence[int] = (0,), higher: bool = True) -> Best:
    """best_rates() of one grid."""
    return best_rates(book, {"": Grid(make_run, grid, seeds)}, higher)[""]


def _score(results: Sequence[Mapping[str, Any]], higher: bool) -> float:
    """Of the worst seed: a rate that is good on average and fails now and then
    is nobody's best."""
    scores = [math.nan if result.get("failed") or result.get("score") is None
              else float(result["score"]) for result in results]
    if any(map(math.isnan, scores)):
        return math.nan
    return min(scores) if higher else max(scores)


def _best(scores: Mapping[float, float], higher: bool) -> Best:
    rates = sorted(scores)
    sign = 1 if higher else -1
    fine = [rate for rate in rates if not math.isnan(scores[rate])]
    rate = (max(fine, key=lambda rate: (sign * scores[rate], -rate)) if fine
            else rates[0])
    return Best(rate, len(rates) > 1 and rate in (rates[0], rates[-1]), scores)
