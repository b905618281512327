"""What a round log says of the number of workers, of rules and of mistakes."""

from __future__ import annotations

import argparse
import math
import sys
from typing import NamedTuple, Optional, Sequence

import numpy as np

from agg_server.comparison import Interval, RuleScore, blocks_of, compare
from agg_server.errors import Error, ManifestError
from agg_server.round_log import RoundLog

# Rows of different data are never so near to each other; equal ones are, to
# rounding.
_EQUAL_COSINE = 1 - 1e-9
# A row that is so much longer than the median one decides alone.
_LONG = 3.0
_MAX_NAMED = 4


class Advice(NamedTuple):
    """What advise() has found.

    workers: what the number of workers is worth, in words.
    rules: what the shadow rules would do better or worse, in words.
    warnings: what looks like a mistake, in words; the first thing to read.
    critical_batch: examples, with its 95% interval.
    batch: examples of a round, the mean.
    gain: by the number of workers: one-worker steps that a round is worth.
    scores: of the applied rule (the first one) and the shadow rules.
    """
    workers: list[str]
    rules: list[str]
    warnings: list[str]
    critical_batch: Interval
    batch: float
    gain: dict[int, float]
    scores: list[RuleScore]

    def __str__(self) -> str:
        return "\n".join(
            [f"warning: {line}" for line in self.warnings]
            + [f"workers: {line}" for line in self.workers]
            + [f"rules: {line}" for line in self.rules])


def noise_ratio(sigma2: np.ndarray, mu2: np.ndarray) -> Interval:
    """sigma^2 / mu^2 of one worker's gradient, with a 95% interval by the
    jackknife over blocks of rounds. NaN: mu^2 is not above 0, so that the
    rounds show nothing but noise."""
    top, bottom = blocks_of(sigma2), blocks_of(mu2)
    if not len(top) or not bottom.mean() > 0:
        return Interval(math.nan, math.nan, math.nan)
    mean = float(top.mean() / bottom.mean())
    if len(top) < 3:
        return Interval(mean, math.nan, math.nan)
    number = len(top)
    left = (top.sum() - top) / (bottom.sum() - bottom)
    deviation = math.sqrt((number - 1) / number
                          * float(np.square(left - left.mean()).sum()))
    # 2.262: Student's t of 10 blocks; fewer blocks come of fewer rounds.
    half = 2.262 * deviation
    return Interval(mean, max(mean - half, 0.0), mean + half)


def gain_of(units: float, ratio: float) -> float:
    """AdaScale's gain (sigma^2 + mu^2) / (sigma^2 / S + mu^2) of S units."""
    return (ratio + 1) / (ratio / units + 1)


def _names(ranks: Sequence[int]) -> str:
    more = len(ranks) - _MAX_NAMED
    return ", ".join(str(rank) for rank in ranks[:_MAX_NAMED]) + (
        f" and {more} more" if more > 0 else "")


def _equal_ranks(log: RoundLog, rounds: Sequence[int]) -> list[int]:
    """Ranks whose row is another one's, in most of these rounds."""
    times: dict[int, int] = {}
    for index in rounds:
        cosines = log.cosines(index)
        norms = np.sqrt(np.diagonal(log.gram(index)))
        with np.errstate(invalid="ignore", divide="ignore"):
            equal = (cosines > _EQUAL_COSINE) & (
                np.abs(norms[:, None] / norms[None, :] - 1) < 1e-6)
        np.fill_diagonal(equal, False)
        for rank in log.ranks_of(index)[:len(equal)][equal.any(axis=1)]:
            times[int(rank)] = times.get(int(rank), 0) + 1
    return sorted(rank for rank, number in times.items()
                  if 2 * number > len(rounds))


def _warnings(log: RoundLog, rounds: np.ndarray) -> list[str]:
    found = []
    equal = _equal_ranks(log, [int(each) for each in rounds])
    if equal:
        found.append(
            f"ranks {_names(equal)} push rows that are equal to another "
            "rank's: they compute on the same data and add nothing. Give each "
            "worker its own part (a DistributedSampler, a seed by rank)")
    gain = log.gain[rounds]
    if (log.num_included[rounds] > 1).all() and np.nanmax(
            np.abs(gain - 1), initial=0) < 5e-5:
        found.append("the gain is 1.0000 in every round: all workers' rows "
                     "are the same, or are not independent of each other")
    norms, examples = log.rows("norm")[rounds], log.rows("examples")[rounds]
    norms = np.where(log.included[rounds], norms, np.nan)
    if np.isfinite(norms).any():
        seen = np.isfinite(norms).any(axis=0)
        typical = np.nanmedian(norms[:, seen], axis=0)
        long = typical > _LONG * np.median(typical)
        if long.any():
            found.append(
                f"ranks {_names(log.ranks[seen][long].tolist())} push rows "
                f"more than {_LONG:g} times as long as the median rank's: a "
                "mean follows them alone. Other data, a loss that is summed, "
                "or a loss scale that was not said?")
    counts = examples[np.isfinite(examples)]
    if len(counts) and counts.min() < counts.max() and \
            log.rule[int(rounds[-1])] == "mean":
        found.append(
            f"rows have {counts.min():g} to {counts.max():g} examples, and "
            'the rule "mean" counts them alike: "weighted_mean" counts '
            "examples")
    left_out = log.rows("excluded")[rounds] == 1
    often = left_out.mean(axis=0) > 0.1
    if often.any():
        found.append(f"ranks {_names(log.ranks[often].tolist())} are left out "
                     "of more than a tenth of the rounds: messages say why")
    skipped = int(np.count_nonzero(~log.applied[rounds]))
    if skipped:
        found.append(f"{skipped} of {len(rounds)} rounds were skipped")
    return found


