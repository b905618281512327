"""Workers come and go by their worth: what that saves of a training.

    python -m tests.papers.scaling

Trains the digits' network with AdaScale through two real shards: with fixed
numbers of workers, and with as many as `aggserver_useful_workers` asks for, which
is read from the coordinator's metrics every few rounds and obeyed as Kubernetes'
HorizontalPodAutoscaler would (deploy/k8s/examples/autoscale). Workers are
sessions of this process, which join and leave a running job; each takes
--compute_seconds for a gradient, so that processors do not decide.

A worker costs one worker-round for each round that it is in. The result is
compared with fixed numbers in three ways, since a gain of at most W says that one
worker always needs the fewest worker-rounds, in the longest time:

- worker-rounds alone;
- worker-rounds of those that take no more rounds than it does: a deadline;
- with the shards, which cost as much as a worker each, in every round.

AGG_SERVER and AGG_LIBRARY name the programs; else they are bazel-bin's.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import sys
import threading
import time
from typing import Any, Optional, Sequence

import numpy as np

from tests.papers import digits, job, metrics_page, streams

# pylint: disable=wrong-import-order
import agg_server as agg  # job has put the package into the path

SHARDS = 2
# Of the HorizontalPodAutoscaler: it lets a smaller deviation be.
_TOLERANCE = 0.1
# Two micro-gradients in each row: without them one worker measures no noise, and
# a job that has come down to it would never grow again.
_MICRO = 2
_CONNECT_SECONDS = 120.0


def wanted(useful: float, now: int, most: int) -> int:
    """How many workers the autoscaler asks for, 1 to `most`.

    useful: of the metric, which may be +inf, or NaN: then nothing changes.
    """
    if math.isnan(useful) or abs(useful / now - 1) <= _TOLERANCE:
        return now
    return max(1, math.ceil(min(useful, most)))


@dataclasses.dataclass(frozen=True)
class Plan:
    """One training. `fixed`: workers; 0: as many as the metric asks for."""
    fixed: int
    most: int
    iterations: int  # of one worker, which AdaScale makes of more
    batch: int
    rate: float
    smoothing: float
    every: int  # rounds between two looks at the metric
    compute_seconds: float
    seed: int


@dataclasses.dataclass(frozen=True)
class Result:
    """What it came to."""
    accuracy: float
    rounds: int
    worker_rounds: int
    worker_seconds: float  # of all sessions, by the clock
    fifths: tuple[float, ...]  # mean number of workers, by progress


def useful_workers(port: int) -> float:
    """The metric, from the coordinator's page."""
    return metrics_page.read(port, "aggserver_useful_workers")


def configuration(plan: Plan, port: int) -> dict[str, Any]:
    """Fields of the job's configuration, but for the shards."""
    return {
        "workers": plan.fixed or 1, "min_workers": 1, "max_workers": plan.most,
        "compute_threads": 1,
        "combination": {"rule": "mean"},
        "learning_rate": {
            "schedule": "multistep", "rate": plan.rate,
            "boundaries": [plan.iterations * .5, plan.iterations * .8]},
        # Shorter averages than by default, which take hundreds of rounds.
        "step_scale": {"kind": "adascale", "smoothing": plan.smoothing,
                       "clip_before_average": False,
                       "baseline_examples": plan.batch},
        "scale_invariant_iterations": plan.iterations,
        "metrics": {"port": port}}


