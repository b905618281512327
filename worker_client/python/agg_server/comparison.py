"""Which rule's direction is nearer to the true gradient, from a round log."""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, NamedTuple, Sequence, Union

import numpy as np

from agg_server.errors import ManifestError
from agg_server.offline import combine_steps
from agg_server.round_log import RoundLog

# Means of so many blocks of consecutive rounds take the place of single rounds,
# which are not independent of each other.
_BLOCKS = 10
# Student's t, 97.5%, by degrees of freedom; from 10 on near enough to 9's.
_T975 = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
         2.262)
Rule = Union[str, Callable[[np.ndarray, Any], Any]]
# Weights of the Gram matrices of rounds, and of the rows' examples in each.
_Weigh = Callable[[Sequence[np.ndarray], np.ndarray], Sequence[np.ndarray]]
# Workers that take their turn as the one that is left out.
_MAX_HELD_OUT = 8


class Interval(NamedTuple):
    """A mean, and the ends of its 95% interval; NaN where nothing is known."""
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.4g} ({self.low:.4g} to {self.high:.4g})"


def blocks_of(values: np.ndarray) -> np.ndarray:
    """Means of up to 10 blocks of consecutive values. float64."""
    number = min(_BLOCKS, len(values))
    return np.array([part.mean() for part in np.array_split(values, number)]
                    if number else [], np.float64)


def interval_of(values: np.ndarray) -> Interval:
    """Of the mean of a series of rounds, by the means of its blocks."""
    means = blocks_of(np.asarray(values, np.float64))
    if len(means) < 2:
        only = float(means[0]) if len(means) else math.nan
        return Interval(only, math.nan, math.nan)
    half = (_T975[len(means) - 1] * float(means.std(ddof=1))
            / math.sqrt(len(means)))
    center = float(np.mean(values))
    return Interval(center, center - half, center + half)


class RuleScore(NamedTuple):
    """How one rule did in the rounds that were looked at.

    progress: the mean over the rounds and over the workers that were left out
      of <u, g> / ||u||, divided by that of the first rule: u is the rule's
      combination of the other workers' rows, g the row that was left out.
    difference: of this rule's progress and the first rule's, in parts of the
      first one's, with its 95% interval over blocks of rounds.
    verdict: "better", "worse" or "undecided" (the interval has 0 in it), as
      compared with the first rule, which is "first".
    """
    rule: str
    progress: float
    difference: Interval
    verdict: str


def _rounds(log: RoundLog, last: int) -> tuple[list[int], np.ndarray]:
    """The last rounds with the same finite rows as the last one, and those."""
    found: list[int] = []
    ranks = np.empty(0, np.int32)
    for index in reversed(range(len(log))):
        gram = log.gram(index)
        if not log.applied[index] or not gram.size or \
                not np.isfinite(gram).all():
            continue
        own = log.ranks_of(index)[:len(gram)]
        if not found:
            ranks = own
        if np.array_equal(own, ranks):
            found.append(index)
        if len(found) == last:
            break
    return found[::-1], ranks


def _root(gram: np.ndarray) -> np.ndarray:
    """Rows with these inner products."""
    values, vectors = np.linalg.eigh(gram)
    result: np.ndarray = vectors * np.sqrt(np.maximum(values, 0.0))
    return result


def _segments(log: RoundLog, index: int, scope: str) -> list[np.ndarray]:
    if scope == "global":
        return [log.gram(index)]
    return [log.gram(index, tensor) for tensor in log.tensors]


def _weigher(rule: Rule, options: Mapping[str, Any]) -> _Weigh:
    """What makes weights of Gram matrices, those of one round after the
    other."""
    if not callable(rule):
        name = _split(rule)[0]
        if name == "weighted_mean":
            # Its weights are no matter of the Gram matrix, and examples change
            # from round to round, which agg_combine knows no way to say.
            if options:
                raise ManifestError(
                    f'the options of "{rule}" are {dict(options)}; allowed: '
                    "none, since the log's examples are its weights")
            return lambda grams, examples: [
                each / each.sum() for each in examples]
        return lambda grams, examples: [
            step.coefficients for step in combine_steps(
                [_root(gram) for gram in grams], name, **options)]
    decide = rule

    def call(grams: Sequence[np.ndarray], _: np.ndarray) -> list[np.ndarray]:
        found = [np.asarray(decide(gram, None), np.float64) for gram in grams]
        for weights, gram in zip(found, grams):
            if weights.shape != (len(gram),) or \
                    not np.isfinite(weights).all():
                raise ManifestError(
                    f"{_label(rule)} gave {weights} for {len(gram)} rows; "
                    "allowed: a finite weight for each row")
        return found

    return call


