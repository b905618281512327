"""The runs of the text experiments, by the name of their cell.

  transformer/adam/single/1              one worker
  transformer/adam/mean/16/one           16 workers at one worker's best rate
  transformer/adam/mean/16/tuned         the same at the rule's own best rate
  transformer/lamb/adasum_delta/16/one
  word2vec/single/1
  word2vec/adasum/32/one

The rules: mean, sum and adasum combine gradients, and the server has the one
optimizer; sum_delta and adasum_delta combine what the workers' own optimizers
change. word2vec's sum is not tuned: with SGD, at a S-th of a rate, it is the mean
at it.
"""

from __future__ import annotations

from typing import Any, Mapping

from tests.papers import rates
from tests.papers.description import Run
from tests.papers.tuning import Grid

# Sequences of 64 characters, and half a pass over the text with one worker.
CHARACTERS_BATCH = 2
CHARACTERS_ROUNDS = 4240
CHARACTERS_RANKS = 16
# Pairs of words, and one pass over them; the same number with 32 workers.
WORDS_BATCH = 256
WORDS_RANKS = 32
WORDS_ROUNDS = 238 * WORDS_RANKS
WORDS_SPANS = 6

# Rounds and workers of the quick set.
_QUICK_ROUNDS, _QUICK_RANKS = 4, 2

OPTIMIZERS = ("adam", "lamb")
# The server's rule, and what the workers push.
_RULES = {"single": ("mean", "gradient"), "mean": ("mean", "gradient"),
          "sum": ("sum", "gradient"), "adasum": ("adasum", "gradient"),
          "sum_delta": ("sum", "delta"), "adasum_delta": ("adasum", "delta")}
# Powers of two.
_GRIDS: dict[str, tuple[float, ...]] = {
    "transformer/adam/single": (.001, .002, .004, .008),
    "transformer/adam/mean": (.004, .008, .016, .032),
    "transformer/adam/sum_delta": (.0005, .001, .002, .004),
    "transformer/adam/adasum_delta": (.001, .002, .004, .008),
    "transformer/lamb/single": (.002, .004, .008),
    "transformer/lamb/mean": (.008, .016, .032),
    "transformer/lamb/adasum_delta": (.002, .004, .008, .016),
    "word2vec/single": (.05, .1, .2),
    "word2vec/mean": (.4, .8, 1.6),
    "word2vec/adasum": (.05, .1, .2),
}
_QUICK_GRID = (.001, .002)
TUNING_SEED = 0

Runs = dict[str, list[Run]]


def seeds(quick: bool) -> range:
    return range(1 if quick else 3)


def ranks_of(name: str, quick: bool) -> int:
    """Of a grid's name."""
    if name.endswith("/single"):
        return 1
    if quick:
        return _QUICK_RANKS
    return WORDS_RANKS if name.startswith("word2vec") else CHARACTERS_RANKS


def make(name: str, rate: float, seed: int, quick: bool,
         evaluate: str = "test") -> Run:
    """A run of a grid's name, "transformer/adam/mean" or "word2vec/sum"."""
    words = name.split("/")
    rule, push = _RULES[words[-1]]
    ranks = ranks_of(name, quick)
    shared: dict[str, Any] = {"ranks": ranks, "seed": seed, "rule": rule,
                              "push": push, "evaluate": evaluate}
    if words[0] == "transformer":
        rounds = _QUICK_ROUNDS if quick else CHARACTERS_ROUNDS // ranks
        return Run(task="kjv_transformer", batch=CHARACTERS_BATCH,
                   rounds=rounds, optimizer={"kind": words[1]},
                   learning_rate=rates.warm_linear(rate, rounds), **shared)
    rounds = _QUICK_ROUNDS if quick else WORDS_ROUNDS // ranks
    return Run(task="kjv_word2vec", batch=WORDS_BATCH, rounds=rounds,
               spans=WORDS_SPANS if rule == "adasum" else 0,
               learning_rate={"schedule": "polynomial", "rate": rate,
                              "decay_steps": rounds}, **shared)


def grids(quick: bool) -> dict[str, Grid]:
    """By name."""
    return {name: Grid(
        lambda rate, seed, name=name: make(name, rate, seed, quick,
                                           "validation"),
        _QUICK_GRID if quick else tried, (TUNING_SEED,))
        for name, tried in _GRIDS.items()}


def tables(quick: bool, best: Mapping[str, float]) -> Runs:
    """Scored by held-out text, at the best rates of grids()."""
    found: Runs = {}

    def add(cell: str, name: str, rate: float) -> None:
        found[cell] = [make(name, rate, seed, quick) for seed in seeds(quick)]

    for name in [*_GRIDS, "word2vec/sum"]:
        model, rule = name.rsplit("/", 1)
        cell = f"{name}/{ranks_of(name, quick)}"
        if rule == "single":
            add(cell, name, best[name])
            continue
        add(f"{cell}/one", name, best[f"{model}/single"])
        if name in best:
            add(f"{cell}/tuned", name, best[name])
    return found
