"""Numbers of a table: several seeds of one setting, and how two compare.

Needs scipy, for Student's t distribution."""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import Any, Optional, Sequence

from scipy import stats

BETTER, EQUAL, WORSE, UNDECIDED = "better", "equal", "worse", "undecided"
# Of the interval of a difference.
LEVEL = .95
# A difference of accuracies, or of losses in nats, that does not count.
MARGIN = .005
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


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How one cell stands to another.

    Attributes:
      apart: the difference of the means, positive where the left one is better;
        infinite where the other one alone fails.
      half: half of the 95% interval around it; not a number where no interval
        can be had: one seed, or both fail.
      p: of the hypothesis that the two do not differ, two-sided.
      freedom: degrees of freedom of the t distribution.
      paired: seed by seed; otherwise Welch's.
      margin: a difference that does not count.
    """

    apart: float
    half: float
    p: float = math.nan
    freedom: float = math.nan
    paired: bool = False
    margin: float = MARGIN

    @property
    def verdict(self) -> str:
        """One of BETTER, EQUAL, WORSE, UNDECIDED.

        EQUAL: the interval lies within the margin. BETTER, WORSE: it does not,
        and it lies on one side of 0. UNDECIDED: all else, so that more seeds
        are needed.
        """
        low, high = self.apart - self.half, self.apart + self.half
        if -self.margin <= low and high <= self.margin:
            return EQUAL
        return BETTER if low > 0 else WORSE if high < 0 else UNDECIDED

    def better(self) -> Optional[bool]:
        """None: undecided."""
        verdict = self.verdict
        return None if verdict == UNDECIDED else verdict == BETTER

    def not_worse(self) -> Optional[bool]:
        """Not worse by more than the margin. None: undecided."""
        if self.apart - self.half >= -self.margin:
            return True
        return False if self.verdict == WORSE else None

    def text(self) -> str:
        """"better: +.0112 ± .0024, paired, 9 df, p < .001"."""
        if math.isinf(self.apart):
            return f"{self.verdict}: one of them fails"
        if math.isnan(self.half):
            return f"{self.verdict}: no interval"
        sign = "-" if self.apart < 0 else "+"
        chance = "p < .001" if self.p < .001 else f"p {number(self.p, 3)}"
        return (f"{self.verdict}: {sign}{number(abs(self.apart))} ± "
                f"{number(self.half)}, "
                f"{'paired' if self.paired else 'Welch'}, "
                f"{self.freedom:.3g} df, {chance}")


def _error(left: Cell, right: Cell) -> tuple[float, float, bool]:
    """(standard error of the difference, degrees of freedom, whether paired).

    Cells with as many seeds are compared seed by seed: a seed fixes the initial
    weights and the batches. Otherwise by Welch's test with the degrees of
    freedom of Welch and Satterthwaite.
    """
    least = _LEAST * max(abs(left.mean), abs(right.mean))
    counts = len(left.finite), len(right.finite)
    if (counts[0] == counts[1] == len(left.values) == len(right.values)
            and counts[0] > 1):
        spread = statistics.stdev(
            mine - other for mine, other in zip(left.finite, right.finite))
        return (max(spread, least) / math.sqrt(counts[0]), counts[0] - 1, True)
    if min(counts) < 2:
        return math.nan, math.nan, False
    parts = [max(cell_.deviation, least) ** 2 / count
             for cell_, count in zip((left, right), counts)]
    freedom = sum(parts) ** 2 / sum(
        part ** 2 / (count - 1) for part, count in zip(parts, counts))
    return math.sqrt(sum(parts)), freedom, False


def compare(left: Cell, right: Cell, margin: float = MARGIN) -> Comparison:
    """A cell of which most seeds fail is worse than one of which they do not."""
    fails = [2 * it.failures > len(it.values) or not it.finite
             for it in (left, right)]
    if fails[0] and fails[1]:
        return Comparison(0., math.nan, margin=margin)
    if fails[0] or fails[1]:
        return Comparison(-math.inf if fails[0] else math.inf, 0.,
                          margin=margin)
    sign = 1 if left.wanted else -1
    apart = sign * (left.mean - right.mean)
    error, freedom, paired = _error(left, right)
    if math.isnan(error):
        return Comparison(apart, math.nan, margin=margin)
    return Comparison(
        apart, float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * error,
        float(2 * stats.t.sf(abs(apart) / error, freedom)), freedom, paired,
        margin)
