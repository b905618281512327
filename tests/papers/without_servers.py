"""The mean of S workers without servers: one loop with batches S times as large.

    python -m tests.papers.without_servers [SEEDS]

For the cells whose numbers are not the simulation's: is it the servers, or what
a training begins with? Prints the test accuracy from three kinds of initial
weights. "he" is the experiments'; "small output" the same with the last layer's
divided by the square root of 2 (there is no ReLU behind it); "uniform" has
torch's, uniform within 1/sqrt(fan_in), biases too.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Sequence

import numpy as np
import torch

from tests.papers import adascale_runs, adasum_runs, cells, tasks
from tests.papers.description import Run
from tests.papers.local_optimizers import LocalOptimizers

# By the name of the cell: its run with this seed.
CELLS = {
    "adascale mlp/same_rate/64": lambda seed: adascale_runs.plain(
        "mlp", 64, seed, 215),
    "adasum sgd/mean/16/one": lambda seed: adasum_runs.short(
        "sgd", "mean", 16, .04, seed, False),
}
KINDS = ("he", "small output", "uniform")


def initial(task: tasks.Task, seed: int, kind: str) -> dict[str, np.ndarray]:
    """float32 by name, in the manifest's order."""
    drawn = task.initial(seed)
    if kind == "small output":
        drawn["output/weights"] /= np.float32(np.sqrt(2))
    elif kind == "uniform":
        random = np.random.default_rng(seed)
        bound = 0.0
        for name, array in drawn.items():
            if array.ndim > 1:  # its bias is the next one
                bound = float(1 / np.sqrt(np.prod(array.shape[1:])))
            drawn[name] = random.uniform(-bound, bound, array.shape).astype(
                np.float32)
    return drawn


def train(run: Run, kind: str) -> float:
    """The test accuracy of a run with the rule "mean"."""
    alone = dataclasses.replace(run, ranks=1, batch=run.ranks * run.batch)
    task = tasks.make(alone.task, alone)
    parameters = initial(task, alone.seed, kind)
    optimizer = LocalOptimizers(alone.optimizer, alone.learning_rate)
    for number in range(alone.rounds):
        rows, _ = task.gradients(parameters, [0], number)
        changes = optimizer.step(parameters, rows)
        for name, array in parameters.items():
            array += changes[name][0]
    return task.score(parameters, "test")


def main(arguments: Sequence[str]) -> int:
    seeds = int(arguments[0]) if arguments else 6
    torch.set_num_threads(1)
    for name, make in CELLS.items():
        for kind in KINDS:
            found = cells.Cell(tuple(train(make(seed), kind)
                                     for seed in range(seeds)))
            sys.stdout.write(f"{name}  {kind:12}  {found.text()} of {seeds}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
