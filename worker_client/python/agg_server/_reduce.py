"""Small reductions beside the model: a few numbers of all workers."""

from __future__ import annotations

import logging
import math
from typing import Any, Mapping, Optional

import numpy as np

from agg_server._session import Session
from agg_server.errors import ManifestError

_log = logging.getLogger("agg_server")

_OPS = ("mean", "sum")
# SmallReductions::kMaxValues of server/coordinator, one of which is the weight
# of a mean, and kMaxWhatBytes.
MAX_NUMBERS = 8191
_MAX_TEXT = 4096
# Integers up to this are float64s.
_MAX_INTEGER = 2**53


def array_of(name: str, value: Any, op: Optional[str]) -> np.ndarray:
    """A number, or an array of numbers, as float64 or int64."""
    if isinstance(value, int) and not isinstance(value, bool) and \
            op != "sum":
        value = float(value)  # a number of Python's has no type to keep
    array = np.asarray(value)
    if array.dtype.kind in "iu" or (array.dtype.kind == "O" and isinstance(
            value, int)):
        if array.size and max(abs(int(array.min())),
                              abs(int(array.max()))) > _MAX_INTEGER:
            raise ManifestError(
                f'"{name}" has an integer beyond 2**53, which sums are not '
                "exact for; allowed: up to that, or floats")
        return array.astype(np.int64)
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise ManifestError(
            f'"{name}" is {array.dtype}; allowed: floats and integers (count a '
            "bool's, or reduce real and imaginary parts)")
    return array.astype(np.float64)


class Reducer:
    """Of one client. As thread-safe as its session."""

    def __init__(self, session: Session, rank: int) -> None:
        self._session, self._rank = session, rank
        self._said: set[str] = set()
        self.ranks: tuple[int, ...] = ()  # in the last sums

    def reduce(self, values: Mapping[str, np.ndarray], op: Optional[str],
               examples: float) -> dict[str, np.ndarray]:
        """By name: float64 means, or sums of each array's own type."""
        op = "mean" if op is None else op
        self._check(values, op, examples)
        names = sorted(values)
        flat = np.concatenate([values[name].astype(np.float64).ravel()
                               for name in names])
        if op == "mean":
            # 0 * NaN would not be 0.
            flat = (np.concatenate([[examples], flat * examples]) if examples
                    else np.zeros(flat.size + 1))
        what = f"the {op} of " + ", ".join(
            f'"{name}" {list(values[name].shape)}' for name in names)
        if len(what.encode()) > _MAX_TEXT:
            raise ManifestError(
                f"names and shapes are {len(what.encode())} bytes; allowed: "
                f"{_MAX_TEXT}; reduce fewer names at a time, or one tensor of "
                "them")
        sums, ranks, left_out = self._session.reduce(what, flat)
        self.ranks = tuple(ranks)
        self._tell(what, ranks, left_out)
        if op == "mean":
            weight = float(sums[0])
            sums = (sums[1:] / weight if weight else
                    np.full(flat.size - 1, math.nan))
        found: dict[str, np.ndarray] = {}
        begin = 0
        for name in names:
            value = values[name]
            part = sums[begin:begin + value.size].reshape(value.shape)
            begin += value.size
            if value.dtype.kind == "i":
                if part.size and np.abs(part).max() > _MAX_INTEGER:
                    raise ManifestError(
                        f'the sum of "{name}" is {np.abs(part).max():.17g}; '
                        "allowed for integers: up to 2**53; reduce it as "
                        "float64")
                part = part.astype(np.int64)
            found[name] = part
        return found

    @staticmethod
    def _check(values: Mapping[str, np.ndarray], op: str, examples: float
               ) -> None:
        if op not in _OPS:
            raise ManifestError(f'op is "{op}"; allowed: "mean", "sum"')
        if not (math.isfinite(examples) and examples >= 0):
            raise ManifestError(f"examples is {examples}; allowed: 0 (this "
                                "worker has none) or more")
        if op == "sum" and examples != 1:
            raise ManifestError(f'examples is {examples} and op "sum", which '
                                'weights nothing; allowed: op="mean"')
        count = sum(value.size for value in values.values())
        if not 1 <= count <= MAX_NUMBERS:
            raise ManifestError(
                f"{count} numbers are reduced; allowed beside the model: 1 to "
                f"{MAX_NUMBERS}; larger tensors are rows of a job of their own "
                '(agg-launch --job, mode="combine")')
        for name, value in values.items():
            if op == "mean" and value.dtype.kind == "i":
                raise ManifestError(
                    f'"{name}" is of integers, which have no mean of their '
                    'type; allowed: op="sum", or floats')

    def _tell(self, what: str, ranks: list[int], left_out: list[int]) -> None:
        lacks = []
        if left_out:
            lacks.append(f"of ranks {left_out}, which make a round meanwhile")
        if self._rank not in ranks:
            lacks.append("of this worker, which has come too late")
        if not lacks:
            return
        text = (f"{what} has the values of ranks {ranks} alone, and none "
                + ", nor ".join(lacks))
        if text not in self._said:
            self._said.add(text)
            _log.warning("rank %d: %s", self._rank, text)


__all__ = ["MAX_NUMBERS", "Reducer", "array_of"]
