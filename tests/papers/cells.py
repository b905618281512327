"""Numbers of a table: several seeds of one setting, and how two compare."""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import Any, Optional, Sequence

# A difference that counts, in standard errors of it.
CLEAR = 2.0
# Two tables agree up to here.
SAME = 3.0
# No standard deviation of a few seeds is taken for less than this part of the
# mean: numbers are printed with 4 digits.
_LEAST = 1e-4


@dataclasses.dataclass(frozen=True)
class Cell:
    """One setting.

    Attributes:
      values: a score for each seed; None where the run gave no finite one.
      failed: for each seed "", "not finite" or "guesses".
      rounds: of each seed.
      gain: the mean gain of each seed, where a step scale measured one.
      rate: the learning rate, where it was tuned.
      edge: the tuned rate is the smallest or the largest that was tried.
      wanted: more of it is better.
    """

    values: tuple[Optional[float], ...]
    failed: tuple[str, ...] = ()
    rounds: tuple[int, ...] = ()
    gain: tuple[float, ...] = ()
    rate: Optional[float] = None
    edge: bool = False
    wanted: bool = True

    @property
    def finite(self) -> list[float]:
        return [value for value in self.values if value is not None]

    @property
    def failures(self) -> int:
        """Seeds that guess or have overflowed."""
        return sum(1 for word in self.failed if word)

    @property
    def mean(self) -> float:
        """Of the finite values; not a number without one."""
        return statistics.fmean(self.finite) if self.finite else math.nan

    @property
    def deviation(self) -> float:
        """Standard deviation over the seeds; 0 for fewer than two."""
        return statistics.stdev(self.finite) if len(self.finite) > 1 else 0.0

    @property
    def median(self) -> float:
        return statistics.median(self.finite) if self.finite else math.nan

    def text(self, digits: int = 4) -> str:
        """".8823 +- .0008", with what failed and the tuned rate."""
        if self.failures == len(self.values) and "not finite" in self.failed:
            shown = "diverges"
        elif not self.finite:
            shown = "no value"
        else:
            shown = number(self.mean, digits)
            if len(self.finite) > 1:
                shown += " ± " + number(self.deviation, digits)
            if self.failures:
                words = sorted({word for word in self.failed if word})
                shown += (f" ({self.failures} of {len(self.values)} "
                          + " or ".join(words) + ")")
        if self.rate is not None:
            shown += f" (at {self.rate:g}{', edge' if self.edge else ''})"
        return shown


def number(value: float, digits: int = 4) -> str:
    """".8823": no zero before the point, as in tables of accuracies."""
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def cell(results: Sequence[dict[str, Any]], field: str = "score",
         wanted: bool = True, rate: Optional[float] = None,
         edge: bool = False) -> Cell:
    """Of the results of one setting, a seed each.

    field: of the result ("score", "mean_gain", "reached"): the cell's values.
    """
    return Cell(
        values=tuple(result.get(field) for result in results),
        failed=tuple(result.get("failed") or "" for result in results),
        rounds=tuple(int(result.get("rounds") or 0) for result in results),
        gain=tuple(result["mean_gain"] for result in results
                   if result.get("mean_gain") is not None),
        rate=rate, edge=edge, wanted=wanted)


def difference(left: Cell, right: Cell) -> tuple[float, float]:
    """(difference of the means, its standard error), left minus right.

    The error is sqrt(sd^2/n + sd^2/n): Welch's. One seed takes the other
    cell's deviation for its own.
    """
    deviations = [left.deviation, right.deviation]
    for mine, other, it in ((0, 1, left), (1, 0, right)):
        if len(it.finite) < 2:
            deviations[mine] = deviations[other]
    square = sum(max(deviation, _LEAST * abs(it.mean)) ** 2
                 / max(len(it.finite), 1)
                 for deviation, it in zip(deviations, (left, right)))
    return left.mean - right.mean, math.sqrt(square)


def compare(left: Cell, right: Cell, clear: float = CLEAR) -> int:
    """1: left is better, by `clear` standard errors or since only the right one
    fails; -1: worse; 0: neither."""
    fails = [2 * it.failures > len(it.values) or not it.finite
             for it in (left, right)]
    if fails[0] != fails[1]:
        return -1 if fails[0] else 1
    if fails[0]:
        return 0
    apart, error = difference(left, right)
    if abs(apart) <= clear * error:
        return 0
    return 1 if (apart > 0) == left.wanted else -1
