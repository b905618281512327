"""agg-launch: a job's shards and workers on this machine.

    agg-launch -n 4 --shards 2 --rule adasum --lr 0.05 train.py --my-flag
    agg-launch -n 4 --lr 0.05 -m package.train --my-flag

The fields of the job's optimizer are flags (--momentum 0.9 --nesterov); for all
else there is --config FILE, the job's configuration without its shards.

Each worker is `python train.py --my-flag` with RANK, LOCAL_RANK, WORLD_SIZE,
LOCAL_WORLD_SIZE and AGG_COORDINATOR set, which are Worker's and Client's
defaults. OMP_NUM_THREADS, unless it is set, is its part of the processors: else
each worker would have a thread for every one. With --coordinator no shard is
started: the job is elsewhere.

--job NAME, or --job NAME=FILE, once for each, has several jobs, as two models
that learn from each other need them: FILE is the job's configuration, and the
flags are that of those without one. Worker(model, job="NAME") is in that one.

A signal that ends this ends the workers: Ctrl-C goes on to each of them once,
and what does not end by it gets SIGTERM, and then SIGKILL. A worker that fails
is named on stderr, and ends the others.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any, Optional, Sequence

from agg_server._shown import shown_lines
from agg_server.client import job_variable
from agg_server.errors import Error
from agg_server.local_server import LocalServer, binary_path, workers_of

# Fields of OptimizerConfig (proto/config.proto) besides its kind.
OPTIMIZER_NUMBERS = ("momentum", "beta1", "beta2", "epsilon", "weight_decay",
                     "trust_coefficient", "initial_accumulator")
OPTIMIZER_FLAGS = ("nesterov",)
_JOB = ("rule", "optimizer", *OPTIMIZER_NUMBERS, *OPTIMIZER_FLAGS, "lr",
        "step_scale")
# What workers have to end after a signal, before a stronger one comes.
_STOP_SECONDS = 15.0
_LOOK_SECONDS = 0.05
_ASK_SECONDS = 3.0

Processes = list["subprocess.Popen[bytes]"]


def _say(text: str) -> None:
    """A line of this program's own. (What workers write is theirs, and goes to
    the terminal as it is.)"""
    print("agg-launch: " + shown_lines(text), file=sys.stderr, flush=True)


class _Stopped(BaseException):
    """A signal came."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class _Signals:
    """Those that end this process, as exceptions in the main thread."""

    def __init__(self) -> None:
        self._held = False  # until release()
        self._came = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP,
                       signal.SIGQUIT):
            # nohup has SIGHUP ignored, and a shell's background SIGINT.
            if number != signal.SIGHUP or \
                    signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def hold(self) -> None:
        """Keeps the next one, for release()."""
        self._held = True

    def release(self) -> None:
        """Raises what was kept."""
        self._held = False
        if self._came:
            raise _Stopped(self._came)

    def _on_signal(self, number: int, _: Any) -> None:
        self._came = self._came or number
        if not self._held:
            raise _Stopped(number)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Exits with 2, and says what is wrong."""
    parser = argparse.ArgumentParser(
        prog="agg-launch", description=__doc__.splitlines()[0],
        usage="agg-launch [flags] {SCRIPT | -m MODULE} [arguments]")
    parser.add_argument("-n", "--workers", type=int, default=1)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--coordinator", help="of a job that runs")
    parser.add_argument("--first-rank", type=int, default=0,
                        help="of the workers here; default: 0")
    parser.add_argument("--world-size", type=int,
                        help="workers of the job, here and elsewhere; default: "
                        "what the job says, or --first-rank and --workers")
    parser.add_argument("--job", action="append", default=[], dest="jobs",
                        metavar="NAME[=FILE]",
                        help="one of several jobs; FILE: its configuration")
    job = parser.add_argument_group("the job (or all of it by --config)")
    job.add_argument("--config", type=pathlib.Path, metavar="FILE",
                     help="its configuration, without shards")
    job.add_argument("--rule", help="default: mean")
    job.add_argument("--optimizer", help="its kind; default: sgd")
    for name in OPTIMIZER_NUMBERS:
        # By the field's own name, too.
        flags = dict.fromkeys(("--" + name.replace("_", "-"), "--" + name))
        job.add_argument(*flags, type=float)
    for name in OPTIMIZER_FLAGS:
        job.add_argument("--" + name, action="store_true", default=None)
    job.add_argument("--lr", type=float)
    job.add_argument("--step-scale")
    parser.add_argument("--logs", help="folder for the servers' logs; it is "
                        "made if it is not there")
    parser.add_argument("-m", dest="module", action="store_true",
                        help="the script is a module's name, as for python -m")
    parser.add_argument("script")
    parser.add_argument("rest", nargs=argparse.REMAINDER,
                        metavar="arguments")
    options = parser.parse_args(arguments)
    wrong = _complaint(options)
    if wrong:
        parser.error(shown_lines(wrong))
    return options


def _complaint(options: argparse.Namespace) -> str:
    """What is wrong with them; "": nothing."""
    for name in ("workers", "shards"):
        if getattr(options, name) < 1:
            return f"--{name} is {getattr(options, name)}; allowed: 1 or more"
    if options.first_rank < 0:
        return f"--first-rank is {options.first_rank}; allowed: 0 or more"
    least = options.first_rank + options.workers
    if options.world_size is not None and options.world_size < least:
        return (f"--world-size is {options.world_size}; allowed: {least}, "
                "which --first-rank and --workers make, or more")
    said = [name for name in _JOB if getattr(options, name) is not None]
    for other in ("config", "coordinator"):
        if getattr(options, other) is not None and said:
            return (f"--{said[0].replace('_', '-')} is given with --{other}, "
                    "which says it; allowed: one of the two")
    if options.config is not None and options.coordinator is not None:
        return ("--config is given with --coordinator, whose job has its own; "
                "allowed: one of the two")
    return _jobs_complaint(options)


def _jobs_complaint(options: argparse.Namespace) -> str:
    names = [each.partition("=")[0] for each in options.jobs]
    for name in names:
        if not name.replace("-", "_").isidentifier():
            return (f'--job is "{name}"; allowed: letters, digits and _, and '
                    "=FILE behind it")
    variables = [job_variable(name) for name in names]
    if len(set(variables)) < len(variables):
        return f"--job names {names}; allowed: each name once"
    if names and options.coordinator is not None:
        return ("--job is given with --coordinator, whose job runs; allowed: "
                "one of the two")
    return ""


def _text_of(flag: str, path: pathlib.Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{flag} is {path}: {error}") from error


def server_of(options: argparse.Namespace, workers: int,
              job: str = "") -> LocalServer:
    """The shards of the job, or of one of --job. Raises Error."""
    name, _, file = job.partition("=")
    logs = options.logs
    if logs is not None and name:
        logs = os.path.join(logs, name)
    text = (_text_of("--job", pathlib.Path(file)) if file else
            None if options.config is None else
            _text_of("--config", options.config))
    if text is not None:
        return LocalServer(options.shards, workers, config=text, folder=logs)
    if options.lr is None and options.optimizer not in ("none", "add"):
        raise Error("--lr is not given; allowed: a number > 0, or --optimizer "
                    "none or add, or --config FILE with the job's rate")
    fields = {name: getattr(options, name)
              for name in (*OPTIMIZER_NUMBERS, *OPTIMIZER_FLAGS)
              if getattr(options, name) is not None}
    return LocalServer(
        options.shards, workers, options.rule or "mean", options.lr,
        {"kind": options.optimizer or "sgd", **fields}, options.step_scale,
        job=name or "local", folder=logs)


def _ask_workers(coordinator: str) -> Optional[int]:
    """How many the job expects, as `aggctl` says; None: nobody answers."""
    try:
        answer = subprocess.run(
            [binary_path("aggctl"), f"--coordinator={coordinator}",
             "--output=json", f"--timeout={_ASK_SECONDS}", "status"],
            stdin=subprocess.DEVNULL, capture_output=True, check=True,
            timeout=2 * _ASK_SECONDS)
        status = json.loads(answer.stdout)
        return int(status.get("expectedWorkers",
                              status.get("expected_workers", 0))) or None
    except (Error, OSError, ValueError, subprocess.SubprocessError):
        return None


def _world_size(options: argparse.Namespace) -> int:
    least: int = options.first_rank + options.workers
    if options.world_size is not None:
        for flag, text in _texts_of(options):
            _workers_said(text, flag, least)
        return int(options.world_size)
    asked: Optional[int] = None
    if options.coordinator is not None:
        asked = _ask_workers(options.coordinator)
        if asked is None:
            _say(f"{options.coordinator} has not said how many workers the "
                 f"job has; WORLD_SIZE is {least}, by --first-rank and "
                 "--workers (--world-size says another)")
    else:
        asked = max([_workers_said(text, flag, least)
                     for flag, text in _texts_of(options)], default=0)
    return max(least, asked or 0)


def _texts_of(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Configurations, and who has named them."""
    files = [("--job", path) for _, _, path in
             [job.partition("=") for job in options.jobs] if path]
    if options.config is not None and len(files) < max(len(options.jobs), 1):
        files.append(("--config", options.config))
    return [(f"{flag} {path}", _text_of(flag, pathlib.Path(path)))
            for flag, path in files]