def _label(rule: Rule) -> str:
    return getattr(rule, "__name__", "a function") if callable(rule) else rule


def _progress(grams: Sequence[Sequence[np.ndarray]], examples: np.ndarray,
              held_out: int, weigh: _Weigh) -> np.ndarray:
    """<u, g> / ||u|| of each round, of the row that is left out."""
    others = np.delete(np.arange(len(grams[0][0])), held_out)
    along = np.zeros(len(grams))
    squared = np.zeros(len(grams))
    for segment in range(len(grams[0])):
        of_rounds = [each[segment] for each in grams]
        found = weigh([gram[np.ix_(others, others)] for gram in of_rounds],
                      examples[:, others])
        for place, (gram, weights) in enumerate(zip(of_rounds, found)):
            along[place] += weights @ gram[others, held_out]
            squared[place] += weights @ gram[np.ix_(others, others)] @ weights
    lengths = np.sqrt(np.maximum(squared, 0.0))
    return np.divide(along, lengths, out=np.zeros(len(grams)),
                     where=lengths > 0)


def _split(rule: Rule) -> tuple[str, str]:
    if callable(rule):
        return "", "global"
    name, _, scope = rule.partition("/")
    if scope not in ("", "global", "per_tensor"):
        raise ManifestError(f'rule is "{rule}"; allowed: a rule\'s name, with '
                            '"/global" or "/per_tensor" behind it')
    return name, scope or "global"


def compare(log: RoundLog,
            rules: Sequence[Union[Rule, tuple[Rule, Mapping[str, Any]]]],
            last: int = 100) -> list[RuleScore]:
    """Compares rules on the Gram matrices of a log, without training.

        for score in agg.compare(log, ["mean", "adasum", "adacons"]):
            print(score.rule, score.difference, score.verdict)

    In turn one worker is left out. The rule combines the others' rows, by the
    server's own code; the row that was left out, which the rule has not seen,
    tells without bias how far that direction goes along the true gradient. The
    length of u does not count: a rate would make up for it. "weighted_mean"
    weighs by the examples that the log has of each row. It says what a rule
    does with these gradients, and not where training with it would have led.

    Args:
      log: with the rounds of the job.
      rules: "RULE", "RULE/global" or "RULE/per_tensor" (which needs round_log {
        grams: "per_tensor" }), or a pair of that and options of combine(). Or a
        rule of your own: a function decide(gram, info) that makes a weight for
        each row of their Gram matrix (float64, P x P; info is None here). The
        first one is what the others are compared with.
      last: rounds with the ranks of the last one, at most, that are looked at.

    Raises ManifestError: there is no such rule, or too little in the log.
    """
    named: list[tuple[Rule, Mapping[str, Any]]] = [
        rule if isinstance(rule, tuple) else (rule, {}) for rule in rules]
    scopes = {_split(rule)[1] for rule, _ in named}
    indices, ranks = _rounds(log, last)
    if "per_tensor" in scopes:
        indices = [index for index in indices
                   if _segments(log, index, "per_tensor")[0].shape
                   == log.gram(index).shape]
    if len(indices) < 2 or len(ranks) < 3:
        raise ManifestError(
            f"{log.path} has {len(indices)} rounds of {len(ranks)} workers to "
            "compare rules with; allowed: 2 rounds or more of the same 3 or "
            "more workers"
            + (', with round_log { grams: "per_tensor" }'
               if "per_tensor" in scopes else ""))
    held_out = np.unique(np.linspace(
        0, len(ranks) - 1, min(len(ranks), _MAX_HELD_OUT)).astype(int))
    examples = log.rows("examples")[indices][
        :, np.searchsorted(log.ranks, ranks)]
    series: list[np.ndarray] = []
    for rule, options in named:
        grams = [_segments(log, index, _split(rule)[1]) for index in indices]
        weigh = _weigher(rule, options)
        series.append(np.mean([_progress(grams, examples, row, weigh)
                               for row in held_out], axis=0))
    first = abs(float(series[0].mean())) or math.nan
    return [_score(_label(rule), values, series[0], first, place == 0)
            for place, ((rule, _), values) in enumerate(zip(named, series))]


def _score(rule: str, values: np.ndarray, first_values: np.ndarray,
           first: float, is_first: bool) -> RuleScore:
    difference = interval_of((values - first_values) / first)
    verdict = ("first" if is_first else "better" if difference.low > 0
               else "worse" if difference.high < 0 else "undecided")
    return RuleScore(rule, float(values.mean()) / first, difference, verdict)


__all__ = ["Interval", "RuleScore", "blocks_of", "compare", "interval_of"]
