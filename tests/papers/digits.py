"""The handwritten digits of deploy/data and the network 64-64-10, in numpy."""

from __future__ import annotations

import functools
import gzip
import pathlib

import numpy as np

from tests.papers import streams, tasks

_PATH = (pathlib.Path(__file__).resolve().parent.parent.parent
         / "deploy" / "data" / "digits.csv.gz")
TRAINING = 1440  # of 1797 images; the others are the test


@functools.lru_cache(maxsize=None)
def _read() -> tuple[np.ndarray, np.ndarray]:
    """Pixels from 0 to 1, float32 [1797, 64], and labels."""
    with gzip.open(_PATH) as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    return table[:, :64] / 16, table[:, 64].astype(np.int64)


def initial(seed: int) -> dict[str, np.ndarray]:
    """Weights by He's normal distribution, biases 0; float32 by name."""
    random = streams.stream(seed, streams.WEIGHTS)
    shapes = {"hidden": (64, 64), "output": (64, 10)}
    parameters = {}
    for layer, shape in shapes.items():
        parameters[f"{layer}/weights"] = random.normal(
            0, np.sqrt(2 / shape[0]), shape).astype(np.float32)
        parameters[f"{layer}/bias"] = np.zeros(shape[1], np.float32)
    return parameters


def gradients(parameters: tasks.Parameters, batches: np.ndarray
              ) -> tuple[tasks.Rows, float]:
    """Of each batch's mean cross-entropy.

    batches: indices of training images, [batches, examples].
    Returns: float32 arrays [batches, *shape] by name; the mean loss of all.
    """
    pixels, labels = (part[:TRAINING][batches] for part in _read())
    hidden = np.maximum(pixels @ parameters["hidden/weights"]
                        + parameters["hidden/bias"], 0)
    outputs = (hidden @ parameters["output/weights"]
               + parameters["output/bias"])
    outputs -= outputs.max(-1, keepdims=True)
    logs = outputs - np.log(np.exp(outputs).sum(-1, keepdims=True))
    right = labels[..., None] == np.arange(10)
    delta = ((np.exp(logs) - right) / batches.shape[1]).astype(np.float32)
    hidden_delta = (delta @ parameters["output/weights"].T) * (hidden > 0)
    return {"hidden/weights": np.swapaxes(pixels, 1, 2) @ hidden_delta,
            "hidden/bias": hidden_delta.sum(1),
            "output/weights": np.swapaxes(hidden, 1, 2) @ delta,
            "output/bias": delta.sum(1)}, float(-logs[right].mean())


def accuracy(parameters: tasks.Parameters) -> float:
    """On the test images."""
    pixels, labels = (part[TRAINING:] for part in _read())
    hidden = np.maximum(pixels @ parameters["hidden/weights"]
                        + parameters["hidden/bias"], 0)
    outputs = (hidden @ parameters["output/weights"]
               + parameters["output/bias"])
    return float((outputs.argmax(1) == labels).mean())