def _workers(log: RoundLog, rounds: np.ndarray
             ) -> tuple[list[str], Interval, float, dict[int, float]]:
    batch = float(log.examples[rounds].mean())
    usable = rounds[np.isfinite(log.sigma2[rounds])
                    & np.isfinite(log.mu2[rounds])]
    ratio = noise_ratio(log.sigma2[usable], log.mu2[usable])
    nothing = Interval(math.nan, math.nan, math.nan)
    if not len(usable) or not math.isfinite(ratio.mean):
        return (["the rounds show nothing but noise, or one row each: what "
                 "more workers are worth cannot be said"], nothing, batch, {})
    # Examples of one unit, whose sigma2 and mu2 these are.
    units = log.gradient_noise_scale[usable] * log.mu2_mean[usable] / np.where(
        log.sigma2_mean[usable] > 0, log.sigma2_mean[usable], np.nan)
    unit = float(np.nanmedian(units)) if np.isfinite(units).any() else math.nan
    critical = Interval(*(unit * each for each in ratio))
    now = int(log.num_included[usable[-1]])
    per_worker = batch / unit / now if math.isfinite(unit) else 1.0
    tried = sorted({now, *(2 ** k for k in range(12) if 2 ** k <= 4 * now)})
    gain = {number: gain_of(number * per_worker, ratio.mean)
            for number in tried}
    ends = [gain_of(now * per_worker, each) for each in ratio[1:]]
    lines = [
        f"{now} workers make a round worth {gain[now]:.3g} one-worker steps "
        f"({ends[0]:.3g} to {ends[1]:.3g}); " + ", ".join(
            f"{number}: {value:.3g}" for number, value in gain.items()
            if number != now)
        + f"; any number: less than {ratio.mean + 1:.3g}",
        f"critical batch {critical} examples; the rounds have {batch:.4g}"]
    if batch < critical.low:
        more = gain_of(2 * now * per_worker, ratio.mean) / gain[now] - 1
        lines.append("more workers, or larger batches, still pay: twice as "
                     f"many make a round worth {more:.0%} more")
    elif batch > critical.high:
        lines.append("the rounds have more than the critical batch: fewer "
                     "workers would waste fewer examples")
    return lines, critical, batch, gain


def _rules(log: RoundLog, last: int) -> tuple[list[str], list[RuleScore]]:
    newest = len(log) - 1
    applied = f"{log.rule[newest]}/{log.scope[newest]}"
    names = [applied, *(name for name, shadow in log.shadows.items()
                        if name != applied and math.isfinite(
                            shadow.norm[newest]))]
    if len(names) == 1:
        return (["the job has no shadow rules: shadow_rules { rule: "
                 '"adasum" } costs a round nothing'], [])
    lines: list[str] = []
    scores: list[RuleScore] = []
    for name in names[1:]:
        if "#" in name:
            lines.append(f"{name} cannot be judged: its options are not in the "
                         "log")
            continue
        try:
            first, score = compare(log, [applied, name], last)
        except Error as error:
            lines.append(f"{name} cannot be judged: {error}")
            continue
        scores = [first, *scores[1:], score]
        what = (f"{name} and {applied} are undecided"
                if score.verdict == "undecided" else
                f"{name} would be {score.verdict} than {applied}")
        lines.append(
            f"{what}: progress along the true gradient "
            f"{score.difference.mean:+.2%} ({score.difference.low:+.2%} to "
            f"{score.difference.high:+.2%})")
    return lines, scores


def advise(log: RoundLog, last: int = 200) -> Advice:
    """What the last rounds of a log say: how many workers are worth it, which
    shadow rule would go farther, and what looks like a mistake.

        print(agg.advise(agg.RoundLog("rounds.binlog")))

    The gain of S workers follows from sigma^2 and mu^2 of one worker's gradient
    (server/combine/README.md 5), the intervals from blocks of rounds, the rules
    from compare(), with the rules' default options. It holds for the parameters
    of these rounds: noise grows as training goes on.

    Args:
      last: rounds to look at, at most; rules are judged by half of them.

    Raises ManifestError: the log has no round.
    """
    if not len(log):
        raise ManifestError(f"{log.path} has no round yet")
    rounds = np.arange(max(len(log) - last, 0), len(log))
    workers, critical, batch, gain = _workers(log, rounds)
    rules, scores = _rules(log, max(last // 2, 2))
    return Advice(workers, rules, _warnings(log, rounds), critical, batch, gain,
                  scores)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """aggctl advise."""
    parser = argparse.ArgumentParser(
        "aggctl advise", description="Says how many workers a job is worth, "
        "which shadow rule would go farther, and what looks like a mistake, "
        "from its round log.")
    parser.add_argument("log", nargs="+", help="round_log's path; files that "
                        "were renamed before it, in their order")
    parser.add_argument("--last", type=int, default=200, metavar="ROUNDS",
                        help="rounds to look at, at most")
    options = parser.parse_args(arguments)
    if options.last < 2:
        parser.error(f"--last is {options.last}; allowed: 2 or more")
    try:
        print(advise(RoundLog(*options.log), options.last))
    except Error as error:
        print(f"aggctl advise: {error}", file=sys.stderr)
        return 2
    return 0


__all__ = ["Advice", "advise", "gain_of", "main", "noise_ratio"]
