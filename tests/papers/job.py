"""Runs one job: shards on loopback, and a process with its ranks."""

from __future__ import annotations

import atexit
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any, Optional

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "worker_client" / "python"
if str(PACKAGE) not in sys.path:
    sys.path.insert(0, str(PACKAGE))

# pylint: disable=wrong-import-position
import numpy as np

import agg_server as agg

from tests.papers import metrics_page
from tests.papers.description import Run

_PROGRAMS = {"AGG_SERVER": "server/agg_server",
             "AGG_LIBRARY": "worker_client/c/libagg.so"}
_TAIL_LINES = 15
_LOG = "rounds.binlog"
# Equal weights of unit gradients.
_CONTROL = {"rule": "unit_mean", "scope": "global"}


class JobError(Exception):
    """A process of the job failed: which, and the end of its log."""


def find_programs() -> None:
    """AGG_SERVER and AGG_LIBRARY, where nobody has named them, are bazel-bin's
    if they are built, and the package's otherwise."""
    for name, path in _PROGRAMS.items():
        if name not in os.environ and (ROOT / "bazel-bin" / path).is_file():
            os.environ[name] = str((ROOT / "bazel-bin" / path).resolve())


def shards_of(run: Run) -> int:
    """The run's, or two; one for a single rank, which two only slow down."""
    return run.shards or (1 if run.ranks == 1 else 2)


def configuration(run: Run, folder: str) -> dict[str, Any]:
    """Fields of JobConfig, but for the shards. What a round computes is all the
    server's: but with push="delta" it only combines and adds, and with
    step="oracle" it only combines."""
    combination: dict[str, Any] = {"rule": run.rule}
    if run.scope:
        combination["scope"] = run.scope
    if run.adacons:
        combination["adacons"] = dict(run.adacons)
    fields: dict[str, Any] = {
        "workers": run.ranks, "combination": combination,
        "max_rounds": run.rounds, "compute_threads": 1}
    if run.later_ranks:
        # The ranks look there whether new ones are in.
        fields.update(
            min_workers=1, max_workers=run.most_ranks,
            metrics={"port": metrics_page.free_ports(shards_of(run))})
    if run.step == "oracle":
        fields["optimizer"] = {"kind": "none"}
    elif run.push == "delta":
        fields["optimizer"] = {"kind": "add"}
        fields["learning_rate"] = {"rate": 1.0}
    else:
        fields["optimizer"] = dict(run.optimizer)
        fields["learning_rate"] = dict(run.learning_rate)
    if run.step_scale != "none":
        fields["step_scale"] = {"kind": run.step_scale}
        if run.averaging:
            fields["step_scale"]["averaging"] = run.averaging
    if run.scale_invariant_iterations:
        fields["scale_invariant_iterations"] = run.scale_invariant_iterations
    if run.weights:
        fields["shadow_rules"] = [dict(_CONTROL)]
    if run.tensors or run.weights:
        fields["round_log"] = {"path": os.path.join(folder, _LOG)}
    if shards_of(run) > 1:
        # Nobody restarts a shard here: a second copy of all would only cost.
        fields["replication"] = "none"
    return fields


