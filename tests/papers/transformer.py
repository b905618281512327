"""A character model of the King James Bible: a pre-norm transformer.

Two layers of width 64 with 4 heads over 64 characters, 112448 numbers. A batch
is of sequences of 64 characters, each of which the model predicts from those
before it.

All ranks' sequences go through one forward and backward pass. A weight's
gradient is wanted for each rank, though, so the functions here that have weights
write it where a rank's row is, as one batch of products.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import numpy as np
import torch
from torch.nn import functional

from tests.papers import kjv, streams, tasks
from tests.papers.description import Run

LENGTH = 64
WIDTH = 64
HEADS = 4
LAYERS = 2
SYMBOLS = 64
_SCORED_AT_ONCE = 128

Tensors = Mapping[str, torch.Tensor]


def _shapes() -> dict[str, tuple[int, ...]]:
    """Of each tensor, in the manifest's order. Matrices are [input, output]."""
    shapes: dict[str, tuple[int, ...]] = {
        "symbols": (SYMBOLS, WIDTH), "positions": (LENGTH, WIDTH)}
    for layer in range(LAYERS):
        for name, inputs, outputs in (
                ("attention", WIDTH, 3 * WIDTH), ("heads", WIDTH, WIDTH),
                ("wide", WIDTH, 4 * WIDTH), ("narrow", 4 * WIDTH, WIDTH)):
            shapes[f"{layer}/{name}/weights"] = (inputs, outputs)
            shapes[f"{layer}/{name}/bias"] = (outputs,)
        for name in ("norm1", "norm2"):
            shapes[f"{layer}/{name}/gain"] = (WIDTH,)
            shapes[f"{layer}/{name}/bias"] = (WIDTH,)
    shapes.update({"norm/gain": (WIDTH,), "norm/bias": (WIDTH,),
                   "output/weights": (WIDTH, SYMBOLS),
                   "output/bias": (SYMBOLS,)})
    return shapes


SHAPES = _shapes()


class _Affine(torch.autograd.Function):
    """x W + b for x [ranks * n, inputs], whose weights' gradients are written
    to rows [ranks, inputs, outputs] and [ranks, outputs], if there are any."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, weights: torch.Tensor,
                bias: torch.Tensor, rows: Any) -> torch.Tensor:
        ctx.save_for_backward(inputs, weights)
        ctx.rows = rows
        return torch.addmm(bias, inputs, weights)

    @staticmethod
    def backward(ctx: Any, by_output: torch.Tensor) -> Any:
        inputs, weights = ctx.saved_tensors
        row, bias_row = ctx.rows
        ranks = len(row)
        each = by_output.view(ranks, -1, by_output.shape[1])
        torch.bmm(inputs.view(ranks, -1, inputs.shape[1]).transpose(1, 2), each,
                  out=row)
        torch.sum(each, 1, out=bias_row)
        return torch.mm(by_output, weights.t()), None, None, None


class _Scale(torch.autograd.Function):
    """x * gain + bias, as _Affine."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, gain: torch.Tensor,
                bias: torch.Tensor, rows: Any) -> torch.Tensor:
        ctx.save_for_backward(inputs, gain)
        ctx.rows = rows
        return torch.addcmul(bias, inputs, gain)

    @staticmethod
    def backward(ctx: Any, by_output: torch.Tensor) -> Any:
        inputs, gain = ctx.saved_tensors
        row, bias_row = ctx.rows
        shape = (len(row), -1, by_output.shape[1])
        torch.sum((by_output * inputs).view(shape), 1, out=row)
        torch.sum(by_output.view(shape), 1, out=bias_row)
        return by_output * gain, None, None, None


