"""Linear regression: the example of AdaCons's authors, for any number of ranks.

The parameters w have 1000 numbers, at first uniform in (-5, 5); an example x is
uniform in (0, 1)^1000, its target is 0, and its loss (x w)^2 / 2. The least loss
is at w = 0. It is Main.py of github.com/yoniLc/AdaCons, with one batch a round
where that program adds the gradients of two.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

from tests.papers import streams, tasks
from tests.papers.description import Run

DIMENSION = 1000
_NAME = "weights"


class Regression(tasks.Task):
    """With run.label_noise, the targets of the first run.random_labels ranks (or
    of all, where that is 0) are normal with that standard deviation."""

    higher_is_better = False

    def __init__(self, run: Run) -> None:
        self._run = run
        self._random: list[np.random.Generator] = []
        self._inputs = self._rows = np.empty(0, np.float32)

    def initial(self, seed: int) -> dict[str, np.ndarray]:
        random = streams.stream(seed, streams.WEIGHTS)
        return {_NAME: random.uniform(-5, 5, DIMENSION).astype(np.float32)}

    def gradients(self, parameters: tasks.Parameters, ranks: Sequence[int],
                  round: int) -> tuple[tasks.Rows, list[float]]:
        """Of the mean of (x w - target)^2 / 2."""
        batch = self._run.batch
        if not self._random:
            self._begin(ranks)
        for random, inputs in zip(self._random, self._inputs):
            random.random(out=inputs, dtype=np.float32)
        errors = self._inputs @ parameters[_NAME]
        for random, rank, mine in zip(self._random, ranks, errors):
            if self._is_noisy(rank):
                mine -= (self._run.label_noise *
                         random.standard_normal(batch, dtype=np.float32))
        np.divide(np.matmul(errors[:, None, :], self._inputs)[:, 0], batch,
                  out=self._rows)
        losses = 0.5 * np.square(errors, dtype=np.float64).mean(1)
        return {_NAME: self._rows}, losses.tolist()

    def score(self, parameters: tasks.Parameters, which: str) -> float:
        """The expected loss: E (x w)^2 / 2 with E x = 1/2, var x = 1/12."""
        weights = parameters[_NAME].astype(np.float64)
        return float(weights @ weights / 24 + weights.sum() ** 2 / 8)

    def oracle_rate(self, parameters: tasks.Parameters,
                    direction: tasks.Parameters) -> float:
        """<w, d> / <d, d>: where w - rate d is nearest to the least loss. It is
        the authors' step, which knows where that is."""
        weights = parameters[_NAME].astype(np.float64)
        along = direction[_NAME].astype(np.float64)
        square = float(along @ along)
        return float(weights @ along) / square if square > 0 else 0.0

    def _begin(self, ranks: Sequence[int]) -> None:
        self._random = [streams.stream(self._run.seed, streams.BATCHES, rank)
                        for rank in ranks]
        self._inputs = np.empty((len(ranks), self._run.batch, DIMENSION),
                                np.float32)
        self._rows = np.empty((len(ranks), DIMENSION), np.float32)

    def _is_noisy(self, rank: int) -> bool:
        noisy = self._run.random_labels or self._run.ranks
        return self._run.label_noise > 0 and rank < noisy