class Training:
    """A job whose workers are threads of this process. Used once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._address = ""
        self._port = metrics_page.free_ports(SHARDS)
        self._batches: dict[int, streams.Batches] = {}
        self._lock = threading.Lock()
        self._workers: dict[int, tuple[threading.Thread, threading.Event]] = {}
        self._errors: list[BaseException] = []
        self._worker_seconds = 0.0
        # Of rank 0's outcomes: progress in [0, 1) before the round, and how
        # many rows it had.
        self._rounds: list[tuple[float, int]] = []
        self._tau = 0.0
        self._parameters: dict[str, np.ndarray] = {}

    def run(self) -> Result:
        """Trains. Raises what a worker raised, or agg.Error."""
        config = configuration(self._plan, self._port)
        with agg.LocalServer(shards=SHARDS, workers=self._plan.fixed or 1,
                             config=config) as server:
            self._address = server.address
            for rank in range(self._plan.fixed or 1):
                self._start(rank)
            self._workers[0][0].join()
            for thread, leaving in list(self._workers.values()):
                leaving.set()
                thread.join()
        if self._errors:
            raise self._errors[0]
        fifths = []
        for fifth in range(5):
            rows = [rows for progress, rows in self._rounds
                    if int(progress * 5) == fifth]
            fifths.append(statistics.fmean(rows) if rows else math.nan)
        return Result(digits.accuracy(self._parameters), len(self._rounds),
                      sum(rows for _, rows in self._rounds),
                      self._worker_seconds, tuple(fifths))

    def _start(self, rank: int) -> None:
        leaving = threading.Event()
        thread = threading.Thread(target=self._work, args=(rank, leaving),
                                  daemon=True)
        self._workers[rank] = thread, leaving
        thread.start()

    def _work(self, rank: int, leaving: threading.Event) -> None:
        started = time.monotonic()
        try:
            self._train(rank, leaving)
        except agg.JobFinished:
            pass  # while this worker was joining
        except BaseException as error:  # pylint: disable=broad-except
            self._errors.append(error)
            # Nobody is to wait for the rows of a worker that is gone.
            for _, other in list(self._workers.values()):
                other.set()
        finally:
            with self._lock:
                self._worker_seconds += time.monotonic() - started

    def _train(self, rank: int, leaving: threading.Event) -> None:
        plan = self._plan
        batches = self._batches.setdefault(rank, streams.Batches(
            plan.seed, rank, digits.TRAINING, plan.batch))
        parameters = digits.initial(plan.seed)
        with agg.Client(parameters, self._address, rank,
                        connect_timeout=_CONNECT_SECONDS) as client:
            while not leaving.is_set():
                rows, loss = digits.gradients(
                    parameters, batches.next().reshape(_MICRO, -1))
                squares = sum(float(np.vdot(row, row)) for row in rows.values())
                time.sleep(plan.compute_seconds)
                outcome = client.step(
                    {name: row.mean(0) for name, row in rows.items()}, loss,
                    plan.batch, _MICRO, norm_squared_sum=squares)
                if rank == 0:
                    self._parameters = parameters
                    self._count(outcome)
                if outcome.finished:
                    return

    def _count(self, outcome: agg.Outcome) -> None:
        """Of rank 0: notes a round, and lets the autoscaler look."""
        self._rounds.append(
            (min(self._tau / self._plan.iterations, 1 - 1e-9),
             len(outcome.ranks) + len(outcome.excluded_ranks)))
        self._tau = outcome.tau
        if self._plan.fixed or outcome.finished or \
                len(self._rounds) % self._plan.every:
            return
        here = [rank for rank, (thread, leaving) in self._workers.items()
                if thread.is_alive() and not leaving.is_set()]
        target = wanted(useful_workers(self._port), len(here), self._plan.most)
        for rank in sorted(here)[target:]:
            self._workers[rank][1].set()
        # One that is still leaving cannot come back yet: the next look has it.
        free = [rank for rank in range(self._plan.most)
                if rank not in self._workers
                or not self._workers[rank][0].is_alive()]
        for rank in free[:max(target - len(here), 0)]:
            self._start(rank)


@dataclasses.dataclass(frozen=True)
class Summary:
    """Means over the seeds, of one number of workers or (0) by worth."""
    fixed: int
    results: tuple[Result, ...]

    def mean(self, name: str) -> float:
        """Of a field of Result."""
        return statistics.fmean(getattr(r, name) for r in self.results)

    def error(self, name: str) -> float:
        """The standard error of the mean; NaN of one seed."""
        if len(self.results) < 2:
            return math.nan
        return float(statistics.stdev(
            getattr(r, name) for r in self.results)
            / math.sqrt(len(self.results)))

    @property
    def with_shards(self) -> float:
        """Worker-rounds, and those of the shards."""
        return self.mean("worker_rounds") + SHARDS * self.mean("rounds")


def as_accurate(some: Summary, one: Summary) -> bool:
    """By two standard errors of the difference; with one seed by its mean."""
    difference = one.mean("accuracy") - some.mean("accuracy")
    errors = [e for e in (some.error("accuracy"), one.error("accuracy"))
              if not math.isnan(e)]
    return difference <= 2 * math.hypot(*errors)


def verdicts(summaries: Sequence[Summary]) -> list[str]:
    """How "by worth" compares with the fixed numbers that are as accurate as
    one worker: three lines."""
    (scaled,) = [s for s in summaries if s.fixed == 0]
    (one,) = [s for s in summaries if s.fixed == 1]
    fixed = [s for s in summaries if s.fixed and as_accurate(s, one)]
    in_time = [s for s in fixed
               if s.mean("rounds") <= scaled.mean("rounds")]
    lines = [f"by worth is {'' if as_accurate(scaled, one) else 'NOT '}as "
             "accurate as one worker"]

    def compare(title: str, candidates: Sequence[Summary], cost: Any) -> None:
        if not candidates:
            lines.append(f"{title}: no fixed number")
            return
        best = min(candidates, key=cost)
        lines.append(f"{title}: {cost(scaled) / cost(best):.0%} of the best "
                     f"fixed number, {best.fixed}")

    def alone(some: Summary) -> float:
        return some.mean("worker_rounds")

    compare("worker-rounds", fixed, alone)
    compare("worker-rounds of those that take no more rounds", in_time, alone)
    compare(f"worker-rounds and those of {SHARDS} shards", fixed,
            lambda some: some.with_shards)
    return lines


def table(summaries: Sequence[Summary]) -> str:
    """In Markdown."""
    lines = ["| workers | test accuracy | rounds | worker-rounds | with "
             f"{SHARDS} shards | worker-seconds, measured | mean workers in "
             "each fifth of the training |",
             "|---|---|---|---|---|---|---|"]
    for some in summaries:
        fifths = [statistics.fmean(values) for values in
                  zip(*(result.fifths for result in some.results))]
        lines.append(
            f"| {some.fixed or 'by worth'} | {some.mean('accuracy'):.4f} ± "
            f"{some.error('accuracy'):.4f} | {some.mean('rounds'):.0f} | "
            f"{some.mean('worker_rounds'):.0f} | {some.with_shards:.0f} | "
            f"{some.mean('worker_seconds'):.1f} | "
            + ", ".join(f"{fifth:.1f}" for fifth in fifths) + " |")
    return "\n".join(lines)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--fixed", default="1,2,3,4,8",
                        help="numbers of workers, 1 among them")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=450)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.8)
    parser.add_argument("--smoothing", type=float, default=0.9)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--compute_seconds", type=float, default=0.02)
    options = parser.parse_args(arguments)
    numbers = [int(number) for number in options.fixed.split(",")]
    if 1 not in numbers or min(numbers) < 1 or max(numbers) > options.most:
        parser.error(f"--fixed is {options.fixed}; allowed: 1 and other numbers "
                     f"up to --most, {options.most}")
    job.find_programs()
    summaries = []
    for fixed in [*numbers, 0]:
        results = []
        for seed in range(options.seeds):
            results.append(Training(Plan(
                fixed, options.most, options.iterations, options.batch,
                options.rate, options.smoothing, options.every,
                options.compute_seconds, seed)).run())
            print(f"{fixed or 'by worth'}, seed {seed}: {results[-1]}",
                  file=sys.stderr)
        summaries.append(Summary(fixed, tuple(results)))
    print(table(summaries), "", *verdicts(summaries), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