class _Worker:
    """The process of all ranks. It does one run after the other, since torch
    and the data take longer to load than a short run; it ends with this one.
    """

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._errors = tempfile.TemporaryFile("w+")
        paths = [str(ROOT), str(PACKAGE)]
        if os.environ.get("PYTHONPATH"):
            paths.append(os.environ["PYTHONPATH"])
        self._process = subprocess.Popen(
            [sys.executable, "-B", "-m", "tests.papers.worker"], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1",
                           "GRPC_POLL_STRATEGY": "poll",
                           "PYTHONPATH": os.pathsep.join(paths)})

    def do(self, run: Run, address: str, metrics_port: int = 0
           ) -> dict[str, Any]:
        """Raises JobError: it has ended."""
        process = self._process
        assert process.stdin and process.stdout
        answer = ""
        try:
            process.stdin.write(json.dumps(
                {"run": run.as_dict(), "address": address,
                 "metrics_port": metrics_port}) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            pass
        if not answer:
            code = process.wait()
            self._errors.seek(0)
            tail = "\n  ".join(
                self._errors.read().splitlines()[-_TAIL_LINES:])
            raise JobError(f"the worker process ended with {code}; the end of "
                           f"what it wrote:\n  {tail}")
        result: dict[str, Any] = json.loads(answer)
        return result

    def end(self) -> None:
        """Again: nothing."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe:
                pipe.close()


_worker: Optional[_Worker] = None


def close() -> None:
    """Ends the process that runs share, if there is one."""
    global _worker
    former, _worker = _worker, None
    # A child's that was forked: the process is the parent's.
    if former is not None and former.owner == os.getpid():
        former.end()


atexit.register(close)


def _work(run: Run, address: str, metrics_port: int) -> dict[str, Any]:
    global _worker
    if _worker is None or _worker.owner != os.getpid():
        _worker = _Worker()
    try:
        return _worker.do(run, address, metrics_port)
    except BaseException:
        close()
        raise


def tensor_orthogonality(log: agg.RoundLog, spans: int
                         ) -> dict[str, list[Optional[float]]]:
    """Means over `spans` equal spans of the rounds, by the tensor's name;
    None: no round of the span has a value."""
    span_of = np.arange(len(log)) * spans // max(len(log), 1)
    result: dict[str, list[Optional[float]]] = {}
    for name, values in zip(log.tensors, log.tensor_orthogonality.T):
        of_spans = [values[(span_of == span) & np.isfinite(values)]
                    for span in range(spans)]
        result[name] = [float(each.mean()) if each.size else None
                        for each in of_spans]
    return result


def _span_means(values: np.ndarray, spans: int) -> list[Optional[float]]:
    """Over equal spans of the rounds; None: no round of the span has one."""
    parts = (part[np.isfinite(part)] for part in np.array_split(values, spans))
    return [float(part.mean()) if part.size else None for part in parts]


def weight_of_first(log: agg.RoundLog, count: int) -> np.ndarray:
    """The share that the first `count` ranks have in the weights of the unit
    gradients: c_i ||g_i|| over the sum of all. float64 [R]."""
    weights = log.rows("coefficient") * log.rows("norm")
    share: np.ndarray = weights[:, :count].sum(1) / weights.sum(1)
    return share


def run_job(run: Run) -> dict[str, Any]:
    """Does one run.

    Returns plain JSON values, by name:
      score: accuracy, or held-out loss (None: not finite).
      train_loss: mean over the ranks and the last 5% of the rounds, or None.
      failed: "", "not finite" (the job ended early, or its parameters or score
        are not) or "guesses" (an accuracy below .2).
      rounds, examples: done.
      mean_gain: of all rounds. gain, orthogonality: means per span.
      tensor_orthogonality: the same by tensor, if the run asks for it.
      weight_of_bad: means per span of the share that the ranks with random
        labels have in the weights; near_control: of the cosine between the
        combination and the mean of unit gradients. If the run asks for weights.
      curve: [round, score] for each point.
      reached: the round of the point that reached stop_at, or None.
      seconds: of wall time, with start and end. round_ms: median.

    One at a time in a process: its runs share the process of the ranks.
    Raises JobError, or agg.Error: a process failed.
    """
    find_programs()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="agg_papers_") as folder:
        config = configuration(run, folder)
        with agg.LocalServer(shards=shards_of(run), workers=run.ranks,
                             folder=folder, lr=1.0, job="papers",
                             config=config) as server:
            result = _work(run, server.address,
                           config.get("metrics", {}).get("port", 0))
        if run.weights:
            log = agg.RoundLog(os.path.join(folder, _LOG))
            result["weight_of_bad"] = _span_means(
                weight_of_first(log, run.random_labels), run.spans)
            result["near_control"] = _span_means(
                log.shadows["unit_mean/global"].cosine, run.spans)
        result["tensor_orthogonality"] = (
            tensor_orthogonality(agg.RoundLog(os.path.join(folder, _LOG)),
                                 run.spans)
            if run.tensors else {})
    result["seconds"] = round(time.monotonic() - started, 3)
    return result
