"""All ranks of a job, in one process: a client, a session and a row each.

Their gradients come from one pass, and the next ones are of what rank 0 pulled;
all ranks pull, and now and then are compared. The program does a job for each
line of its input, {"run": ..., "address": ...}, and answers with a line of what
job.run_job returns. It ends with its input, also amid a job, or with the first
error.
"""

from __future__ import annotations

import concurrent.futures
import json
import math
import os
import queue
import sys
import threading
import time
from typing import Any, Callable, Iterable, Optional

# Before libagg is loaded. With gRPC's default poller the many clients of one
# process wake each other: 64 ranks take 44 ms to 2.8 s for a round that takes
# 25 ms.
os.environ.setdefault("GRPC_POLL_STRATEGY", "poll")

# pylint: disable=wrong-import-position
import agg_server as agg
import numpy as np
import torch
from agg_server.outcome import Info

from tests.papers import metrics_page, tasks
from tests.papers.description import Run
from tests.papers.local_optimizers import LocalOptimizers

# Of a machine that has other things to do.
_CONNECT_SECONDS = 300.0
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


class Crew:
    """A thread for each rank, which makes the same call as the others.

    (A pool's queue and futures cost 64 ranks some milliseconds per round.)
    """

    def __init__(self, size: int) -> None:
        self._turns = [threading.Lock() for _ in range(size)]
        self._all_done = threading.Lock()
        for lock in (*self._turns, self._all_done):
            lock.acquire()
        self._call: Optional[Callable[[int], Any]] = None
        self._results: list[Any] = [None] * size
        self._left = 0
        self._counter = threading.Lock()
        for rank in range(size):
            threading.Thread(target=self._work, args=(rank,),
                             daemon=True).start()

    def __call__(self, call: Callable[[int], Any], ranks: range) -> list[Any]:
        """What it returns for each of them. Raises what one of them raised."""
        self._call, self._left = call, len(ranks)
        for rank in ranks:
            self._turns[rank].release()
        if ranks:
            self._all_done.acquire()
        results = [self._results[rank] for rank in ranks]
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    def close(self) -> None:
        """Ends the threads."""
        self._call = None
        for turn in self._turns:
            turn.release()

    def _work(self, rank: int) -> None:
        while True:
            self._turns[rank].acquire()
            if self._call is None:
                return
            try:
                self._results[rank] = self._call(rank)
            except BaseException as error:
                self._results[rank] = error
            with self._counter:
                self._left -= 1
                last = self._left == 0
            if last:
                self._all_done.release()


