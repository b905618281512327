"""agg-launch: a job's shards and workers on this machine.

    agg-launch -n 4 --shards 2 --rule adasum --lr 0.05 train.py --my-flag

Each worker is `python train.py --my-flag` with RANK, LOCAL_RANK, WORLD_SIZE
and AGG_COORDINATOR set, which are Worker's and Client's defaults. With
--coordinator no shard is started: the job is elsewhere.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import Optional, Sequence

from agg_server.errors import Error
from agg_server.local_server import LocalServer

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
    parser.add_argument("--rule", default="mean")
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--lr", type=float)
    parser.add_argument("--step-scale")
    parser.add_argument("--logs", help="folder for the servers' logs")
    parser.add_argument("script")
    parser.add_argument("rest", nargs=argparse.REMAINDER,
                        metavar="arguments")
    options = parser.parse_args(arguments)
    for name in ("workers", "shards"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is {getattr(options, name)}; allowed: 1 "
                         "or more")
    return options


def _start(options: argparse.Namespace, coordinator: str, local: int
           ) -> "subprocess.Popen[bytes]":
    environment = {
        **os.environ, "AGG_COORDINATOR": coordinator,
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
                coordinator = stack.enter_context(LocalServer(
                    options.shards, options.workers, options.rule, options.lr,
                    options.optimizer, options.step_scale,
                    folder=options.logs)).address
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
