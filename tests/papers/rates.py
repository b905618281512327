"""Learning rates and lengths of training that the papers' experiments share.

Rates are fields of LearningRateConfig (proto/config.proto).
"""

from __future__ import annotations

from typing import Any

Rate = dict[str, Any]

# Fashion-MNIST's examples that are trained on.
EXAMPLES = 55000
# The rate falls to a tenth at these shares of training.
DECAYS = (.5, .8)


def rounds(passes: float, ranks: int, batch: int) -> int:
    """Of so many passes over the examples, by all ranks together."""
    return max(1, round(passes * EXAMPLES / (ranks * batch)))


def passes(num_rounds: float, ranks: int, batch: int) -> float:
    """Over the examples, that so many rounds are."""
    return num_rounds * ranks * batch / EXAMPLES


def constant(rate: float) -> Rate:
    return {"schedule": "constant", "rate": rate}


def step_decay(rate: float, length: float, warmup: float = 0,
               start: float = 0) -> Rate:
    """A tenth at each of DECAYS of `length`, in rounds or, with AdaScale, in
    scale-invariant iterations.

    Args:
      warmup: share of `length` in which the rate grows.
      start: what it grows from, as a part of `rate`.
    """
    fields: Rate = {"schedule": "multistep", "rate": rate,
                    "boundaries": [share * length for share in DECAYS]}
    if warmup:
        fields.update(warmup_steps=warmup * length, warmup_start_factor=start)
    return fields


def warm_linear(rate: float, num_rounds: int, warmup: float = .1) -> Rate:
    """Up to `rate` in the first rounds, then down on a line to 0 at the end.

    The first round has the first step of the way up, not 0.
    """
    steps = max(1, round(warmup * num_rounds))
    return {"schedule": "polynomial", "rate": rate, "warmup_steps": steps,
            "warmup_start_factor": 1 / steps,
            "decay_steps": max(1, num_rounds - steps)}
