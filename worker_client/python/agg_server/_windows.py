"""A number for the parameters that a worker has, a part of them at a time.

Where workers step the parameters themselves, nobody overwrites them, and a
worker that began with others, or missed a step, stays another model. The server
compares these numbers (P49 of proto/README.md).
"""

from __future__ import annotations

import bisect
import ctypes
import struct
from typing import Callable, Sequence

import numpy as np

from agg_server import _abi

# A digest is of a window of the parameters' bytes, another one in each round: of
# so many windows, but none of them smaller, or larger, than that.
_WINDOWS, _MIN_BYTES, _MAX_BYTES = 16, 1 << 20, 16 << 20

# Bytes of a tensor, by its place, from the first one up to the last.
_Read = Callable[[int, int, int], np.ndarray]


class Windows:
    """Of tensors in an order that all workers have."""

    def __init__(self, sizes: Sequence[int], read: _Read) -> None:
        """sizes: of each tensor, in bytes."""
        self._read = read
        self._begins = [0]  # of each tensor's bytes, and the end
        for size in sizes:
            self._begins.append(self._begins[-1] + size)
        total = self._begins[-1]
        self._window = min(max(-(-total // _WINDOWS), _MIN_BYTES), _MAX_BYTES)
        self.count = max(-(-total // self._window), 1)

    def digest(self, version: int) -> int:
        """Of the window of that version, or at version 0 of all: the same number
        for the same bytes, and not 0."""
        if version:
            return self._of_window(version % self.count)
        words = [self._of_window(i) for i in range(self.count)]
        return crc32c([np.frombuffer(struct.pack(f"<{len(words)}I", *words),
                                     np.uint8)])

    def _of_window(self, index: int) -> int:
        begin = index * self._window
        end = min(begin + self._window, self._begins[-1])
        parts, at = [], bisect.bisect_right(self._begins, begin) - 1
        while at < len(self._begins) - 1 and self._begins[at] < end:
            first = max(begin - self._begins[at], 0)
            last = min(end, self._begins[at + 1]) - self._begins[at]
            if first < last:
                parts.append(self._read(at, first, last))
            at += 1
        return crc32c(parts)


def crc32c(parts: Sequence[np.ndarray]) -> int:
    """Of contiguous arrays, one behind the other; not 0."""
    pieces = (ctypes.c_void_p * len(parts))(*[a.ctypes.data for a in parts])
    sizes = (ctypes.c_size_t * len(parts))(*[a.nbytes for a in parts])
    return int(_abi.load().agg_crc32c(pieces, sizes, len(parts)))


def digest_of_arrays(arrays: Sequence[np.ndarray], version: int) -> int:
    """As Windows.digest, of arrays in whatever layout."""
    rows = [np.ascontiguousarray(a).reshape(-1) for a in arrays]
    windows = Windows([row.nbytes for row in rows],
                      lambda i, first, last:
                      rows[i].view(np.uint8)[first:last])
    return windows.digest(version)
