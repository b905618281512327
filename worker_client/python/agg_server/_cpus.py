"""How many CPUs this process may use: what containers leave of them."""

from __future__ import annotations

import math
import os
import pathlib


def _numbers(path: pathlib.Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return []


def _folders(root: pathlib.Path) -> list[pathlib.Path]:
    """Of the control groups (v2 and v1) and their parents."""
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