class Ranks:
    """The job's workers, each on a thread of its own. Not thread-safe."""

    def __init__(self, run: Run, address: str, metrics_port: int,
                 initial: dict[str, np.ndarray]) -> None:
        self._crew = Crew(run.most_ranks)
        self._examples = run.batch
        mode = "combine" if run.step == "oracle" else "server"
        self._join = lambda rank: agg.Worker(
            {name: torch.from_numpy(array.copy())
             for name, array in initial.items()},
            address, rank, mode=mode, tune_malloc=1,
            connect_timeout=_CONNECT_SECONDS)
        self._workers: list[agg.Worker] = []
        # What each rank pulled last.
        self._pulled: list[dict[str, torch.Tensor]] = []
        self._metrics_port = metrics_port
        self._joining: Optional[concurrent.futures.Future[
            list[agg.Worker]]] = None
        self._workers += self._crew(self._join, range(run.ranks))

    def __len__(self) -> int:
        """How many take part in the next round."""
        return len(self._workers)

    def resize(self, count: int) -> None:
        """Lets the last ranks leave, or new ones join a running job, between two
        rounds. Who joins takes part from the round after the next one on."""
        before = len(self._workers)
        self._crew(lambda rank: self._workers[rank].close(),
                   range(count, before))
        del self._workers[count:]
        if count <= before or self._joining is not None:
            return
        new = Crew(count - before)
        self._joining = concurrent.futures.Future()

        def join(joining: "concurrent.futures.Future[list[agg.Worker]]") -> None:
            try:
                joining.set_result(new(lambda rank: self._join(before + rank),
                                       range(count - before)))
            except BaseException as error:  # pylint: disable=broad-except
                joining.set_exception(error)
            new.close()

        threading.Thread(target=join, args=(self._joining,),
                         daemon=True).start()
        # A join that came behind the next round's rows would be a round late:
        # which round it is must not depend on time.
        deadline = time.monotonic() + _CONNECT_SECONDS
        while metrics_page.read(self._metrics_port,
                                "aggserver_workers_joined") < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{count} ranks are not in after "
                                   f"{_CONNECT_SECONDS:.0f} s")
            time.sleep(.01)

    def round(self, rows: tasks.Rows, losses: list[float]
              ) -> tuple[agg.Outcome, dict[str, np.ndarray]]:
        """All ranks push, wait and pull; what they pulled: good until the next
        round. Raises agg.Error's kinds."""
        tensors = {name: torch.from_numpy(array)
                   for name, array in rows.items()}

        def of_rank(rank: int) -> tuple[agg.Outcome, dict[str, torch.Tensor]]:
            loss = losses[rank] if math.isfinite(losses[rank]) else None
            # Unlike step(), it copies neither the row nor what was pulled.
            return self._workers[rank].exchange(
                {name: tensor[rank] for name, tensor in tensors.items()},
                Info(loss, self._examples))

        # Alone, a rank needs no other thread.
        here = range(len(self._workers))
        ended = self._crew(of_rank, here) if len(here) > 1 else [of_rank(0)]
        rows_in = len(ended[0][0].ranks) + len(ended[0][0].excluded_ranks)
        if rows_in != len(here):
            raise RuntimeError(f"the round has {rows_in} rows; allowed: one of "
                               f"each of the {len(here)} ranks")
        if self._joining is not None:
            self._workers += self._joining.result(_CONNECT_SECONDS)
            self._joining = None
        versions = {outcome.version for outcome, _ in ended}
        if len(versions) != 1:
            raise RuntimeError(f"the ranks have the versions {versions}; "
                               "allowed: one of them")
        self._pulled = [pulled for _, pulled in ended]
        return ended[0][0], {name: tensor.numpy()
                             for name, tensor in self._pulled[0].items()}

    def compare(self) -> None:
        """Raises RuntimeError: a rank has pulled something else than rank 0."""
        for rank, pulled in enumerate(self._pulled):
            for name, tensor in pulled.items():
                if not np.array_equal(tensor.numpy(),
                                      self._pulled[0][name].numpy(),
                                      equal_nan=True):
                    raise RuntimeError(f"rank {rank} has another {name} than "
                                       "rank 0")

    def close(self) -> None:
        """All ranks leave."""
        self.resize(0)
        self._crew.close()


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

    def __init__(self, run: Run, address: str, metrics_port: int = 0) -> None:
        """metrics_port: shard 0's, for a run with later_ranks."""
        self._run = run
        self._task = tasks.make(run.task, run)
        self._parameters = self._task.initial(run.seed)
        self._ranks = Ranks(run, address, metrics_port, self._parameters)
        self._local = (LocalOptimizers(run.optimizer, run.learning_rate)
                       if run.push == "delta" else None)
        self._losses: list[float] = []
        self._gains: list[float] = []
        self._gain_spans = Spans(run.spans)
        self._orthogonality_spans = Spans(run.spans)
        self._seconds: list[float] = []
        self._curve: list[list[float]] = []
        self._tau = 0.0
        self._rows = 0  # of all rounds
        self._diverged = False

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """The newest ones, float32 by name."""
        return self._parameters

    def result(self) -> dict[str, Any]:
        """Trains; what job.run_job returns."""
        reached, finished = None, False
        while not finished and not self._diverged and reached is None and \
                len(self._losses) < self._run.rounds:
            started = time.perf_counter()
            if self._run.later_ranks:
                self._ranks.resize(self._run.ranks_at(self._part()))
            ranks = len(self._ranks)
            self._rows += ranks
            rows, losses = self._task.gradients(
                self._parameters, range(ranks), len(self._losses))
            finished = self._round(rows, losses)
            self._seconds.append(time.perf_counter() - started)
            reached = self._look(finished)
        self._ranks.compare()
        self._ranks.close()
        return self._summary(reached)

    def _part(self) -> float:
        """Of training, 0 to 1, that is done: by T_SI, or by rounds, whatever
        ends the job."""
        run = self._run
        return (self._tau / run.scale_invariant_iterations
                if run.scale_invariant_iterations
                else len(self._losses) / run.rounds)

    def _round(self, rows: tasks.Rows, losses: list[float]) -> bool:
        """Whether no round follows."""
        run = self._run
        if run.push == "unit":
            scale_to_unit(rows, run.unit_scale)
        elif self._local is not None:
            self._local.step(self._parameters, rows)
        outcome, pulled = self._ranks.round(rows, losses)
        if run.step == "server":
            self._parameters = pulled
        elif outcome.applied:
            rate = np.float32(self._task.oracle_rate(self._parameters, pulled))
            self._parameters = {name: array - rate * pulled[name]
                                for name, array in self._parameters.items()}
        part = self._part()
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
            "examples": self._rows * run.batch,
            "mean_gain": _mean(self._gains),
            "curve": [[at, point if math.isfinite(point) else None]
                      for at, point in self._curve],
            "reached": reached,
            "gain": self._gain_spans.means(),
            "orthogonality": self._orthogonality_spans.means(),
            "round_ms": round(1e3 * float(np.median(self._seconds)), 3),
        }


def _read_jobs(jobs: "queue.Queue[str]") -> None:
    for line in sys.stdin:
        jobs.put(line)
    # Nobody waits for an answer any more, and shards may be gone: a job would
    # wait for them.
    os._exit(0)


def main() -> None:
    """The program."""
    torch.set_num_threads(1)
    answers, sys.stdout = sys.stdout, sys.stderr  # who prints says no answer
    jobs: "queue.Queue[str]" = queue.Queue()
    threading.Thread(target=_read_jobs, args=(jobs,), daemon=True).start()
    while True:
        job = json.loads(jobs.get())
        result = Training(Run(**job["run"]), job["address"],
                          job["metrics_port"]).result()
        answers.write(json.dumps(result) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
