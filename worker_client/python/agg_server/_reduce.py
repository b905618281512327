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
_MAX_SAID = 100
# Sums of integers up to this, of 1,024 workers, are exact in float64.
_MAX_INTEGER = 2**43
# An integer up to this is a float64.
_MAX_EXACT = 2**53


def check_name(name: Any) -> None:
    """Raises ManifestError: not a text that all languages can pass on."""
    if not isinstance(name, str):
        raise ManifestError(f"the name {name!r} is of {type(name).__name__}; "
                            "allowed: str")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ManifestError(f"the name {name!r} is no UTF-8; allowed: "
                            "characters, no surrogates") from None
    if "\0" in name:
        raise ManifestError(f"the name {name!r} has a zero byte; allowed: any "
                            "other character")


def array_of(name: str, value: Any, op: Optional[str]) -> np.ndarray:
    """A number, or an array of numbers, as float64 or int64."""
    if isinstance(value, int) and not isinstance(value, bool) and \
            op != "sum":
        # A number of Python's has no type to keep.
        if abs(value) > _MAX_EXACT:
            raise ManifestError(f'"{name}" is {value}, which is no float64; '
                                "allowed for integers: up to 2**53")
        value = float(value)
    array = np.asarray(value)
    if array.dtype.kind in "iu" or (array.dtype.kind == "O" and isinstance(
            value, int)):
        if array.size and max(abs(int(array.min())),
                              abs(int(array.max()))) > _MAX_INTEGER:
            raise ManifestError(
                f'"{name}" has an integer beyond 2**43, which sums over all '
                "workers need not be exact for; allowed: up to that, or floats")
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
        op, examples = "mean" if op is None else op, float(examples)
        self._check(values, op, examples)
        names = sorted(values)
        parts = {name: values[name].astype(np.float64) for name in names}
        if op == "mean":
            parts = {name: self._weighted(name, part, examples)
                     for name, part in parts.items()}
        flat = np.concatenate([[examples]] * (op == "mean")
                              + [parts[name].ravel() for name in names])
        # Whoever gives another type would read the sums otherwise.
        what = f"the {op} of " + ", ".join(
            f'"{name}" {list(values[name].shape)} of '
            + ("integers" if values[name].dtype.kind == "i" else "floats")
            for name in names)
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
            if math.isinf(weight):
                raise ManifestError("the sum of examples is beyond float64; "
                                    "allowed: smaller numbers")
            sums = (sums[1:] / weight if weight else
                    np.full(flat.size - 1, math.nan))
        found: dict[str, np.ndarray] = {}
        begin = 0
        for name in names:
            value = values[name]
            part = sums[begin:begin + value.size].reshape(value.shape)
            begin += value.size
            if np.isfinite(parts[name]).all() and np.isinf(part).any():
                self._say(f'"{name}" is infinite: another rank has given that, '
                          "or the sum is beyond float64")
            if value.dtype.kind == "i":
                part = part.astype(np.int64)
            found[name] = part
        return found

    @staticmethod
    def _weighted(name: str, part: np.ndarray, examples: float) -> np.ndarray:
        if not examples:
            return np.zeros_like(part)  # 0 * NaN would not be 0
        with np.errstate(over="ignore"):
            weighted = part * examples
        if (np.isinf(weighted) & np.isfinite(part)).any():
            raise ManifestError(
                f'"{name}" times examples ({examples:g}) is beyond float64; '
                "allowed: smaller numbers")
        return np.asarray(weighted)

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
            lacks.append(f"of ranks {left_out}, which are in a round that "
                         "these have not pushed to, or take part from a later "
                         "one")
        if self._rank not in ranks:
            lacks.append("of this worker")
        if lacks:
            self._say(f"{what} has the values of ranks {ranks} alone, and none "
                      + ", nor ".join(lacks))

    def _say(self, text: str) -> None:
        """Once each; few differ."""
        if text not in self._said and len(self._said) < _MAX_SAID:
            self._said.add(text)
            _log.warning("rank %d: %s", self._rank, text)


__all__ = ["MAX_NUMBERS", "Reducer", "array_of", "check_name"]
