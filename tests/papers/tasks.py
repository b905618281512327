"""What is trained: the interface of a task, and the tasks by name."""

from __future__ import annotations

import importlib
from typing import Any, Mapping, Sequence

import numpy as np

from tests.papers.description import Run

# By name: module and class, which is imported when a run needs it. The class
# is called with the Run.
_TASKS = {
    "fashion_mlp": ("fashion", "Mlp"),
    "fashion_cnn": ("fashion", "Cnn"),
    "regression": ("regression", "Regression"),
    "kjv_transformer": ("transformer", "Transformer"),
    "kjv_word2vec": ("word2vec", "Word2vec"),
}

Parameters = Mapping[str, np.ndarray]
# By name; the first axis is the rank's.
Rows = dict[str, np.ndarray]


class Task:
    """A model, its data and its loss. One per process; not thread-safe.

    Batches are drawn from a stream per rank, which depends on the run's seed
    and the rank alone: rank r of a job with 4 ranks sees what rank r of a job
    with 64 sees. gradients() is called once per round, in order.
    """

    higher_is_better = True

    def initial(self, seed: int) -> dict[str, np.ndarray]:
        """float32 by name, in the manifest's order."""
        raise NotImplementedError

    def gradients(self, parameters: Parameters, ranks: Sequence[int],
                  round: int) -> tuple[Rows, list[float]]:
        """Of each rank's mean loss over its batch of the round.

        Args:
          parameters: float32 by name; not to be changed.
          ranks: the same ones in each call.
          round: 0, 1, 2 and so on.

        Returns: float32 arrays of the shape [len(ranks), *shape] by name, which
          are valid until the next call, and the ranks' losses.
        """
        raise NotImplementedError

    def score(self, parameters: Parameters, which: str) -> float:
        """Of the "test" or the "validation" examples."""
        raise NotImplementedError

    def oracle_rate(self, parameters: Parameters, direction: Parameters
                    ) -> float:
        """The learning rate that leads nearest to the least expected loss along
        `direction`, for step="oracle"."""
        raise NotImplementedError


def make(name: str, run: Run) -> Task:
    """The task of a run. Raises ValueError: nothing is called so."""
    if name not in _TASKS:
        raise ValueError(f'task is "{name}"; allowed: ' + ", ".join(_TASKS))
    module, kind = _TASKS[name]
    task: Any = getattr(importlib.import_module("tests.papers." + module), kind)
    made: Task = task(run)
    return made
