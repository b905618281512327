"""The server's combination rules on arrays, without a server."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import tempfile
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Union

import numpy as np

from agg_server.errors import ManifestError
from agg_server.local_server import binary_path

# Rows, or rows by the tensor's name; numpy arrays or torch tensors.
Rows = Union[Any, Mapping[str, Any]]
_INPUT = 2  # the program's exit code for what it does not take


class Combination(NamedTuple):
    """What a rule makes of one round's rows.

    combined: the combination, of a row's shape and type (torch: on its device,
      too): sum_i coefficients[i] row_i, in float64, rounded once. Rows by name
      give combinations by name. Zeros where nothing was applied.
    coefficients: float64, one for each row; 0 for rows that are left out.
    gram: float64, P x P; NaN for rows that are not finite.
    numbers: orthogonality, gain, tau, sigma2, ... by name,
      as the round log has them; NaN where one is undefined.
    excluded: rows that are left out: not finite, or outliers.
    message: why nothing was applied; "": the rule was.
    """
    combined: Any
    coefficients: np.ndarray
    gram: np.ndarray
    numbers: dict[str, float]
    excluded: tuple[int, ...]
    message: str


def _matrix(rows: Any, name: str) -> np.ndarray:
    """P x d, of a type that agg_combine reads."""
    if hasattr(rows, "detach"):
        rows = rows.detach().cpu()
        # What numpy lacks, bfloat16 say.
        rows = rows.numpy() if str(rows.dtype) in (
            "torch.float16", "torch.float32", "torch.float64") \
            else rows.float().numpy()
    array = np.asarray(rows)
    if array.dtype not in (np.float16, np.float32, np.float64):
        array = array.astype(np.float64)
    # A tensor by name may be one number; rows without a name are no vector.
    if array.ndim < (2 if name == "rows" else 1) or array.size == 0:
        raise ManifestError(f"{name} has shape {array.shape}; allowed: (P, ...)"
                            ", a row for each of P workers, with values")
    return np.ascontiguousarray(array.reshape(len(array), -1))


def _like(row: np.ndarray, rows: Any) -> Any:
    """A combination, of the shape and the type of one of the rows."""
    row = row.reshape(tuple(rows.shape[1:]) if hasattr(rows, "shape")
                      else np.shape(rows)[1:])
    if hasattr(rows, "detach"):
        return rows.new_tensor(row)
    kind = np.asarray(rows).dtype
    return row.astype(kind if kind.kind == "f" else np.float64)


def _flags(options: Mapping[str, Any]) -> list[str]:
    """agg_combine's, of options by their names there."""
    flags = []
    for name, value in options.items():
        if isinstance(value, bool):
            value = str(value).lower()
        elif isinstance(value, (list, tuple, np.ndarray)):
            value = ",".join(str(each) for each in value)
        flags.append(f"--{name}={value}")
    return flags


