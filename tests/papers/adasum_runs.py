"""The runs of Adasum's experiment, by the name of their cell.

  sgd/single/1            one worker
  sgd/mean/16/one         a rule with 16 workers at one worker's best rate
  sgd/mean/16/tuned       the same at its own best rate
  epochs/sgd/mean/16      until 87% of the test examples are right
  orthogonality/cnn/delta/64
  constant/cnn/gradient/64   orthogonality at a rate that stays

The rules: mean, sum and adasum combine gradients, and the server has the one
optimizer; sum_delta and adasum_delta combine what the workers' own optimizers
change. sum is not tuned: with SGD, at a S-th of a rate, it is the mean at it.
"""

from __future__ import annotations

from typing import Any, Mapping

from tests.papers import rates
from tests.papers.description import Run
from tests.papers.tuning import Grid

BATCH = 32
PASSES = 2
# Of the runs to TARGET, and of those that measure orthogonality.
LONG_PASSES = 8
TARGET = .87
SPANS = 20
TUNING_SEEDS = (0, 1)
# One worker's best rate in an independent study of these settings. Here it has a
# grid of its own, with one more seed, which shows whether it still is.
RATE_OF_ONE = {"sgd": .04, "adam": .008}
TUNING_SEEDS_OF_ONE = (0, 1, 2)

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"kind": "sgd", "momentum": .9}, "adam": {"kind": "adam"}}
# The server's rule, and what the workers push.
RULES = {"mean": ("mean", "gradient"), "sum": ("sum", "gradient"),
         "adasum": ("adasum", "gradient"), "sum_delta": ("sum", "delta"),
         "adasum_delta": ("adasum", "delta")}
# The constant rates of the runs to TARGET.
CONSTANT = {"sgd": .01, "adam": .001}
# Of the runs that measure orthogonality.
STEP_DECAY = {"cnn": .01, "mlp": .02}

# Powers of two, by optimizer, rule and workers; 0 is all other sizes. Each rule
# has four and the same seeds: no side of a comparison is tuned better.
_GRIDS: dict[tuple[str, str, int], tuple[float, ...]] = {
    ("sgd", "single", 0): (.02, .04, .08),
    ("sgd", "mean", 0): (.08, .16, .32, .64),
    ("sgd", "adasum", 0): (.02, .04, .08, .16),
    ("sgd", "adasum_delta", 0): (.01, .02, .04, .08),
    ("adam", "single", 0): (.002, .004, .008, .016),
    ("adam", "mean", 0): (.008, .016, .032, .064),
    ("adam", "sum_delta", 16): (.001, .002, .004, .008),
    ("adam", "sum_delta", 64): (.00025, .0005, .001, .002),
    ("adam", "adasum", 0): (.008, .016, .032, .064),
    ("adam", "adasum_delta", 0): (.002, .004, .008, .016),
}
_QUICK_GRID = (.005, .01)

Runs = dict[str, list[Run]]


def sizes(opt: str, quick: bool) -> tuple[int, ...]:
    """The numbers of workers besides 1."""
    if quick:
        return (4,)
    return (16, 32, 64) if opt == "sgd" else (16, 64)


def rules(opt: str) -> tuple[str, ...]:
    """Those of the tables, in their order."""
    return ("mean", "sum" if opt == "sgd" else "sum_delta", "adasum",
            "adasum_delta")


def seeds(quick: bool) -> range:
    return range(1 if quick else 3)


def headline_seeds(quick: bool) -> range:
    """Of the tables of accuracies, whose cells are compared."""
    return range(1 if quick else 10)


def _run(ranks: int, seed: int, opt: str, rule: str, **fields: Any) -> Run:
    """Of the CNN, if the fields name no other task."""
    combined, push = RULES[rule]
    fields.setdefault("task", "fashion_cnn")
    return Run(ranks=ranks, seed=seed, batch=BATCH, rule=combined, push=push,
               optimizer=OPTIMIZERS[opt], **fields)


def short(opt: str, rule: str, ranks: int, rate: float, seed: int,
          quick: bool, evaluate: str = "test") -> Run:
    """PASSES over the examples; the rate goes up on a line for a tenth of
    them, then down to 0. One worker is "single"."""
    rounds = 6 if quick else rates.rounds(PASSES, ranks, BATCH)
    return _run(ranks, seed, opt, "mean" if rule == "single" else rule,
                rounds=rounds, evaluate=evaluate,
                learning_rate=rates.warm_linear(rate, rounds))


