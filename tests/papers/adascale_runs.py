"""The runs of AdaScale's experiment, by the name of their cell.

A cell is "mlp/adascale/16": model, arm, workers. The arms:

  one        one worker, the baseline
  adascale   its schedule at tau, until tau is its number of iterations
  lsw        linear scaling with warm-up, a S-th of its iterations
  lsw+       the same, stretched to as many iterations as AdaScale made
  linear     linear scaling, no warm-up, a S-th of its iterations
  same_rate  its rate, a S-th of its iterations
  identity   its rate, all of its iterations
  tuned      a plain mean with a rate of its own, AdaScale's iterations

"elastic/mlp/adascale/up" and ".../lsw/down": the number of workers changes in the
running job, at a quarter and at half of one worker's iterations, from the least of
sizes() to the largest or back.
"""

from __future__ import annotations

import math
from typing import Any, Mapping

from tests.papers import rates
from tests.papers.description import Run

TASKS = {"cnn": "fashion_cnn", "mlp": "fashion_mlp"}
# Tuned for one worker.
RATE = {"mlp": .02, "cnn": .01}
BATCH = 32
PASSES = 8
WARMUP = .055
SPANS = 20  # of a run with AdaScale, of equal scale-invariant iterations

Runs = dict[str, list[Run]]


def sizes(quick: bool) -> tuple[int, ...]:
    """The numbers of workers besides 1."""
    return (4,) if quick else (4, 16, 64)


def seeds(quick: bool) -> range:
    return range(1 if quick else 3)


def length(quick: bool) -> int:
    """T_SI: one worker's iterations, 13750 at full length."""
    return 24 if quick else rates.rounds(PASSES, 1, BATCH)


def _run(model: str, ranks: int, seed: int, rounds: int, rate: rates.Rate,
         step_scale: str = "none", **fields: Any) -> Run:
    return Run(task=TASKS[model], ranks=ranks, seed=seed, batch=BATCH,
               rounds=rounds, optimizer={"kind": "sgd", "momentum": .9},
               learning_rate=rate, step_scale=step_scale, **fields)


def adascale(model: str, ranks: int, seed: int, total: int) -> Run:
    """One worker's schedule, which the server follows at tau."""
    return _run(model, ranks, seed, total,
                rates.step_decay(RATE[model], total), "adascale",
                scale_invariant_iterations=total, spans=SPANS)


def linear(model: str, ranks: int, seed: int, rounds: int,
           warmup: float = 0) -> Run:
    """The server multiplies the rate with the number of workers; the warm-up
    begins at one worker's rate."""
    return _run(model, ranks, seed, rounds,
                rates.step_decay(RATE[model], rounds, warmup, 1 / ranks),
                "linear")


def plain(model: str, ranks: int, seed: int, rounds: int, factor: float = 1,
          evaluate: str = "test") -> Run:
    """The mean of the gradients at one worker's rate times `factor`."""
    return _run(model, ranks, seed, rounds,
                rates.step_decay(factor * RATE[model], rounds),
                evaluate=evaluate)


# Of one worker's iterations, where an elastic job changes its workers.
CHANGES = (.25, .5)


def elastic_adascale(model: str, way: list[int], seed: int, total: int) -> Run:
    """`way`: the numbers of workers, one after another."""
    return _run(model, way[0], seed, total,
                rates.step_decay(RATE[model], total), "adascale",
                scale_invariant_iterations=total,
                later_ranks=tuple(zip(CHANGES, way[1:])))


def elastic_linear(model: str, way: list[int], seed: int, total: int) -> Run:
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
    return _run(model, way[0], seed, rounds, rate, "linear", later_ranks=tuple(
        ((rounds_at(share) - .5) / rounds, ranks)
        for share, ranks in zip(CHANGES, way[1:])))


def elastic(quick: bool) -> Runs:
    """Of both ways, with five seeds."""
    total = length(quick)
    up = [1, 2, 4] if quick else list(sizes(quick))
    return {f"elastic/{model}/{arm}/{name}": [
        make(model, way, seed, total) for seed in range(1 if quick else 5)]
        for model in TASKS
        for arm, make in (("adascale", elastic_adascale),
                          ("lsw", elastic_linear))
        for name, way in (("up", up), ("down", up[::-1]))}


def first(quick: bool) -> Runs:
    """All runs but those that need AdaScale's number of iterations."""
    total = length(quick)
    each = seeds(quick)
    runs: Runs = {}
    for model in TASKS:
        runs[f"{model}/one/1"] = [plain(model, 1, seed, total)
                                  for seed in each]
        for ranks in sizes(quick):
            short = math.ceil(total / ranks)
            runs[f"{model}/adascale/{ranks}"] = [
                adascale(model, ranks, seed, total) for seed in each]
            runs[f"{model}/lsw/{ranks}"] = [
                linear(model, ranks, seed, short, WARMUP) for seed in each]
            runs[f"{model}/linear/{ranks}"] = [
                linear(model, ranks, seed, short) for seed in each]
            if model == "mlp":
                runs[f"mlp/same_rate/{ranks}"] = [
                    plain(model, ranks, seed, short) for seed in each]
    runs["mlp/identity/4"] = [plain("mlp", 4, seed, total) for seed in each]
    if not quick:
        # No time is saved, so one seed is enough, and none of 64 workers.
        runs["mlp/identity/16"] = [plain("mlp", 16, 0, total)]
    return runs


def tuned_grid(quick: bool) -> tuple[float, ...]:
    """Factors on one worker's rate."""
    return (2., 4.) if quick else (2., 4., 8., 16.)


def most(quick: bool) -> int:
    return sizes(quick)[-1]


def later(quick: bool, iterations: Mapping[str, int]) -> Runs:
    """Those at AdaScale's iterations, which are given by cell ("mlp/16")."""
    return {f"{model}/lsw+/{ranks}": [
        linear(model, ranks, seed, iterations[f"{model}/{ranks}"], WARMUP)
        for seed in seeds(quick)]
        for model in TASKS for ranks in sizes(quick)}


def tuned(quick: bool, iterations: Mapping[str, int], factor: float) -> Runs:
    """A plain mean at AdaScale's iterations, with a tuned rate."""
    ranks = most(quick)
    return {f"mlp/tuned/{ranks}": [
        plain("mlp", ranks, seed, iterations[f"mlp/{ranks}"], factor)
        for seed in seeds(quick)]}
