"""What a run of the benchmark is of: day, machine, PyTorch, commit."""

import datetime
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def _read(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""


def _first(pattern, text, other):
    found = re.search(pattern, text, re.M)
    return found.group(1) if found else other


def machine():
    """Processor, how many of them, and the distribution."""
    model = _first(r"^model name\s*: (.*)$", _read("/proc/cpuinfo"),
                   "unknown processor")
    system = _first(r'^PRETTY_NAME="?([^"\n]*)', _read("/etc/os-release"),
                    "Linux")
    return f"{model}, {os.cpu_count()} CPUs, {system}"


def pytorch(torch_python):
    """The version beside this interpreter of a virtual environment."""
    if torch_python:
        for path in pathlib.Path(torch_python).parent.parent.glob(
                "lib/python3*/site-packages/torch-*.dist-info"):
            return path.name[len("torch-"):-len(".dist-info")]
    return "none"


def commit(root=ROOT):
    """The commit of the sources, marked where they were changed since."""
    try:
        done = subprocess.run(
            ["git", "-c", "safe.directory=*", "describe", "--always",
             "--abbrev=8", "--exclude=*", "--dirty"], cwd=root,
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def facts(torch_python):
    """The facts of a run of today (bench_numbers.FACTS)."""
    return {"date": datetime.date.today().isoformat(), "machine": machine(),
            "pytorch": pytorch(torch_python), "commit": commit()}
