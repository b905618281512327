"""All ranks of a job, in one process: a client, a session and a row each.

    python3 -m tests.papers.worker ADDRESS RESULT <run.json

Their gradients come from one pass, and the next ones are of what rank 0 pulled;
all ranks pull, and now and then are compared. ADDRESS is shard 0's, RESULT the
file that gets what job.run_job returns.
"""

from __future__ import annotations

import concurrent.futures
import json
import math
import os
import pathlib
import sys
import time
from typing import Any, Iterable, Optional

# Before libagg is loaded. With gRPC's default poller the many clients of one
# process wake each other: 64 ranks take 44 ms to 2.8 s for a round that takes
# 25 ms.
os.environ.setdefault("GRPC_POLL_STRATEGY", "poll")

# pylint: disable=wrong-import-position
import agg_server as agg
import numpy as np
import torch

from tests.papers import tasks
from tests.papers.description import Run
from tests.papers.local_optimizers import LocalOptimizers

_COMPARED_EVERY = 250
# Of a job's rounds: the last ones, whose mean is its training loss.
_LAST_PART = 0.05


class Spans:
    """Means of a number over equal spans of training."""

    def __init__(self, count: int) -> None:
        self._values: list[list[float]] = [[] for _ in range(count)]

    def add(self, part: float, value: float) -> None:
        """part: of training, 0 to 1, before the round; NaN counts as none."""
        if self._values and math.isfinite(value):
            last = len(self._values) - 1
            self._values[min(int(part * len(self._values)), last)].append(value)

    def means(self) -> list[Optional[float]]:
        """None: nothing was added."""
        return [math.fsum(span) / len(span) if span else None
                for span in self._values]


class Ranks:
    """The job's clients. Not thread-safe."""

    def __init__(self, run: Run, address: str,
                 initial: dict[str, np.ndarray]) -> None:
        self._combines = run.step == "oracle"
        self._pool = concurrent.futures.ThreadPoolExecutor(run.ranks)
        self._parameters = [{name: array.copy()
                             for name, array in initial.items()}
                            for _ in range(run.ranks)]
        self._clients = list(self._pool.map(
            lambda rank: agg.Client(self._parameters[rank], address, rank),
            range(run.ranks)))
        self._examples = run.batch

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """What rank 0 has; of the optimizer "none" what it began with."""
        return self._parameters[0]

    def round(self, rows: tasks.Rows, losses: list[float]
              ) -> tuple[agg.Outcome, Optional[dict[str, np.ndarray]]]:
        """All ranks push, wait and pull. Also the combined gradient, if the
        optimizer is "none". Raises agg.Error's kinds."""
        def of_rank(rank: int) -> Optional[dict[str, np.ndarray]]:
            client = self._clients[rank]
            row = {name: array[rank] for name, array in rows.items()}
            loss = losses[rank] if math.isfinite(losses[rank]) else None
            if self._combines:
                return client.all_reduce(row, loss, self._examples)
            client.step(row, loss, self._examples)
            return None

        # Alone, a rank needs no other thread.
        combined = (list(self._pool.map(of_rank, range(len(self._clients))))
                    if len(self._clients) > 1 else [of_rank(0)])
        outcomes = [client.last for client in self._clients]
        versions = {outcome.version for outcome in outcomes if outcome}
        if len(versions) != 1 or outcomes[0] is None:
            raise RuntimeError(f"the ranks have the versions {versions}; "
                               "allowed: one of them")
        return outcomes[0], combined[0]

    def compare(self) -> None:
        """Raises RuntimeError: a rank has other parameters than rank 0."""
        for rank, parameters in enumerate(self._parameters):
            for name, array in parameters.items():
                if not np.array_equal(array, self._parameters[0][name],
                                      equal_nan=True):
                    raise RuntimeError(f"rank {rank} has another {name} than "
                                       "rank 0")

    def close(self) -> None:
        """All ranks leave."""
        list(self._pool.map(lambda client: client.close(), self._clients))
        self._pool.shutdown()


def scale_to_unit(rows: tasks.Rows, unit_scale: str) -> None:
    """Each rank's row, over all tensors, to the norm 1; with "mean_norm" to the
    mean of the ranks' norms. A row of zeros stays. In place."""
    flat = [array.reshape(len(array), -1) for array in rows.values()]
    norms = np.sqrt(sum(np.einsum("ri,ri->r", part, part, dtype=np.float64)
                        for part in flat))
    length = norms.mean() if unit_scale == "mean_norm" else 1.0
    factors = (length / np.where(norms > 0, norms, 1)).astype(np.float32)
    for part in flat:
        part *= factors[:, None]


def _finite(arrays: Iterable[np.ndarray]) -> bool:
    return all(bool(np.isfinite(array).all()) for array in arrays)