def _workers_said(text: str, flag: str, least: int) -> int:
    """Of a configuration; 0: none. Raises Error: the workers here are more."""
    workers = workers_of(text) or 0
    most = max(workers, workers_of(text, "max_workers") or 0)
    if 0 < workers and most < least:
        raise Error(f"{flag} says workers: {workers}, and --first-rank and "
                    f"--workers make {least}; allowed: {most} or fewer here, "
                    f"or workers: {least} there")
    return workers


def _numbers(path: pathlib.Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return []


def _folders(root: pathlib.Path) -> list[pathlib.Path]:
    """Of the control groups (v2 and v1) and their parents, whose quotas leave a
    container a part of the CPUs."""
    found = []
    mounts = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text(
            encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        parts = line.split(":", 2)
        if len(parts) != 3 or (parts[1] and
                               "cpu" not in parts[1].split(",")):
            continue
        base = mounts / parts[1]
        group = base / parts[2].strip("/")
        found += [group, *(p for p in group.parents if p.is_relative_to(base))]
    return found


def granted_cpus(affinity: int = 0, root: str = "/") -> int:
    """The least of the affinity mask (or `affinity`) and the CPU quotas of the
    control groups, a part of a CPU rounded up; at least 1. `root` replaces
    "/" in tests."""
    cpus = affinity or len(os.sched_getaffinity(0))
    for folder in _folders(pathlib.Path(root)):
        for pair in (_numbers(folder / "cpu.max"),
                     _numbers(folder / "cpu.cfs_quota_us") +
                     _numbers(folder / "cpu.cfs_period_us")):
            if len(pair) == 2 and all(n.isdigit() and int(n) > 0
                                      for n in pair):
                cpus = min(cpus, math.ceil(int(pair[0]) / int(pair[1])))
    return max(1, cpus)


def _start(options: argparse.Namespace, given: dict[str, str], local: int
           ) -> "subprocess.Popen[bytes]":
    threads = granted_cpus() // options.workers
    environment = {
        "OMP_NUM_THREADS": str(max(1, threads)), **os.environ, **given,
        "RANK": str(options.first_rank + local), "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(options.workers)}
    script = ["-m", options.script] if options.module else [options.script]
    # A session of its own: a terminal's Ctrl-C comes by way of this process,
    # and so once, whoever it was sent to.
    return subprocess.Popen([sys.executable, *script, *options.rest],
                            env=environment, start_new_session=True)


def _name_of(code: int) -> str:
    if code >= 0:
        return f"exited with {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "a signal"
    return f"was ended by {name} (signal {-code})"


def _await(processes: Processes, first_rank: int) -> int:
    """The first code that is not 0; then the others are to be ended."""
    while True:
        codes = [p.poll() for p in processes]
        for local, code in enumerate(codes):
            if not code:
                continue
            left = codes.count(None)
            _say(f"rank {first_rank + local} (pid "
                  f"{processes[local].pid}) {_name_of(code)}"
                 + (f"; ending the other {left}" if left else ""))
            return code
        if None not in codes:
            return 0
        time.sleep(_LOOK_SECONDS)


def _signal_all(processes: Processes, number: int) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)


def _wait_all(processes: Processes) -> bool:
    """For a while; whether all have ended."""
    deadline = time.monotonic() + _STOP_SECONDS
    while time.monotonic() < deadline:
        if None not in [p.poll() for p in processes]:
            return True
        time.sleep(_LOOK_SECONDS)
    return False


def _end(processes: Processes, number: int) -> None:
    """By that signal, and by stronger ones if need be: each has its time,
    which another signal to this process cuts short."""
    ladder: list[int] = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
    first = ladder.index(number) if number in ladder else 1
    for each in ladder[first:]:
        try:
            _signal_all(processes, each)
            if _wait_all(processes):
                return
            left = sum(p.poll() is None for p in processes)
            _say(f"{left} workers go on after {signal.Signals(each).name} for "
                 f"{_STOP_SECONDS:g} s")
        except _Stopped:
            pass  # whoever sent it again does not want to wait


def _serve(options: argparse.Namespace, stack: contextlib.ExitStack
           ) -> dict[str, str]:
    """What workers find in their environment. Raises Error."""
    world = _world_size(options)
    given = {"WORLD_SIZE": str(world)}
    addresses = [options.coordinator]
    if options.coordinator is None:
        addresses = [stack.enter_context(server_of(options, world, job)).address
                     for job in options.jobs or [""]]
    for job, address in zip(options.jobs, addresses):
        given[job_variable(job.partition("=")[0])] = address
    return {**given, "AGG_COORDINATOR": addresses[0]}


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The exit code: of the first worker that failed, or 0."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    signals = _Signals()  # else the workers would be left alone
    processes: Processes = []
    number: int = signal.SIGTERM
    with contextlib.ExitStack() as stack:
        try:
            given = _serve(options, stack)
            signals.hold()  # else one could be started and not known
            for local in range(options.workers):
                processes.append(_start(options, given, local))
            signals.release()
            code = _await(processes, options.first_rank)
        except Error as error:
            _say(str(error))
            return 1
        except _Stopped as stopped:
            number, code = stopped.number, -stopped.number
        finally:
            _end(processes, number)
            signals.hold()  # the servers end by themselves
    return code if code >= 0 else 128 - code  # a signal, as shells say it


if __name__ == "__main__":
    sys.exit(main())
