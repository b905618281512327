"""The runs of AdaCons's experiment, by the name of their cell.

  regression/adacons/8        the authors' linear regression, 8 workers
  cnn/clean/adacons           Fashion-MNIST, 16 workers, each rule at its own rate
  cnn/labels/adacons          4 of the 16 have random labels

The rules, all of the whole model's gradient, as AdaCons's authors have it:

  mean
  adacons              beta .99
  adacons_no_momentum  beta 0; "no_momentum" of the CNN
  unit_mean            the control: the mean of unit gradients, which has
                       AdaCons's lengths and none of its coefficients
  adacons+, unit_mean+ times the mean of the gradients' norms
"""

from __future__ import annotations

from typing import Any, Mapping

from tests.papers import rates
from tests.papers.description import Run
from tests.papers.tuning import Grid

BETA = .99
# Of the regression.
TOTAL_BATCH = 128
UPDATES = 500
# Of the CNN.
RANKS = 16
BATCH = 32
PASSES = 2
RANDOM_LABELS = 4
TUNING_SEEDS = (0, 1)

_ADACONS: dict[str, Any] = {"rule": "adacons", "scope": "global"}
_NO_MOMENTUM = {**_ADACONS, "adacons": {"beta": 0.}}
_RULES: dict[str, dict[str, Any]] = {
    "mean": {"rule": "mean"},
    "adacons": {**_ADACONS, "adacons": {"beta": BETA}},
    "adacons+": {**_ADACONS,
                 "adacons": {"beta": BETA, "rescale": "mean_norm"}},
    "adacons_no_momentum": _NO_MOMENTUM,
    "no_momentum": _NO_MOMENTUM,
    "unit_mean": {"rule": "unit_mean", "scope": "global"},
    "unit_mean+": {"rule": "mean", "push": "unit", "unit_scale": "mean_norm"},
}
REGRESSION_RULES = ("mean", "adacons", "adacons_no_momentum", "unit_mean")
CNN_RULES = ("mean", "adacons", "adacons+", "no_momentum", "unit_mean",
             "unit_mean+")
SETTINGS = {"clean": 0, "labels": RANDOM_LABELS}
# Powers of two, four for each rule. Steps of AdaCons and of unit gradients have a length of their
# own, so that their rates are not the mean's.
_GRIDS: dict[str, tuple[float, ...]] = {
    "mean": (.08, .16, .32, .64),
    "adacons": (.16, .32, .64, 1.28),
    "adacons+": (.08, .16, .32, .64),
    "no_momentum": (.16, .32, .64, 1.28),
    "unit_mean": (.16, .32, .64, 1.28),
    "unit_mean+": (.08, .16, .32, .64),
}
_QUICK_GRID = (.005, .01)

Runs = dict[str, list[Run]]


def regression_ranks(quick: bool) -> tuple[int, ...]:
    return (4,) if quick else (8, 32)


def regression_seeds(quick: bool) -> range:
    """More than 3: results of seeds lie two orders of magnitude apart."""
    return range(2 if quick else 8)


def seeds(quick: bool) -> range:
    return range(1 if quick else 10)


def regression(quick: bool) -> Runs:
    """The authors' example: the batch shared by the ranks, and the step that
    knows where the least loss is."""
    return {f"regression/{rule}/{ranks}": [
        Run(task="regression", ranks=ranks, seed=seed,
            batch=TOTAL_BATCH // ranks, rounds=8 if quick else UPDATES,
            step="oracle", **_RULES[rule])
        for seed in regression_seeds(quick)]
        for ranks in regression_ranks(quick) for rule in REGRESSION_RULES}


def cnn(setting: str, rule: str, rate: float, seed: int, quick: bool,
        evaluate: str = "test") -> Run:
    """PASSES with momentum; the rate goes up on a line for a tenth of them,
    then down to 0."""
    ranks = 8 if quick else RANKS
    rounds = 6 if quick else rates.rounds(PASSES, ranks, BATCH)
    return Run(task="fashion_cnn", ranks=ranks, seed=seed, batch=BATCH,
               rounds=rounds, evaluate=evaluate,
               optimizer={"kind": "sgd", "momentum": .9},
               learning_rate=rates.warm_linear(rate, rounds),
               random_labels=SETTINGS[setting], **_RULES[rule])


def grids(quick: bool) -> dict[str, Grid]:
    """By cell: "cnn/clean/adacons"."""
    return {f"cnn/{setting}/{rule}": Grid(
        lambda rate, seed, it=(setting, rule): cnn(*it, rate, seed, quick,
                                                   "validation"),
        _QUICK_GRID if quick else _GRIDS[rule],
        (0,) if quick else TUNING_SEEDS)
        for setting in SETTINGS for rule in CNN_RULES}


def tables(quick: bool, best: Mapping[str, float]) -> Runs:
    """Scored by the test, at the best rates of grids()."""
    return {f"cnn/{setting}/{rule}": [
        cnn(setting, rule, best[f"cnn/{setting}/{rule}"], seed, quick)
        for seed in seeds(quick)]
        for setting in SETTINGS for rule in CNN_RULES}
