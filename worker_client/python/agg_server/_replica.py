"""What the server compares, so that replicas do not drift apart unheard.

Where workers step the parameters themselves, nobody overwrites them, and a
worker that began with others, or missed a step, stays another model.
"""

from __future__ import annotations

import bisect
import ctypes
import logging
import struct
from typing import Optional, Sequence

import numpy as np
import torch

from agg_server import _abi

_log = logging.getLogger("agg_server")

# A digest is of a window of the parameters' bytes, another one in each round: of
# so many windows, but none of them smaller, or larger, than that.
_WINDOWS, _MIN_BYTES, _MAX_BYTES = 16, 1 << 20, 16 << 20


class Replica:
    """The parameters that one worker has, in an order that all have."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        """tensors: of any dtype and device; the same ones, in the same order, in
        all workers of the job."""
        self._tensors = [t for t in tensors if t.numel()]
        sizes = [t.numel() * t.element_size() for t in self._tensors]
        self._begins = [0]  # of each tensor's bytes, and the end
        for size in sizes:
            self._begins.append(self._begins[-1] + size)
        total = self._begins[-1]
        window = min(max(-(-total // _WINDOWS), _MIN_BYTES), _MAX_BYTES)
        self._window = window
        self.windows = max(-(-total // window), 1)
        # Of models of one window, which are looked at whole each time.
        self._pieces = (ctypes.c_void_p * len(sizes))()
        self._sizes = (ctypes.c_size_t * len(sizes))(*sizes)
        self._words = np.frombuffer(self._pieces, np.uint64) if sizes else None
        self._refused: Optional[str] = None

    def digest(self, version: int) -> int:
        """Of the window of that version, or at version 0 of all: the same number
        for the same bytes. 0: the memory cannot be read (a warning says so,
        once)."""
        try:
            if version:
                return self._of_window(version % self.windows)
            words = [self._of_window(i) for i in range(self.windows)]
            return _crc32c([struct.pack(f"<{len(words)}I", *words)])
        except (RuntimeError, NotImplementedError) as error:
            if self._refused is None:
                self._refused = str(error)
                _log.warning("the parameters cannot be read, and are not "
                             "compared with those of the other workers: %s",
                             error)
            return 0

    def _of_window(self, index: int) -> int:
        if self.windows == 1 and self._words is not None and \
                all([t.is_cpu and t.is_contiguous() for t in self._tensors]):
            self._words[:] = [t.data_ptr() for t in self._tensors]
            return int(_abi.load().agg_crc32c(self._pieces, self._sizes,
                                              len(self._sizes)))
        begin = index * self._window
        end = min(begin + self._window, self._begins[-1])
        parts, at = [], bisect.bisect_right(self._begins, begin) - 1
        while at < len(self._tensors) and self._begins[at] < end:
            first = max(begin - self._begins[at], 0)
            last = min(end, self._begins[at + 1]) - self._begins[at]
            parts.append(_bytes_of(self._tensors[at], first, last))
            at += 1
        return _crc32c(parts)


def _bytes_of(tensor: torch.Tensor, first: int, last: int) -> np.ndarray:
    """Row-major, from byte `first` to `last`. A copy only where they are not in
    this process's memory, or not row-major."""
    size = tensor.element_size()
    elements = tensor.detach().reshape(-1)[first // size:-(-last // size)]
    words = elements.cpu().view(torch.uint8).numpy()
    return words[first % size:first % size + last - first]


def _crc32c(parts: Sequence[object]) -> int:
    arrays = [np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part
              for part in parts]
    pieces = (ctypes.c_void_p * len(arrays))(
        *[a.ctypes.data for a in arrays])  # type: ignore[attr-defined]
    sizes = (ctypes.c_size_t * len(arrays))(
        *[a.nbytes for a in arrays])  # type: ignore[attr-defined]
    return int(_abi.load().agg_crc32c(pieces, sizes, len(arrays)))