class Transformer(tasks.Task):
    """Scores are nats per character, of consecutive sequences."""

    higher_is_better = False

    def __init__(self, run: Run) -> None:
        self._run = run
        self._text, _ = kjv.characters()
        self._random: list[np.random.Generator] = []
        self._rows: dict[str, torch.Tensor] = {}

    def initial(self, seed: int) -> dict[str, np.ndarray]:
        """Normal, with variance 1 / fan_in; embeddings 1 / width; gains are 1,
        biases 0."""
        random = streams.stream(seed, streams.WEIGHTS)
        found = {}
        for name, shape in SHAPES.items():
            if len(shape) == 1:
                value = 1.0 if name.endswith("gain") else 0.0
                found[name] = np.full(shape, value, np.float32)
            else:
                fan_in = shape[0] if name.endswith("weights") else WIDTH
                found[name] = (random.standard_normal(shape) /
                               np.sqrt(fan_in)).astype(np.float32)
        return found

    def gradients(self, parameters: tasks.Parameters, ranks: Sequence[int],
                  round: int) -> tuple[tasks.Rows, list[float]]:
        """Of the mean cross-entropy of the batch's characters."""
        if not self._random:
            self._random = [
                streams.stream(self._run.seed, streams.BATCHES, rank)
                for rank in ranks]
            self._rows = {name: torch.empty((len(ranks), *shape))
                          for name, shape in SHAPES.items()}
        text = self._text["train"]
        starts = np.concatenate([
            random.integers(0, len(text) - LENGTH, self._run.batch)
            for random in self._random])
        sequences = torch.from_numpy(
            text[starts[:, None] + np.arange(LENGTH + 1)].astype(np.int64))
        losses = self._differentiate(tensors_of(parameters), sequences[:, :-1],
                                     sequences[:, 1:])
        return ({name: row.numpy() for name, row in self._rows.items()},
                losses.tolist())

    def score(self, parameters: tasks.Parameters, which: str) -> float:
        text = self._text[which]
        count = (len(text) - 1) // LENGTH
        tensors = tensors_of(parameters)
        total = 0.0
        for start in range(0, count, _SCORED_AT_ONCE):
            end = min(start + _SCORED_AT_ONCE, count)
            inputs, targets = (
                sequences_of(text[LENGTH * start + shift:LENGTH * end + shift])
                for shift in (0, 1))
            total += float(functional.cross_entropy(
                logits_of(tensors, inputs), targets.view(-1), reduction="sum"))
        return total / (count * LENGTH)

    def _differentiate(self, tensors: Tensors, inputs: torch.Tensor,
                       targets: torch.Tensor) -> torch.Tensor:
        """Fills self._rows; the ranks' losses."""
        ranks, rows = len(self._random), self._rows
        embedded = _embed(tensors, inputs).requires_grad_()
        losses = functional.cross_entropy(
            _logits(tensors, embedded, rows), targets.reshape(-1),
            reduction="none").view(ranks, -1).mean(1)
        losses.sum().backward()
        by_embedded = embedded.grad
        assert by_embedded is not None
        torch.sum(by_embedded.view(ranks, -1, LENGTH, WIDTH), 1,
                  out=rows["positions"])
        place = inputs.reshape(ranks, -1) + (
            SYMBOLS * torch.arange(ranks)[:, None])
        rows["symbols"].zero_().view(-1, WIDTH).index_add_(
            0, place.view(-1), by_embedded)
        return losses.detach()


def tensors_of(parameters: tasks.Parameters) -> Tensors:
    return {name: torch.from_numpy(array)
            for name, array in parameters.items()}


def sequences_of(symbols: np.ndarray) -> torch.Tensor:
    """int64 [sequences, LENGTH]"""
    return torch.from_numpy(symbols.astype(np.int64)).view(-1, LENGTH)


def logits_of(tensors: Tensors, sequences: torch.Tensor) -> torch.Tensor:
    """[sequences * LENGTH, SYMBOLS]"""
    with torch.no_grad():
        return _logits(tensors, _embed(tensors, sequences), {})


def _embed(tensors: Tensors, sequences: torch.Tensor) -> torch.Tensor:
    """[sequences * LENGTH, WIDTH]"""
    return (functional.embedding(sequences, tensors["symbols"]) +
            tensors["positions"]).view(-1, WIDTH)


def _logits(tensors: Tensors, embedded: torch.Tensor, rows: Tensors
            ) -> torch.Tensor:
    """[sequences * LENGTH, SYMBOLS]; its backward() fills `rows`."""
    def affine(name: str, inputs: torch.Tensor) -> torch.Tensor:
        names = name + "/weights", name + "/bias"
        return _Affine.apply(inputs, *(tensors[n] for n in names),
                             [rows.get(n) for n in names])

    def norm(name: str, inputs: torch.Tensor) -> torch.Tensor:
        names = name + "/gain", name + "/bias"
        return _Scale.apply(functional.layer_norm(inputs, (WIDTH,)),
                            *(tensors[n] for n in names),
                            [rows.get(n) for n in names])

    hidden = embedded
    for layer in range(LAYERS):
        query, key, value = (
            affine(f"{layer}/attention", norm(f"{layer}/norm1", hidden))
            .view(-1, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4))
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True)
        hidden = hidden + affine(
            f"{layer}/heads", mixed.transpose(1, 2).reshape(-1, WIDTH))
        wide = functional.gelu(
            affine(f"{layer}/wide", norm(f"{layer}/norm2", hidden)))
        hidden = hidden + affine(f"{layer}/narrow", wide)
    return affine("output", norm("norm", hidden))
