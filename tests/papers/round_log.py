"""Orthogonality by tensor: of the server's round log, through agg_report."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
from typing import Any, Optional

from agg_server.local_server import binary_path

_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>',
                   re.S)


class ReportError(Exception):
    """agg_report has failed, or its report lacks its data."""


def _report(log: pathlib.Path) -> dict[str, Any]:
    """The data of the report: all rounds, up to 4096, or an even choice."""
    page = log.with_name("report.html")
    ended = subprocess.run(
        [os.environ.get("AGG_REPORT") or binary_path("agg_report"),
         f"--log={log}", f"--output={page}"],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if ended.returncode != 0:
        raise ReportError(f"agg_report ended with {ended.returncode}: "
                          + ended.stderr.strip())
    found = _DATA.search(page.read_text())
    if not found:
        raise ReportError(f"{page} has no data")
    data: dict[str, Any] = json.loads(found.group(1))
    return data


def tensor_orthogonality(log: str, spans: int, rounds: int
                         ) -> dict[str, list[Optional[float]]]:
    """Means over `spans` equal spans of `rounds`, by the tensor's name.

    Raises ReportError.
    """
    data = _report(pathlib.Path(log))
    values: dict[str, list[list[float]]] = {
        name: [[] for _ in range(spans)] for name in data["tensors"]}
    for entry in data["rounds"]:
        span = min(int((entry["seq"] - 1) / rounds * spans), spans - 1)
        for name, value in zip(data["tensors"], entry.get("tensors", [])):
            if value is not None and spans:
                values[name][span].append(value)
    return {name: [sum(span) / len(span) if span else None for span in of_name]
            for name, of_name in values.items()}
