"""The commands of the wheel: each becomes the program of its name."""

import os
import sys

from agg_server import advice
from agg_server.errors import Error
from agg_server.local_server import binary_path


def _become(name: str) -> None:
    path = binary_path(name)
    # This script, and no program; python -c has no file.
    if os.path.exists(sys.argv[0]) and os.path.samefile(path, sys.argv[0]):
        raise Error(f"{name} is not in this package; install the wheel of "
                    "deploy/wheel.sh, or put the program before it on PATH")
    os.execv(path, [path, *sys.argv[1:]])


def aggctl() -> None:
    """Asks and directs a job; `aggctl advise LOG` reads its round log, and is
    this package's own."""
    if sys.argv[1:2] == ["advise"]:
        sys.exit(advice.main(sys.argv[2:]))
    _become("aggctl")


def agg_combine() -> None:
    """The combination rules on gradients in .npy files."""
    _become("agg_combine")


def agg_pull() -> None:
    """A job's parameters as a file."""
    _become("agg_pull")


def agg_report() -> None:
    """A report of a job from its round log."""
    _become("agg_report")


def agg_server() -> None:
    """A shard."""
    _become("agg_server")
