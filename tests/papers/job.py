"""Runs one job: shards on loopback, and a process with its ranks."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "worker_client" / "python"
if str(PACKAGE) not in sys.path:
    sys.path.insert(0, str(PACKAGE))

# pylint: disable=wrong-import-position
import agg_server as agg

from tests.papers import round_log
from tests.papers.description import Run

_PROGRAMS = {"AGG_SERVER": "server/agg_server",
             "AGG_LIBRARY": "worker_client/c/libagg.so",
             "AGG_REPORT": "server/tools/agg_report"}
_TAIL_LINES = 15
_LOG = "rounds.binlog"


class JobError(Exception):
    """A process of the job failed: which, and the end of its log."""


def find_programs() -> None:
    """AGG_SERVER, AGG_LIBRARY and AGG_REPORT, where nobody has named them, are
    bazel-bin's if they are built, and the package's otherwise."""
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
    if run.scale_invariant_iterations:
        fields["scale_invariant_iterations"] = run.scale_invariant_iterations
    if run.tensors:
        fields["round_log"] = {"path": os.path.join(folder, _LOG)}
    if shards_of(run) > 1:
        # Nobody restarts a shard here: a second copy of all would only cost.
        fields["replication"] = "none"
    return fields


def _work(run: Run, address: str, folder: str) -> dict[str, Any]:
    result = pathlib.Path(folder, "result.json")
    paths = [str(ROOT), str(PACKAGE)]
    if os.environ.get("PYTHONPATH"):
        paths.append(os.environ["PYTHONPATH"])
    ended = subprocess.run(
        [sys.executable, "-B", "-m", "tests.papers.worker", address,
         str(result)],
        input=json.dumps(run.as_dict()), text=True, capture_output=True,
        check=False, cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1",
             "GRPC_POLL_STRATEGY": "poll",
             "PYTHONPATH": os.pathsep.join(paths)})
    if ended.returncode != 0 or not result.is_file():
        tail = "\n  ".join(ended.stderr.splitlines()[-_TAIL_LINES:])
        raise JobError(f"the worker process ended with {ended.returncode}; "
                       f"the end of what it wrote:\n  {tail}")
    summary: dict[str, Any] = json.loads(result.read_text())
    return summary


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
      curve: [round, score] for each point.
      reached: the round of the point that reached stop_at, or None.
      seconds: of wall time, with start and end. round_ms: median.

    Raises JobError, or agg.Error: a process failed.
    """
    find_programs()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="agg_papers_") as folder:
        with agg.LocalServer(shards=shards_of(run), workers=run.ranks,
                             folder=folder, lr=1.0, job="papers",
                             config=configuration(run, folder)) as server:
            result = _work(run, server.address, folder)
        result["tensor_orthogonality"] = (
            round_log.tensor_orthogonality(
                os.path.join(folder, _LOG), run.spans,
                result["rounds"])
            if run.tensors else {})
    result["seconds"] = round(time.monotonic() - started, 3)
    return result
