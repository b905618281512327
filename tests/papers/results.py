"""The results of a script's runs: kept in a file, run where they are missing.

A run is known by its key (description.Run.key), so that a script which is
stopped goes on where it was, and one whose runs are all there starts nothing.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import datetime
import functools
import importlib.metadata
import json
import math
import multiprocessing
import os
import pathlib
import platform
import queue
import signal
import sys
import time
import typing
from typing import Any, Callable, Mapping, Optional, Sequence

Result = dict[str, Any]
Future = concurrent.futures.Future[Result]

# Seconds without any run's end after which something hangs.
_LONGEST = 3600
_SET_PARENT_DEATH_SIGNAL = 1  # of prctl(2)


class Described(typing.Protocol):
    """What a Book asks of a description.Run."""

    def key(self) -> str: ...


class MissingError(LookupError):
    """A book that runs nothing was asked for runs that it does not have."""


class RunFailedError(RuntimeError):
    """A job broke: neither a result nor a training that diverged."""


def run_job(run: Any) -> Result:
    """job.run_job, which is imported in the process that runs jobs alone."""
    from tests.papers import job  # pylint: disable=import-outside-toplevel
    return job.run_job(run)


def versions() -> dict[str, str]:
    """Of what the numbers depend on, and of the machine."""
    found = {"python": platform.python_version()}
    for package in ("torch", "numpy"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "none"
    # Not imported: its library would be loaded into a process that needs none.
    init = (pathlib.Path(__file__).resolve().parents[2] / "worker_client"
            / "python" / "agg_server" / "__init__.py")
    for line in init.read_text("utf-8").splitlines():
        if line.startswith("__version__"):
            found["agg_server"] = line.split('"')[1]
    cpu = platform.machine()
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text("utf-8").split("\n"):
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    found["cpu"] = f"{os.cpu_count()} x {cpu}"
    found["date"] = datetime.date.today().isoformat()
    return found


def plain(value: Any) -> Any:
    """For JSON: floats with 6 digits, and None for what is not finite."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    number = float(value)
    return float(f"{number:.6g}") if math.isfinite(number) else None


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _put(done: queue.SimpleQueue[tuple[str, Future]], key: str, ended: Future
         ) -> None:
    done.put((key, ended))


