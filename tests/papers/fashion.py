"""Fashion-MNIST: an MLP 784-128-10 and a small CNN.

The gradients of all ranks come from one pass: a layer's product is one of all
ranks' examples, and only the products that make weights' gradients are a batch
of one matrix for each rank. The derivatives are written out, since a round of
one rank takes less time than autograd's bookkeeping for it.

Pixels have the mean 0 and the variance 1 over the training images. The last 5000 training examples are the validation's.
"""

from __future__ import annotations

import functools
import gzip
import os
import pathlib
from typing import Sequence

import numpy as np
import torch

from tests.papers import streams, tasks
from tests.papers.description import Run

FOLDER = pathlib.Path(os.environ.get(
    "AGG_FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
TRAINING = 55000
CLASSES = 10
# Of the training images' pixels.
_MEAN, _DEVIATION = 72.94, 90.02
_SCORED_AT_ONCE = 2500
# Examples whose activations stay in the processor's cache.
_TRAINED_AT_ONCE = 512


class DataError(Exception):
    """The data set is not there."""


def _read(name: str, header_bytes: int) -> np.ndarray:
    path = FOLDER / (name + "-ubyte.gz")
    if not path.is_file():
        raise DataError(f"{path} is not there; install Debian's "
                        "dataset-fashion-mnist (deploy/setup.sh --papers), or "
                        "name its folder in AGG_FASHION_MNIST")
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header_bytes)


@functools.lru_cache(maxsize=None)
def _read_part(prefix: str) -> tuple[torch.Tensor, torch.Tensor]:
    images = _read(prefix + "-images-idx3", 16).reshape(-1, 784)
    labels = _read(prefix + "-labels-idx1", 8).astype(np.int64)
    return torch.from_numpy(images.copy()), torch.from_numpy(labels)


def _scaled(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.float().sub_(_MEAN).mul_(1 / _DEVIATION)


class Fashion(tasks.Task):
    """What both models share: data, batches, loss, accuracy."""

    # Below it a classifier of ten classes guesses.
    guesses_below = 0.2
    # Of each tensor, in the manifest's order.
    shapes: dict[str, tuple[int, ...]] = {}

    def __init__(self, run: Run) -> None:
        self._run = run
        images, labels = _read_part("train")
        self._inputs = self._training_inputs()
        self._labels = labels[:TRAINING]
        self._held_out = {"validation": (images[TRAINING:], labels[TRAINING:])}
        # By rank: one that has left and comes again goes on where it was.
        self._batches: dict[int, streams.Batches] = {}
        self._next_of: list[streams.Batches] = []
        self._random_labels: dict[int, torch.Tensor] = {}
        self._rows: dict[str, torch.Tensor] = {}

    def initial(self, seed: int) -> dict[str, np.ndarray]:
        """He's: normal with variance 2 / fan_in; biases are 0."""
        random = streams.stream(seed, streams.WEIGHTS)
        return {
            name: (np.zeros(shape, np.float32) if len(shape) == 1 else
                   (random.standard_normal(shape) *
                    np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32))
            for name, shape in self.shapes.items()}

    def gradients(self, parameters: tasks.Parameters, ranks: Sequence[int],
                  round: int) -> tuple[tasks.Rows, list[float]]:
        """Of the mean cross-entropy."""
        if len(self._next_of) != len(ranks):
            self._begin(ranks)
        weights = {name: torch.from_numpy(array)
                   for name, array in parameters.items()}
        losses: list[float] = []
        at_once = max(1, _TRAINED_AT_ONCE // self._run.batch)
        for start in range(0, len(ranks), at_once):
            part = slice(start, min(start + at_once, len(ranks)))
            inputs, labels = self._next_examples(part)
            rows = {name: row[part] for name, row in self._rows.items()}
            losses += self._differentiate(weights, inputs, labels,
                                          rows).tolist()
        return ({name: row.numpy() for name, row in self._rows.items()},
                losses)

    def score(self, parameters: tasks.Parameters, which: str) -> float:
        """The accuracy."""
        if which not in self._held_out:
            self._held_out[which] = _read_part("t10k")
        images, labels = self._held_out[which]
        weights = {name: torch.from_numpy(array)
                   for name, array in parameters.items()}
        right = 0
        for start in range(0, len(labels), _SCORED_AT_ONCE):
            part = slice(start, start + _SCORED_AT_ONCE)
            inputs = _scaled(self._input_of(images[part]))
            guesses = self._logits(weights, inputs).argmax(1)
            right += int((guesses == labels[part]).sum())
        return right / len(labels)

    def _begin(self, ranks: Sequence[int]) -> None:
        run = self._run
        for rank in ranks:
            if rank not in self._batches:
                self._batches[rank] = streams.Batches(run.seed, rank, TRAINING,
                                                      run.batch)
        self._next_of = [self._batches[rank] for rank in ranks]
        self._random_labels = {
            position: torch.from_numpy(
                streams.stream(run.seed, streams.LABELS, rank)
                .integers(0, CLASSES, TRAINING))
            for position, rank in enumerate(ranks) if rank < run.random_labels}
        self._rows = {name: torch.empty((len(ranks), *shape))
                      for name, shape in self.shapes.items()}

    def _next_examples(self, part: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and labels of the next batches of these positions' ranks."""
        indices = torch.from_numpy(np.concatenate(
            [batches.next() for batches in self._next_of[part]]))
        labels = self._labels.index_select(0, indices)
        batch = self._run.batch
        for position, others in self._random_labels.items():
            if part.start <= position < part.stop:
                first = (position - part.start) * batch
                mine = slice(first, first + batch)
                labels[mine] = others.index_select(0, indices[mine])
        return _scaled(self._inputs.index_select(0, indices)), labels

    @classmethod
    @functools.lru_cache(maxsize=None)
    def _training_inputs(cls) -> torch.Tensor:
        return cls._input_of(_read_part("train")[0][:TRAINING])

    @staticmethod
    def _input_of(images: torch.Tensor) -> torch.Tensor:
        """A row of the first layer's uint8 inputs for each image."""
        raise NotImplementedError

    def _logits(self, weights: dict[str, torch.Tensor], inputs: torch.Tensor
                ) -> torch.Tensor:
        raise NotImplementedError

    def _differentiate(self, weights: dict[str, torch.Tensor],
                       inputs: torch.Tensor, labels: torch.Tensor,
                       rows: dict[str, torch.Tensor]) -> torch.Tensor:
        """Fills the rows of some ranks; their losses."""
        raise NotImplementedError


def _loss(logits: torch.Tensor, labels: torch.Tensor, ranks: int
          ) -> tuple[torch.Tensor, torch.Tensor]:
    """Each rank's mean cross-entropy, and its derivative by the logits."""
    batch = len(labels) // ranks
    logs = torch.log_softmax(logits, 1)
    taken = logs.gather(1, labels[:, None])
    by_logits = logs.exp_()
    by_logits.scatter_add_(1, labels[:, None],
                           torch.full_like(taken, -1.0)).mul_(1 / batch)
    return -taken.view(ranks, batch).mean(1), by_logits


def _through_relu(by_output: torch.Tensor, output: torch.Tensor
                  ) -> torch.Tensor:
    # One pass; a product with a mask takes five times as long.
    passed: torch.Tensor = torch.ops.aten.threshold_backward(by_output, output,
                                                             0)
    return passed


def _linear_rows(rows: dict[str, torch.Tensor], name: str,
                 by_output: torch.Tensor, inputs: torch.Tensor) -> None:
    """The gradients of output = inputs W^T + b, of each rank's examples."""
    weights, bias = rows[name + "/weights"], rows[name + "/bias"]
    ranks = len(weights)
    by_output = by_output.view(ranks, -1, by_output.shape[-1])
    torch.bmm(by_output.transpose(1, 2),
              inputs.view(ranks, -1, inputs.shape[-1]),
              out=weights.view(ranks, by_output.shape[-1], -1))
    torch.sum(by_output, 1, out=bias)


def _affine(weights: dict[str, torch.Tensor], name: str, inputs: torch.Tensor
            ) -> torch.Tensor:
    matrix, bias = weights[name + "/weights"], weights[name + "/bias"]
    return torch.addmm(bias, inputs, matrix.view(len(matrix), -1).t())


class Mlp(Fashion):
    """784 - 128 (ReLU) - 10: 101770 numbers."""

    shapes = {"hidden/weights": (128, 784), "hidden/bias": (128,),
              "output/weights": (10, 128), "output/bias": (10,)}

    @staticmethod
    def _input_of(images: torch.Tensor) -> torch.Tensor:
        return images

    def _logits(self, weights: dict[str, torch.Tensor], inputs: torch.Tensor
                ) -> torch.Tensor:
        return _affine(weights, "output",
                       _affine(weights, "hidden", inputs).relu_())

    def _differentiate(self, weights: dict[str, torch.Tensor],
                       inputs: torch.Tensor, labels: torch.Tensor,
                       rows: dict[str, torch.Tensor]) -> torch.Tensor:
        hidden = _affine(weights, "hidden", inputs).relu_()
        losses, by_logits = _loss(_affine(weights, "output", hidden), labels,
                                  len(rows["output/bias"]))
        _linear_rows(rows, "output", by_logits, hidden)
        by_hidden = torch.mm(by_logits, weights["output/weights"])
        _linear_rows(rows, "hidden", _through_relu(by_hidden, hidden), inputs)
        return losses


class Cnn(Fashion):
    """Convolutions 5x5 stride 3 (16 maps) and 2x2 stride 2 (32), each with ReLU,
    and a linear layer: 7626 numbers.

    A convolution is a product of patches and weights. The first one's patches
    are cut once for the whole data set; the second one's do not overlap.
    """

    # conv2's weights are [output, row, column, input].
    shapes = {"conv1/weights": (16, 5, 5), "conv1/bias": (16,),
              "conv2/weights": (32, 2, 2, 16), "conv2/bias": (32,),
              "output/weights": (10, 512), "output/bias": (10,)}

    @staticmethod
    def _input_of(images: torch.Tensor) -> torch.Tensor:
        """[examples, 8 * 8 patches * 5 * 5]"""
        patches = images.view(-1, 28, 28).unfold(1, 5, 3).unfold(2, 5, 3)
        return patches.reshape(len(images), 1600)

    @staticmethod
    def _maps(weights: dict[str, torch.Tensor], inputs: torch.Tensor
              ) -> tuple[torch.Tensor, torch.Tensor]:
        """The second convolution's patches [examples * 16, 64], and its
        output [examples, 512]."""
        first = _affine(weights, "conv1", inputs.view(-1, 25)).relu_()
        patches = (first.view(-1, 4, 2, 4, 2, 16).transpose(2, 3)
                   .reshape(-1, 64))
        second = _affine(weights, "conv2", patches).relu_()
        return patches, second.view(-1, 512)

    def _logits(self, weights: dict[str, torch.Tensor], inputs: torch.Tensor
                ) -> torch.Tensor:
        return _affine(weights, "output", self._maps(weights, inputs)[1])

    def _differentiate(self, weights: dict[str, torch.Tensor],
                       inputs: torch.Tensor, labels: torch.Tensor,
                       rows: dict[str, torch.Tensor]) -> torch.Tensor:
        patches, maps = self._maps(weights, inputs)
        losses, by_logits = _loss(_affine(weights, "output", maps), labels,
                                  len(rows["output/bias"]))
        _linear_rows(rows, "output", by_logits, maps)
        by_maps = torch.mm(by_logits, weights["output/weights"])
        by_maps = _through_relu(by_maps, maps).view(-1, 32)
        _linear_rows(rows, "conv2", by_maps, patches)
        # The patches are the first convolution's outputs, in another order.
        by_patches = torch.mm(by_maps, weights["conv2/weights"].view(32, 64))
        by_first = (_through_relu(by_patches, patches)
                    .view(-1, 4, 4, 2, 2, 16).transpose(2, 3))
        _linear_rows(rows, "conv1", by_first.reshape(-1, 16),
                     inputs.view(-1, 25))
        return losses
