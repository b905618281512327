"""Runs of S workers without servers: one loop, and rules on whole vectors.

    python -m tests.papers.without_servers [SEEDS [CELL ...]]

A mean of gradients has batches S times as large instead of S rows. For the cells
whose numbers are not the simulation's: is it the servers, or what a training begins
with? Prints the test accuracy (or passes to the target) from three kinds of
initial weights. "he" is the experiments'; "small output" the same with the last layer's
divided by the square root of 2 (there is no ReLU behind it); "uniform" has
torch's, uniform within 1/sqrt(fan_in), biases too.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Optional, Sequence

import numpy as np
import torch

from tests.papers import adascale_runs, adasum_runs, cells, rates, tasks
from tests.papers.description import Run
from tests.papers.local_optimizers import LocalOptimizers
from tests.papers.regression import Regression

# By the name of the cell: its run with this seed.
CELLS = {
    "adascale mlp/same_rate/64": lambda seed: adascale_runs.plain(
        "mlp", 64, seed, 215),
    "adasum sgd/mean/16/one": lambda seed: adasum_runs.short(
        "sgd", "mean", 16, .04, seed, False),
    "adasum sgd/adasum_delta/16/tuned": lambda seed: adasum_runs.short(
        "sgd", "adasum_delta", 16, .02, seed, False),
    "adasum adam/sum_delta/16/one": lambda seed: adasum_runs.short(
        "adam", "sum_delta", 16, .008, seed, False),
    "adasum adam/adasum/16/one": lambda seed: adasum_runs.short(
        "adam", "adasum", 16, .008, seed, False),
    "adasum epochs/adam/adasum_delta/64": lambda seed: dataclasses.replace(
        adasum_runs.to_target(False)["epochs/adam/adasum_delta/64"][0],
        seed=seed),
    "adascale mlp/identity/16": lambda seed: adascale_runs.plain(
        "mlp", 16, seed, 13750),
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


def pair(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Adasum of two vectors, float64."""
    dot = float(left @ right)
    squares = [float(left @ left), float(right @ right)]
    halves = [dot / (2 * square) if square > 0 else 0. for square in squares]
    return (1 - halves[0]) * left + (1 - halves[1]) * right


def combine(rule: str, rows: np.ndarray) -> np.ndarray:
    """[ranks, ...] to [1, ...]; Adasum's tree pairs neighbours."""
    if rule != "adasum":
        total = rows.sum(0, dtype=np.float64, keepdims=True)
        return total / (len(rows) if rule == "mean" else 1)
    level = [row.astype(np.float64).ravel() for row in rows]
    while len(level) > 1:  # a power of two
        level = [pair(*level[at:at + 2]) for at in range(0, len(level), 2)]
    return level[0].reshape(1, *rows.shape[1:])


class UnitRows:
    """unit_mean and adacons on whole float64 rows (server/combine/README.md 2.3
    and 4.1), without the guard. It remembers AdaCons's sorted alphas."""

    def __init__(self, rule: str, beta: float = .99, unsort: str = "scatter",
                 epsilon: float = 1e-8) -> None:
        self._rule, self._beta = rule, beta
        self._unsort, self._epsilon = unsort, epsilon
        self.momentum: Optional[np.ndarray] = None

    def combine(self, rows: np.ndarray) -> np.ndarray:
        """[ranks, elements] to [elements], float64."""
        rows = rows.astype(np.float64)
        norms = np.sqrt(np.square(rows).sum(1))
        if self._rule == "unit_mean":
            return (rows / norms[:, None]).mean(0)
        norms += self._epsilon
        alphas = rows @ rows.mean(0) / norms
        order = np.argsort(alphas, kind="stable")
        sorted_ = alphas[order]
        self.momentum = (sorted_ if self.momentum is None else
                         self._beta * self.momentum + (1 - self._beta) * sorted_)
        if self._unsort == "gather":
            alphas = self.momentum[order]
        else:
            alphas[order] = self.momentum
        return alphas / alphas.sum() / norms @ rows


def regression(run: Run) -> dict[str, Any]:
    """The score of a run of the task "regression" with the oracle's step, in the
    shape of job.run_job's result."""
    task = tasks.make(run.task, run)
    assert isinstance(task, Regression) and run.step == "oracle"
    parameters = task.initial(run.seed)
    unit = UnitRows(run.rule, **run.adacons)
    for number in range(run.rounds):
        rows, _ = task.gradients(parameters, range(run.ranks), number)
        for name, array in parameters.items():
            change = (combine("mean", rows[name])[0] if run.rule == "mean"
                      else unit.combine(rows[name])).astype(np.float32)
            rate = np.float32(task.oracle_rate(parameters, {name: change}))
            array -= rate * change
    score = task.score(parameters, "test")
    finite = bool(np.isfinite(score))
    return {"score": score if finite else None, "rounds": run.rounds,
            "failed": "" if finite else "not finite"}


def train(run: Run, kind: str) -> Optional[float]:
    """The test accuracy; with stop_at the passes to it, or None."""
    if run.rule == "mean" and run.push == "gradient":
        run = dataclasses.replace(run, ranks=1, batch=run.ranks * run.batch)
    task = tasks.make(run.task, run)
    parameters = initial(task, run.seed, kind)
    optimizer = LocalOptimizers(run.optimizer, run.learning_rate)
    for number in range(1, run.rounds + 1):
        rows, _ = task.gradients(parameters, range(run.ranks), number - 1)
        if run.push == "delta":
            rows = optimizer.step(parameters, rows)
        changes = {name: combine(run.rule, array).astype(np.float32)
                   for name, array in rows.items()}
        if run.push != "delta":
            changes = optimizer.step(parameters, changes)
        for name, array in parameters.items():
            array += changes[name][0]
        if run.stop_at and number % run.evaluate_every == 0 and \
                task.score(parameters, "test") >= run.stop_at:
            return rates.passes(number, run.ranks, run.batch)
    return None if run.stop_at else task.score(parameters, "test")


def main(arguments: Sequence[str]) -> int:
    seeds = int(arguments[0]) if arguments else 6
    torch.set_num_threads(1)
    for name in arguments[1:] or CELLS:
        make = CELLS[name]
        for kind in KINDS:
            found = cells.Cell(tuple(train(make(seed), kind)
                                     for seed in range(seeds)))
            each = ", ".join("never" if value is None else f"{value:.4f}"
                             for value in found.values)
            sys.stdout.write(f"{name}  {kind:12}  {found.text()}: {each}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
