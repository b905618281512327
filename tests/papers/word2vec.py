"""word2vec on the King James Bible: skip-gram with negative samples.

A word of the vocabulary (5278) has 50 numbers as a centre and 50 as a context.
A batch has pairs of a word and a neighbour at most 2 words away, in a text that has
fewer of the most frequent words, and 5 negative contexts for each pair, drawn by
count^(3/4). As in word2vec, a step is the sum
over the pairs: gradients are of the batch's total loss.

A gradient touches the rows of a batch's words alone; it is pushed with all rows,
most of which are zeros.
"""

from __future__ import annotations

import functools
from typing import Sequence

import numpy as np
import torch

from tests.papers import kjv, streams, tasks
from tests.papers.description import Run

WIDTH = 50
WINDOW = 2
NEGATIVES = 5
# Of the held-out pairs, which are the same in each run.
_SCORED_SEED = 1
_NAMES = ("centres", "contexts")


@functools.lru_cache(maxsize=4)
def _pairs(which: str) -> np.ndarray:
    """Frequent words are thinned once, so that all runs have these pairs."""
    parts, counts = kjv.words()
    random = streams.stream(_SCORED_SEED, streams.DATA,
                            kjv.PARTS.index(which))
    return kjv.pairs(kjv.thinned(parts[which], counts, random), WINDOW)


class _Negatives:
    """Words by count^(3/4)."""

    def __init__(self) -> None:
        _, counts = kjv.words()
        weights = counts.astype(np.float64) ** .75
        self._ends = np.cumsum(weights / weights.sum())

    def draw(self, random: np.random.Generator, pairs: int) -> np.ndarray:
        """int64 [pairs, NEGATIVES]"""
        found = np.searchsorted(self._ends, random.random((pairs, NEGATIVES)))
        return np.minimum(found, len(self._ends) - 1)


class Word2vec(tasks.Task):
    """Scores are the held-out loss per pair, with negatives."""

    higher_is_better = False

    def __init__(self, run: Run) -> None:
        self._run = run
        self._words = len(kjv.words()[1])
        self._negatives = _Negatives()
        self._batches: list[streams.Batches] = []
        self._random: list[np.random.Generator] = []
        self._rows: dict[str, torch.Tensor] = {}
        self._written: dict[str, torch.Tensor] = {}

    def initial(self, seed: int) -> dict[str, np.ndarray]:
        """word2vec's: centres uniform in (-1/2, 1/2) / WIDTH, contexts 0."""
        random = streams.stream(seed, streams.WEIGHTS)
        shape = (self._words, WIDTH)
        return {"centres": (random.uniform(-.5, .5, shape) / WIDTH)
                .astype(np.float32),
                "contexts": np.zeros(shape, np.float32)}

    def gradients(self, parameters: tasks.Parameters, ranks: Sequence[int],
                  round: int) -> tuple[tasks.Rows, list[float]]:
        """Of the batch's total loss; the losses are means per pair."""
        if not self._batches:
            self._begin(ranks)
        pairs, batch = _pairs("train"), self._run.batch
        taken = [pairs[batches.next()] for batches in self._batches]
        outputs = np.concatenate([
            np.concatenate([mine[:, 1:], self._negatives.draw(random, batch)],
                           1)
            for mine, random in zip(taken, self._random)])
        centres = torch.from_numpy(np.concatenate(taken)[:, 0].astype(np.int64))
        losses = self._differentiate(parameters, centres,
                                     torch.from_numpy(outputs))
        return ({name: row.numpy() for name, row in self._rows.items()},
                losses.view(len(ranks), batch).mean(1).tolist())

    def score(self, parameters: tasks.Parameters, which: str) -> float:
        pairs = _pairs(which)
        negatives = self._negatives.draw(
            streams.stream(_SCORED_SEED, streams.LABELS), len(pairs))
        outputs = torch.from_numpy(np.concatenate([pairs[:, 1:], negatives], 1))
        centres = torch.from_numpy(pairs[:, 0].astype(np.int64))
        _, _, logits = _logits(parameters, centres, outputs)
        return float(_losses(logits).double().mean())

    def _begin(self, ranks: Sequence[int]) -> None:
        run = self._run
        examples = len(_pairs("train"))
        self._batches = [streams.Batches(run.seed, rank, examples, run.batch)
                         for rank in ranks]
        self._random = [streams.stream(run.seed, streams.DATA, rank)
                        for rank in ranks]
        self._rows = {name: torch.zeros(len(ranks), self._words, WIDTH)
                      for name in _NAMES}

    def _differentiate(self, parameters: tasks.Parameters,
                       centres: torch.Tensor, outputs: torch.Tensor
                       ) -> torch.Tensor:
        """Fills self._rows; the pairs' losses."""
        inner, outer, logits = _logits(parameters, centres, outputs)
        losses = _losses(logits)
        by_logits = torch.sigmoid(logits)
        by_logits[:, 0] -= 1
        by_centres = torch.bmm(by_logits[:, None], outer)[:, 0]
        by_outputs = by_logits[:, :, None] * inner[:, None]
        # A rank's rows are apart from the other ranks'.
        first = (self._words * torch.arange(len(centres))
                 .div(self._run.batch, rounding_mode="floor"))
        for name, places, rows in (
                ("centres", centres + first, by_centres),
                ("contexts", (outputs + first[:, None]).view(-1),
                 by_outputs.view(-1, WIDTH))):
            flat = self._rows[name].view(-1, WIDTH)
            if self._run.push == "delta":
                flat.zero_()  # Moments move words that are not in the batch.
            elif name in self._written:
                flat.index_fill_(0, self._written[name], 0)
            flat.index_add_(0, places, rows)
            self._written[name] = places
        return losses


def _logits(parameters: tasks.Parameters, centres: torch.Tensor,
            outputs: torch.Tensor
            ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The pairs' vectors: of the centres [pairs, WIDTH], of the contexts, the
    true one first [pairs, 1 + NEGATIVES, WIDTH]; and their products."""
    inner = torch.from_numpy(parameters["centres"]).index_select(0, centres)
    outer = (torch.from_numpy(parameters["contexts"])
             .index_select(0, outputs.view(-1))
             .view(*outputs.shape, WIDTH))
    return inner, outer, torch.bmm(outer, inner[:, :, None])[:, :, 0]


def _losses(logits: torch.Tensor) -> torch.Tensor:
    """-log s(true) - the sum of log s(-negative), s the logistic function."""
    signs = torch.ones(logits.shape[1])
    signs[0] = -1
    return torch.nn.functional.softplus(logits * signs).sum(1)
