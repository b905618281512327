"""What a worker says of itself, so that its run can be repeated."""

from __future__ import annotations

import functools
import os
import pathlib
import platform
import socket
import sys
from typing import Optional, Union

# What JoinRequest.client of proto/agg.proto may have.
_MAX_BYTES = 512


@functools.lru_cache(None)
def _processors() -> str:
    """"8 x AMD EPYC", or the machine's kind alone."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines
              if line.startswith("model name")]
    return f"{os.cpu_count()} x {models[0] if models else platform.machine()}"


def describe_run(seed: Optional[Union[int, str]] = None) -> str:
    """This process in one line: host and process, releases of this package,
    Python and the frameworks that are imported, the seed, the processors.

    A client without `client_name` says it when it joins. Then it is in the
    server's log, and in the job's round log: RoundLog(path).clients.

        agg.Client(parameters, client_name=agg.describe_run(seed=17))

    Args:
      seed: of the run. None: that of torch's own generator, where torch is
        imported; else none is said.
    """
    package = sys.modules["agg_server"]
    parts = [f"{socket.gethostname()}:{os.getpid()}",
             f"agg_server {getattr(package, '__version__', '?')}",
             f"Python {platform.python_version()}"]
    for name in ("numpy", "torch", "jax", "tensorflow"):
        module = sys.modules.get(name)
        version = getattr(module, "__version__", None)
        if version:
            parts.append(f"{name} {version}")
    torch = sys.modules.get("torch")
    if seed is None and hasattr(torch, "initial_seed"):
        seed = int(torch.initial_seed())  # type: ignore[union-attr]
    if seed is not None:
        parts.append(f"seed {seed}")
    parts.append(_processors())
    return ", ".join(parts).encode()[:_MAX_BYTES].decode("utf-8", "ignore")


__all__ = ["describe_run"]
