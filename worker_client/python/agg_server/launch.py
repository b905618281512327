"""agg-launch: a job's shards and workers on this machine.

    agg-launch -n 4 --shards 2 --rule adasum --lr 0.05 train.py --my-flag

The fields of the job's optimizer are flags (--momentum 0.9 --nesterov); for all
else there is --config FILE, the job's configuration without its shards.

Each worker is `python train.py --my-flag` with RANK, LOCAL_RANK, WORLD_SIZE
and AGG_COORDINATOR set, which are Worker's and Client's defaults. OMP_NUM_THREADS,
unless it is set, is its part of the processors: else each worker would have a
thread for every one. With --coordinator no shard is started: the job is
elsewhere.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Optional, Sequence

from agg_server.errors import Error
from agg_server.local_server import LocalServer

# Fields of OptimizerConfig (proto/config.proto) besides its kind.
OPTIMIZER_NUMBERS = ("momentum", "beta1", "beta2", "epsilon", "weight_decay",
                     "trust_coefficient", "initial_accumulator")
OPTIMIZER_FLAGS = ("nesterov",)
_JOB = ("rule", "optimizer", *OPTIMIZER_NUMBERS, *OPTIMIZER_FLAGS, "lr",
        "step_scale")
_STOP_SECONDS = 15.0
_LOOK_SECONDS = 0.05


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Exits with 2, and says what is wrong."""
    parser = argparse.ArgumentParser(
        prog="agg-launch", description=__doc__.splitlines()[0])
    parser.add_argument("-n", "--workers", type=int, default=1)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--coordinator", help="of a job that runs")
    parser.add_argument("--first-rank", type=int, default=0,
                        help="of the workers here; default: 0")
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
    parser.add_argument("--logs", help="folder for the servers' logs")
    parser.add_argument("script")
    parser.add_argument("rest", nargs=argparse.REMAINDER,
                        metavar="arguments")
    options = parser.parse_args(arguments)
    for name in ("workers", "shards"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is {getattr(options, name)}; allowed: 1 "
                         "or more")
    said = [name for name in _JOB if getattr(options, name) is not None]
    for other in ("config", "coordinator"):
        if getattr(options, other) is not None and said:
            parser.error(f"--{said[0].replace('_', '-')} is given with "
                         f"--{other}, which says it; allowed: one of the two")
    if options.config is not None and options.coordinator is not None:
        parser.error("--config is given with --coordinator, whose job has its "
                     "own; allowed: one of the two")
    return options


def server_of(options: argparse.Namespace) -> LocalServer:
    """The job's shards. Raises Error."""
    if options.config is not None:
        try:
            text = options.config.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise Error(f"--config is {options.config}: {error}") from error
        return LocalServer(options.shards, options.workers, config=text,
                           folder=options.logs)
    fields = {name: getattr(options, name)
              for name in (*OPTIMIZER_NUMBERS, *OPTIMIZER_FLAGS)
              if getattr(options, name) is not None}
    return LocalServer(
        options.shards, options.workers, options.rule or "mean", options.lr,
        {"kind": options.optimizer or "sgd", **fields}, options.step_scale,
        folder=options.logs)


def _start(options: argparse.Namespace, coordinator: str, local: int
           ) -> "subprocess.Popen[bytes]":
    threads = len(os.sched_getaffinity(0)) // options.workers
    environment = {
        "OMP_NUM_THREADS": str(max(1, threads)), **os.environ,
        "AGG_COORDINATOR": coordinator,
        "RANK": str(options.first_rank + local), "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(options.workers)}
    return subprocess.Popen([sys.executable, options.script, *options.rest],
                            env=environment)


def _await(processes: list["subprocess.Popen[bytes]"]) -> int:
    """The first code that is not 0; then the others are ended."""
    while True:
        codes = [p.poll() for p in processes]
        for code in codes:
            if code:
                return code
        if None not in codes:
            return 0
        time.sleep(_LOOK_SECONDS)


def _end(processes: list["subprocess.Popen[bytes]"]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + _STOP_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The exit code: of the first worker that failed, or 0."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    # Else the workers would be left alone.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    processes: list["subprocess.Popen[bytes]"] = []
    with contextlib.ExitStack() as stack:
        coordinator = options.coordinator
        if coordinator is None:
            try:
                coordinator = stack.enter_context(server_of(options)).address
            except Error as error:
                print(f"agg-launch: {error}", file=sys.stderr)
                return 1
        try:
            for local in range(options.workers):
                processes.append(_start(options, coordinator, local))
            code = _await(processes)
        except KeyboardInterrupt:  # the workers have got it, too
            code = 130
        finally:
            _end(processes)
    return code if code >= 0 else 128 - code  # a signal, as shells say it


if __name__ == "__main__":
    sys.exit(main())