def _begin() -> None:
    """Of a process of the pool: it ends with its parent, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


class Book:
    """Results by run. For one thread.

    Use it as a context manager, or call close(): it ends the pool's processes,
    which are started by the first run that is missing and serve all later ones.
    """

    def __init__(self, path: Optional[os.PathLike[str]] = None, jobs: int = 1,
                 fresh: bool = False, quick: bool = False,
                 call: Callable[[Any], Result] = run_job) -> None:
        """Reads the file.

        Args:
          path: the file, which need not be there; None keeps results in memory.
          jobs: runs at a time, each in a process. 0: run nothing; what is
            missing raises MissingError.
          fresh: forget what the file has.
          quick: noted in the file.
          call: makes a result of a run, in a process of the pool; a function of
            a module. With jobs > 0.
        Raises ValueError: jobs < 0, or the file is not one of a Book.
        """
        if jobs < 0:
            raise ValueError(f"jobs is {jobs}; allowed: 0 or more")
        self.quick = quick
        self._path = pathlib.Path(path) if path is not None else None
        self._jobs = jobs
        self._call = call
        self._pool: Optional[concurrent.futures.ProcessPoolExecutor] = None
        self._versions: dict[str, str] = {}
        self._results: dict[str, Result] = {}
        self._asked: dict[str, None] = {}  # the keys, in order
        if self._path and self._path.exists() and not fresh:
            self._read(self._path)

    def _read(self, path: pathlib.Path) -> None:
        try:
            stored = json.loads(path.read_text("utf-8"))
            for entry in stored["runs"]:
                self._results[_canonical(entry["run"])] = entry["result"]
            self._versions = stored["versions"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is no file of results ({error}); "
                             "allowed: one that a script wrote") from error

    def results(self, runs: Sequence[Described]) -> list[Result]:
        """Of each run, in order; those that are missing are run first.

        The file is written after each. Raises MissingError (jobs is 0), or
        RunFailedError with what the job said: the servers' last lines, too.
        """
        keys = [_canonical(json.loads(run.key())) for run in runs]
        for key in keys:
            self._asked[key] = None
        missing = {key: run for key, run in zip(keys, runs)
                   if key not in self._results}
        if missing and not self._jobs:
            raise MissingError(f"{len(missing)} of {len(runs)} runs have no "
                               f"result, the first is {next(iter(missing))}")
        if missing:
            self._run(missing)
        return [self._results[key] for key in keys]

    def _run(self, missing: Mapping[str, Described]) -> None:
        if self._pool is None:
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self._jobs, multiprocessing.get_context("spawn"), _begin)
        # The longest first, so that the last ones end together.
        order = sorted(missing, key=_work, reverse=True)
        began, made = time.monotonic(), versions()
        done: queue.SimpleQueue[tuple[str, Future]] = queue.SimpleQueue()
        futures = []
        for key in order:
            futures.append(self._pool.submit(self._call, missing[key]))
            futures[-1].add_done_callback(functools.partial(_put, done, key))
        broken = []
        for left in reversed(range(len(order))):
            try:
                key, ended = done.get(timeout=_LONGEST)
            except queue.Empty:
                raise RunFailedError(
                    f"no run has ended for {_LONGEST} s") from None
            if ended.cancelled():
                continue
            error = ended.exception()
            if error is not None:
                broken.append(f"{key}: {type(error).__name__}: {error}")
                _say(f"BROKEN {broken[-1]}")
                # One is enough: the others would say the same.
                for future in futures:
                    future.cancel()
                continue
            self._results[key] = plain(ended.result())
            self._versions = made
            self.write()
            _say(f"{time.monotonic() - began:6.0f} s, {left} left  "
                 + _line(key, self._results[key]))
        if broken:
            raise RunFailedError("\n".join(broken))

    def write(self) -> None:
        """The file, one run a line; those of earlier forms of the script, too."""
        if self._path is None:
            return
        lines = [_canonical({"run": json.loads(key), "result": result})
                 for key, result in self._results.items()]
        text = ('{"quick":%s,\n"versions":%s,\n"runs":[\n%s\n]}\n'
                % (_canonical(self.quick), _canonical(self._versions),
                   ",\n".join(lines)))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Whoever stops this leaves the old file or the new one.
        half = self._path.with_suffix(".part")
        half.write_text(text, "utf-8")
        half.replace(self._path)

    def prune(self) -> int:
        """Forgets, in the file too, what was not asked for; how many."""
        kept = {key: self._results[key] for key in self._asked
                if key in self._results}
        forgotten = len(self._results) - len(kept)
        self._results = kept
        if forgotten:
            self.write()
        return forgotten

    @property
    def versions(self) -> dict[str, str]:
        """Of the last run; empty without one."""
        return dict(self._versions)

    @property
    def asked(self) -> list[tuple[dict[str, Any], Result]]:
        """(run's fields, result) of what was asked for, in order."""
        return [(json.loads(key), self._results[key]) for key in self._asked
                if key in self._results]

    def close(self) -> None:
        """Ends the processes; a later run starts new ones."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def __enter__(self) -> "Book":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _work(key: str) -> float:
    """What orders runs by how long they take, roughly."""
    run = json.loads(key)
    weight = 4 if run.get("task") in ("fashion_cnn", "kjv_transformer") else 1
    return float(weight * run.get("rounds", 1) * (4 + run.get("ranks", 1)))


def _line(key: str, result: Result) -> str:
    run = json.loads(key)
    words = [str(run.get(name)) for name in
             ("task", "rule", "step_scale", "push") if name in run]
    rate = run.get("learning_rate", {}).get("rate")
    words.append(f"S={run.get('ranks')} seed {run.get('seed')} rate {rate}: "
                 f"{result.get('failed') or result.get('score')} after "
                 f"{result.get('rounds')} rounds in {result.get('seconds')} s")
    return " ".join(words)


def _say(text: str) -> None:
    """One write, so that lines of processes do not mix."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
