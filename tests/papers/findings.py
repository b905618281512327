"""How the numbers compare with those of an independent simulation: pure.

expected.json has, by script and by the name of a cell,

  [mean, deviation]   of 3 seeds; [mean]: no deviation is known, then ours
  {"failed": n}       so many of 3 seeds guess or overflow
  {"values": [..]}    one for each seed, null where there is none
  {"median", "least", "most"}   least and most where they are known

and under "explained", by script and cell, why ours differ.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import statistics
from typing import Any, Mapping, Optional

from tests.papers.cells import SAME, Cell, number
from tests.papers.script import FOLDER

EXPECTED = FOLDER / "expected.json"
_SEEDS = 3
# No deviation of 3 seeds is taken for less than this part of the mean: the
# numbers are printed with 3 or 4 digits.
_LEAST = 2e-4
# An accuracy below it is of a run that did not train. (Losses fail by not being
# finite.)
_BAD = 0.5
# Medians without a range agree up to this factor.
_FACTOR = 1.1


@dataclasses.dataclass(frozen=True)
class Finding:
    """A cell whose numbers are not the simulation's."""

    cell: str
    ours: str
    theirs: str
    apart: str


def load(path: pathlib.Path = EXPECTED) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return read


def compared(cells: Mapping[str, Cell], expected: Mapping[str, Any]) -> int:
    """How many cells both have."""
    return sum(1 for name in expected if name in cells)


def findings(cells: Mapping[str, Cell], expected: Mapping[str, Any]
             ) -> list[Finding]:
    """Of the cells that both have, those that differ."""
    found = []
    for name, theirs in expected.items():
        if name in cells:
            apart = _apart(cells[name], theirs)
            if apart:
                found.append(Finding(name, _ours(cells[name], theirs),
                                     _theirs(theirs), apart))
    return found


def _apart(ours: Cell, theirs: Any) -> str:
    """In what they differ; nothing if they agree."""
    if isinstance(theirs, list):
        return _means(ours, theirs[0], theirs[1] if len(theirs) > 1 else None,
                      _SEEDS)
    if "failed" in theirs:
        # Ours may have more seeds.
        if abs(ours.failures / len(ours.values)
               - theirs["failed"] / _SEEDS) < .5:
            return ""
        return (f"{ours.failures} of {len(ours.values)} fail, "
                f"{theirs['failed']} there")
    if "values" in theirs:
        return _values(ours, theirs["values"])
    return _medians(ours, theirs)


def _means(ours: Cell, mean: float, deviation: Optional[float], seeds: int
           ) -> str:
    # Where theirs is a good one, a seed that fails is no number to average.
    if ours.failures and (mean > _BAD or "not finite" in ours.failed):
        return f"{ours.failures} of {len(ours.values)} fail"
    if not ours.finite:
        return "there is no value"
    own = ours.deviation if len(ours.finite) > 1 else deviation or 0.0
    other = own if deviation is None else deviation
    error = math.hypot(*(
        max(spread, _LEAST * abs(mean)) / math.sqrt(count)
        for spread, count in ((own, len(ours.finite)), (other, seeds))))
    apart = (ours.mean - mean) / error
    return f"{apart:+.1f} standard errors" if abs(apart) > SAME else ""


def _values(ours: Cell, theirs: list[Optional[float]]) -> str:
    reached = [value for value in theirs if value is not None]
    # Ours may have fewer seeds.
    apart = len(ours.finite) / len(ours.values) - len(reached) / len(theirs)
    if abs(apart) > 0.5:
        return (f"{len(ours.finite)} of {len(ours.values)} get there, "
                f"{len(reached)} of {len(theirs)} there")
    if len(reached) < 2 or len(ours.finite) < 2:
        return ""
    return _means(dataclasses.replace(ours, failed=()),
                  statistics.fmean(reached), statistics.stdev(reached),
                  len(reached))


def _medians(ours: Cell, theirs: Mapping[str, float]) -> str:
    if not ours.finite:
        return "there is no value"
    if "least" in theirs:
        inside = theirs["least"] <= ours.median <= theirs["most"]
    else:
        ratio = ours.median / theirs["median"]
        inside = (min(ours.finite) <= theirs["median"] <= max(ours.finite)
                  or 1 / _FACTOR <= ratio <= _FACTOR)
    return "" if inside else f"{ours.median / theirs['median']:.2g} times"


def _ours(ours: Cell, theirs: Any) -> str:
    if isinstance(theirs, dict) and "median" in theirs and ours.finite:
        return (f"median {ours.median:.2g} "
                f"[{min(ours.finite):.2g}, {max(ours.finite):.2g}]")
    if isinstance(theirs, dict) and "values" in theirs:
        return _list(ours.values)
    if isinstance(theirs, list) and abs(theirs[0]) >= 10:
        return f"{ours.mean:.4g} ± {ours.deviation:.2g}"
    return dataclasses.replace(ours, rate=None).text()


def _theirs(theirs: Any) -> str:
    if isinstance(theirs, list):
        shown = (f"{theirs[0]:.4g}" if abs(theirs[0]) >= 10
                 else number(theirs[0]))
        return shown + (f" ± {number(theirs[1])}" if len(theirs) > 1 else "")
    if "failed" in theirs:
        return f"{theirs['failed']} of {_SEEDS} fail"
    if "values" in theirs:
        return _list(theirs["values"])
    shown = f"median {theirs['median']:.2g}"
    if "least" in theirs:
        shown += f" [{theirs['least']:.2g}, {theirs['most']:.2g}]"
    return shown


def _list(values: Any) -> str:
    return ", ".join("never" if value is None else f"{value:.1f}"
                     for value in values)
