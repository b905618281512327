"""Random streams: each purpose and each rank of a run has its own."""

from __future__ import annotations

import numpy as np

WEIGHTS, BATCHES, LABELS, DATA = range(4)


def stream(seed: int, purpose: int, rank: int = 0) -> np.random.Generator:
    """Depends on its arguments alone, not on how many ranks there are."""
    return np.random.default_rng([seed, purpose, rank])


class Batches:
    """Indices of a rank's batches: each pass takes every example once.

    A batch that meets the end of a pass goes on with the next one's first
    examples.
    """

    def __init__(self, seed: int, rank: int, examples: int, batch: int) -> None:
        self._random = stream(seed, BATCHES, rank)
        self._examples, self._batch = examples, batch
        self._order = self._random.permutation(examples)
        self._at = 0

    def next(self) -> np.ndarray:
        """int64, `batch` of them."""
        while self._at + self._batch > len(self._order):
            self._order = np.concatenate(
                [self._order[self._at:],
                 self._random.permutation(self._examples)])
            self._at = 0
        self._at += self._batch
        return self._order[self._at - self._batch:self._at]