def _mean(values: list[float]) -> Optional[float]:
    kept = [value for value in values if math.isfinite(value)]
    return math.fsum(kept) / len(kept) if kept else None


class Training:
    """A job from its first round to its last."""

    def __init__(self, run: Run, address: str) -> None:
        self._run = run
        self._task = tasks.make(run.task, run)
        self._parameters = self._task.initial(run.seed)
        self._ranks = Ranks(run, address, self._parameters)
        self._local = (LocalOptimizers(run.optimizer, run.learning_rate)
                       if run.push == "delta" else None)
        self._losses: list[float] = []
        self._gains: list[float] = []
        self._gain_spans = Spans(run.spans)
        self._orthogonality_spans = Spans(run.spans)
        self._seconds: list[float] = []
        self._curve: list[list[float]] = []
        self._tau = 0.0
        self._diverged = False

    def result(self) -> dict[str, Any]:
        """Trains; what job.run_job returns."""
        reached, finished = None, False
        everyone = range(self._run.ranks)
        while not finished and not self._diverged and reached is None and \
                len(self._losses) < self._run.rounds:
            started = time.perf_counter()
            rows, losses = self._task.gradients(
                self._parameters, everyone, len(self._losses))
            finished = self._round(rows, losses)
            self._seconds.append(time.perf_counter() - started)
            reached = self._look(finished)
        self._ranks.compare()
        self._ranks.close()
        return self._summary(reached)

    def _round(self, rows: tasks.Rows, losses: list[float]) -> bool:
        """Whether no round follows."""
        run = self._run
        if run.push == "unit":
            scale_to_unit(rows, run.unit_scale)
        elif self._local is not None:
            self._local.step(self._parameters, rows)
        outcome, combined = self._ranks.round(rows, losses)
        if combined is not None:
            rate = np.float32(self._task.oracle_rate(self._parameters,
                                                     combined))
            for name, direction in combined.items():
                self._parameters[name] = (self._parameters[name] -
                                          rate * direction)
        elif run.step == "server":
            self._parameters = self._ranks.parameters
        # T_SI, or rounds: whatever ends the job.
        part = (self._tau / run.scale_invariant_iterations
                if run.scale_invariant_iterations
                else len(self._losses) / run.rounds)
        self._gain_spans.add(part, outcome.gain)
        self._orthogonality_spans.add(part, outcome.orthogonality)
        self._tau = outcome.tau
        self._losses.append(float(np.mean(losses)))
        self._gains.append(outcome.gain)
        # A skipped round had no row that was finite.
        if not outcome.applied or not math.isfinite(self._losses[-1]):
            self._diverged = True
        return outcome.finished

    def _look(self, finished: bool) -> Optional[int]:
        """The round at which a point of the curve reached stop_at."""
        run, rounds = self._run, len(self._losses)
        if rounds % _COMPARED_EVERY == 0:
            self._ranks.compare()
            if not _finite(self._parameters.values()):
                self._diverged = True
        if not run.evaluate_every or \
                (rounds % run.evaluate_every and not finished):
            return None
        score = self._task.score(self._parameters, run.evaluate)
        self._curve.append([rounds, score])
        better = (score >= run.stop_at if self._task.higher_is_better
                  else score <= run.stop_at)
        return rounds if run.stop_at and better else None

    def _summary(self, reached: Optional[int]) -> dict[str, Any]:
        run, rounds = self._run, len(self._losses)
        score = float(self._task.score(self._parameters, run.evaluate))
        failed = ""
        if self._diverged or not _finite(self._parameters.values()) or \
                not math.isfinite(score):
            failed = "not finite"
        elif self._task.higher_is_better and \
                score < getattr(self._task, "guesses_below", -math.inf):
            failed = "guesses"
        last = max(1, round(_LAST_PART * rounds))
        return {
            "score": score if math.isfinite(score) else None,
            "train_loss": _mean(self._losses[-last:]),
            "failed": failed,
            "rounds": rounds,
            "examples": rounds * run.ranks * run.batch,
            "mean_gain": _mean(self._gains),
            "curve": [[at, point if math.isfinite(point) else None]
                      for at, point in self._curve],
            "reached": reached,
            "gain": self._gain_spans.means(),
            "orthogonality": self._orthogonality_spans.means(),
            "round_ms": round(1e3 * float(np.median(self._seconds)), 3),
        }


def main() -> None:
    """The program."""
    torch.set_num_threads(1)
    address, result = sys.argv[1:]
    run = Run(**json.load(sys.stdin))
    summary = Training(run, address).result()
    pathlib.Path(result).write_text(json.dumps(summary))


if __name__ == "__main__":
    main()