def _settings(quick: bool) -> list[tuple[str, str, int]]:
    return [(opt, rule, ranks) for opt in OPTIMIZERS
            for rule in ("single", *rules(opt))
            for ranks in ((1,) if rule == "single" else sizes(opt, quick))]


def grids(quick: bool) -> dict[str, Grid]:
    """By cell without its last part: "sgd/mean/16"; one worker's, too."""
    found = {}
    for opt, rule, ranks in _settings(quick):
        tried = _GRIDS.get((opt, rule, ranks), _GRIDS.get((opt, rule, 0)))
        if rule == "sum":
            continue
        found[f"{opt}/{rule}/{ranks}"] = Grid(
            lambda rate, seed, setting=(opt, rule, ranks): short(
                *setting, rate, seed, quick, "validation"),
            _QUICK_GRID if quick else tried or (),
            (0,) if quick else
            TUNING_SEEDS_OF_ONE if rule == "single" else TUNING_SEEDS)
    return found


def tables(quick: bool, best: Mapping[str, float]) -> Runs:
    """Scored by the test, at RATE_OF_ONE and at the best rates of grids()."""
    found: Runs = {}
    for opt, rule, ranks in _settings(quick):
        name = f"{opt}/{rule}/{ranks}"
        one = _QUICK_GRID[0] if quick else RATE_OF_ONE[opt]
        at = {name if rule == "single" else f"{name}/one": one}
        if rule != "single" and name in best:
            at[f"{name}/tuned"] = best[name]
        for cell, rate in at.items():
            found[cell] = [short(opt, rule, ranks, rate, seed, quick)
                           for seed in headline_seeds(quick)]
    return found


def _to_target(opt: str, rule: str, ranks: int, seed: int,
               quick: bool) -> Run:
    """A constant rate, scored ten times in each pass."""
    rounds = 6 if quick else rates.rounds(LONG_PASSES, ranks, BATCH)
    every = 3 if quick else rates.rounds(.1, ranks, BATCH)
    return _run(ranks, seed, opt, "mean" if rule == "single" else rule,
                rounds=rounds, learning_rate=rates.constant(CONSTANT[opt]),
                evaluate_every=every, stop_at=TARGET)


def to_target(quick: bool) -> Runs:
    """By "epochs/sgd/mean/16"; at 64 workers the deltas alone."""
    found: Runs = {}
    for opt in OPTIMIZERS:
        found[f"epochs/{opt}/single/1"] = [
            _to_target(opt, "single", 1, seed, quick)
            for seed in seeds(quick)]
        ranks = sizes(opt, quick)[0]
        for rule in rules(opt):
            found[f"epochs/{opt}/{rule}/{ranks}"] = [
                _to_target(opt, rule, ranks, seed, quick)
                for seed in seeds(quick)]
        if not quick:
            found[f"epochs/{opt}/adasum_delta/64"] = [
                _to_target(opt, "adasum_delta", 64, seed, quick)
                for seed in seeds(quick)]
    return found


def orthogonality(quick: bool) -> Runs:
    """Most workers, by "orthogonality/cnn/delta/64"; the CNN, per tensor, with
    three seeds. Step decay; "constant/cnn/gradient/64" has the same rate to the
    end, so that it shows what is of the training and what of the decay."""
    ranks = sizes("sgd", quick)[-1]
    rounds = 8 if quick else rates.rounds(LONG_PASSES, ranks, BATCH)
    found: Runs = {}
    for model, rate in STEP_DECAY.items():
        for push, rule in (("gradient", "adasum"), ("delta", "adasum_delta")):
            found[f"orthogonality/{model}/{push}/{ranks}"] = [
                _run(ranks, seed, "sgd", rule, task=f"fashion_{model}",
                     rounds=rounds, spans=4 if quick else SPANS, tensors=True,
                     learning_rate=rates.step_decay(rate, rounds))
                for seed in (seeds(quick) if model == "cnn" else (0,))]
        found[f"constant/{model}/gradient/{ranks}"] = [
            _run(ranks, seed, "sgd", "adasum", task=f"fashion_{model}",
                 rounds=rounds, spans=4 if quick else SPANS,
                 learning_rate=rates.constant(rate))
            for seed in seeds(quick)]
    return found
