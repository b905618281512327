"""What the server compares, so that replicas do not drift apart unheard."""

from __future__ import annotations

import ctypes
import logging
from typing import Any, Optional, Sequence

import numpy as np
import torch

from agg_server import _abi
from agg_server._windows import Windows

_log = logging.getLogger("agg_server")


class Replica(Windows):
    """The parameters that one worker has, in an order that all have."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        """tensors: of any dtype and device; the same ones, in the same order, in
        all workers of the job."""
        self._tensors = list(tensors)
        self._refused: Optional[str] = None
        # Of models of one window, which are looked at whole each time.
        self._pieces = (ctypes.c_void_p * len(self._tensors))()
        pieces: Any = self._pieces
        self._words: Any = (np.frombuffer(pieces, np.uint64)
                            if self._tensors else None)
        self._measure([t.numel() * t.element_size() for t in self._tensors])

    def _measure(self, sizes: list[int]) -> None:
        super().__init__(sizes, self._bytes_of)
        self._known = sizes
        self._sizes = (ctypes.c_size_t * len(sizes))(*sizes)

    def _look(self) -> None:
        """Their memory may be another one than before: half() of a model has
        made it smaller. RuntimeError: one has none, as parameters that are
        sharded, or elsewhere, between two steps."""
        sizes = [t.numel() * t.element_size() for t in self._tensors]
        if sizes != self._known:
            self._measure(sizes)
        for tensor, size in zip(self._tensors, sizes):
            if size and tensor.is_cpu and tensor.data_ptr() == 0:
                raise RuntimeError("the memory of one was given back")

    def writes(self) -> list[int]:
        """As torch counts them: another list once one was written."""
        return [t._version for t in self._tensors]

    def digest(self, version: int) -> int:
        """As Windows has it. 0: the memory cannot be read (a warning says so,
        once)."""
        try:
            self._look()
            return super().digest(version)
        except (RuntimeError, NotImplementedError) as error:
            if self._refused is None:
                self._refused = str(error)
                _log.warning("the parameters cannot be read, and are not "
                             "compared with those of the other workers: %s",
                             error)
            return 0

    def _of_window(self, index: int) -> int:
        if self.count == 1 and self._words is not None and \
                all([t.is_cpu and t.is_contiguous() for t in self._tensors]):
            self._words[:] = [t.data_ptr() for t in self._tensors]
            return int(_abi.load().agg_crc32c(self._pieces, self._sizes,
                                              len(self._sizes)))
        return super()._of_window(index)

    def _bytes_of(self, index: int, first: int, last: int) -> np.ndarray:
        """Row-major. A copy only where they are not in this process's memory,
        or not row-major."""
        tensor = self._tensors[index]
        size = tensor.element_size()
        elements = tensor.detach().reshape(-1)[first // size:-(-last // size)]
        found: np.ndarray = elements.cpu().view(torch.uint8).numpy()
        begin = first % size
        return found[begin:begin + last - first]
