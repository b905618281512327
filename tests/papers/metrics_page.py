"""Numbers of a running job, from its coordinator's metrics page."""

from __future__ import annotations

import re
import socket
import urllib.request


def free_ports(count: int) -> int:
    """The first of `count` neighbouring ports that nobody listens at: shard i
    serves its metrics at the i-th of them."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                for more in range(1, count):
                    with socket.socket() as other:
                        other.bind(("127.0.0.1", port + more))
            except (OSError, OverflowError):
                continue
            return port


def read(port: int, name: str) -> float:
    """The metric, which has no labels but those of the job.

    Raises RuntimeError: the page does not have it.
    """
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics",
                                timeout=60) as page:
        text = page.read().decode()
    found = re.search(rf"(?m)^{name}(?:\{{[^}}]*\}})? (\S+)$", text)
    if found is None:
        raise RuntimeError(f"the server has no {name}; AGG_SERVER is older "
                           "than this script")
    return float(found[1])
