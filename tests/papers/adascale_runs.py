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


def make(model: str, ranks: int, seed: int, rounds: int, rate: rates.Rate,
         step_scale: str = "none", **fields: Any) -> Run:
    return Run(task=TASKS[model], ranks=ranks, seed=seed, batch=BATCH,
               rounds=rounds, optimizer={"kind": "sgd", "momentum": .9},
               learning_rate=rate, step_scale=step_scale, **fields)


def adascale(model: str, ranks: int, seed: int, total: int) -> Run:
    """One worker's schedule, which the server follows at tau."""
    return make(model, ranks, seed, total,
                rates.step_decay(RATE[model], total), "adascale",
                scale_invariant_iterations=total, spans=SPANS)


def linear(model: str, ranks: int, seed: int, rounds: int,
           warmup: float = 0) -> Run:
    """The server multiplies the rate with the number of workers; the warm-up
    begins at one worker's rate."""
    return make(model, ranks, seed, rounds,
                rates.step_decay(RATE[model], rounds, warmup, 1 / ranks),
                "linear")


def plain(model: str, ranks: int, seed: int, rounds: int, factor: float = 1,
          evaluate: str = "test") -> Run:
    """The mean of the gradients at one worker's rate times `factor`."""
    return make(model, ranks, seed, rounds,
                rates.step_decay(factor * RATE[model], rounds),
                evaluate=evaluate)


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