def _run(steps: Sequence[np.ndarray], flags: Sequence[str]
         ) -> list[dict[str, Any]]:
    """What agg_combine says of each step."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="agg_combine_",
                                     dir=memory) as folder:
        files = []
        for step, matrix in enumerate(steps):
            path = pathlib.Path(folder) / f"step{step}.npy"
            np.save(path, matrix)
            files.append(f"--gradients={path}")
        ended = subprocess.run(
            [binary_path("agg_combine"), *flags, *files], check=False,
            capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if ended.returncode:
        said = ended.stderr.strip().replace("agg_combine: ", "", 1)
        kind = ManifestError if ended.returncode == _INPUT else RuntimeError
        raise kind(said.replace(f"{folder}/", "")
                   or f"agg_combine ended with {ended.returncode}")
    return [json.loads(line) for line in ended.stdout.splitlines()]


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _combination(line: Mapping[str, Any], matrix: np.ndarray, rows: Rows
                 ) -> Combination:
    coefficients = np.array([_number(each) for each in line["coefficients"]])
    # A row that is left out may hold anything.
    kept = coefficients != 0
    combined = coefficients[kept] @ matrix[kept].astype(np.float64)
    if isinstance(rows, Mapping):
        ends = np.cumsum([_matrix(each, name).shape[1]
                          for name, each in rows.items()])
        combined = {name: _like(part, rows[name]) for name, part in zip(
            rows, np.split(combined, ends[:-1]))}
    else:
        combined = _like(combined, rows)
    plain = {name: _number(value) for name, value in line.items()
             if value is None or isinstance(value, float)}
    plain.pop("skipped", None)
    return Combination(
        combined, coefficients,
        np.array([[_number(each) for each in row] for row in line["gram"]]),
        plain, tuple(line["excluded"]), line["skipped"] or "")


def combine_steps(steps: Sequence[Rows], rule: str = "mean",
                  scope: Optional[str] = None, **options: Any
                  ) -> list[Any]:
    """combine() for the rounds of a job one after the other: what a rule
    remembers (AdaCons' momentum) and what AdaScale averages goes on from step
    to step. The number of rows may change, tensors may not. The result: what
    combine() returns, for each step."""
    named = [step for step in steps if isinstance(step, Mapping)]
    if named and len(named) < len(steps) or any(
            list(each) != list(named[0]) for each in named):
        raise ManifestError("the steps have different tensors; allowed: the "
                            "same names in the same order")
    flags = [f"--rule={rule}", *_flags(options)]
    if not named:
        matrices = [_matrix(step, "rows") for step in steps]
        if scope is not None:
            flags.append(f"--scope={scope}")
        return [_combination(line, matrix, step) for line, matrix, step in zip(
            _run(matrices, flags), matrices, steps)]
    if scope == "global" or (scope is None and len(named[0]) == 1):
        matrices = [np.concatenate(
            [_matrix(each, f'rows["{name}"]') for name, each in step.items()],
            axis=1) for step in named]
        return [_combination(line, matrix, step) for line, matrix, step in zip(
            _run(matrices, flags), matrices, named)]
    if scope != "per_tensor":
        said = "None" if scope is None else f'"{scope}"'
        raise ManifestError(f'scope is {said}; allowed: "per_tensor" or '
                            '"global", since the model has several tensors')
    by_name = {name: combine_steps([{name: step[name]} for step in named],
                                   rule, **options) for name in named[0]}
    return [{name: found[i]._replace(combined=found[i].combined[name])
             for name, found in by_name.items()} for i in range(len(named))]


def combine(rows: Rows, rule: str = "mean", scope: Optional[str] = None,
            **options: Any) -> Any:
    """Combines the rows of one round as the server would, by its own code: the
    program agg_combine, which the wheel has, on a copy of the rows in memory. A
    call starts a process: it is for looking, and not for a training's steps.

        agg.combine(gradients, rule="adasum").combined
        agg.combine(gradients, rule="adacons", adacons_beta=0.9).coefficients
        agg.combine({"w": w, "b": b}, rule="adasum", scope="per_tensor")["w"]

    Args:
      rows: float16, float32 or float64, (P, ...): a gradient for each of P
        workers; a numpy array or a torch tensor (bfloat16, too). Or such rows
        by the tensor's name.
      rule: as in a job's configuration: "mean", "adasum", "adacons", ...
      scope: for several tensors "global", as if they were one, or
        "per_tensor", each by itself.
      options: by the names of `agg_combine --help`: examples and accumulation
        (a number for each row, or one for all), step_scale, averaging,
        adacons_beta, krum_byzantine_workers, outliers_max_deviations,
        clip_norm, ...

    Returns a Combination; with the scope "per_tensor" one for each tensor, by
    name.

    Raises ManifestError: rows, rule or an option that is not allowed; the
    message says what is. Error: agg_combine is not there.
    """
    return combine_steps([rows], rule, scope, **options)[0]


__all__ = ["Combination", "combine", "combine_steps"]
