"""Memory of a row: gradients as the client can send them."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional, Sequence

import numpy as np
import torch

from agg_server import _abi
from agg_server._operation import Memories, Memory
from agg_server._shown import warn
from agg_server._tensors import (Cuda, Staging, check_dtype, check_shape,
                                 memory_of)
from agg_server.errors import ManifestError

_F32 = torch.float32
_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class Row:
    """Gives views of gradients: themselves where that is possible."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], push_dtype: str,
                 cuda: Optional[Cuda] = None) -> None:
        """push_dtype: the job's. (The client rounds float32 rows of an int8
        job.) cuda: which tensors of devices need no copy; None: none."""
        self._cuda = cuda or Cuda(allowed=False)
        self._names = list(tensors)
        self._tensors = list(tensors.values())
        self._shapes = [t.shape for t in self._tensors]
        self._push_dtype = _DTYPES.get(push_dtype, torch.float32)
        self._counts = np.array([t.numel() for t in self._tensors], np.uint64)
        self._staging = Staging(self._tensors)
        self._warned_sparse = False
        # named_tensors() has said so of those that are float64 themselves.
        self._warned_wide = torch.float64 in [t.dtype for t in self._tensors]

    def fill(self, memories: Memories, rows: Sequence[Optional[torch.Tensor]]
             ) -> bool:
        """A whole row without copies, quickly; False: views() has to do it.
        """
        # A list for each question costs less than a loop with all of them.
        given: Sequence[Any] = rows
        on_device: list[Any] = []
        try:
            # None has no dtype; what is sparse is not contiguous.
            if [row.dtype for row in given].count(_F32) != len(given) or \
                    False in [row.is_contiguous() for row in given] or \
                    [row.shape for row in given] != self._shapes:
                return False
            on_device = [row for row in given if not row.is_cpu]
            if False in [self._cuda.takes(row) for row in on_device]:
                return False
            pointers = [row.data_ptr() for row in given]
        except (AttributeError, RuntimeError):
            return False
        self._cuda.hand_over(on_device)
        # An empty tensor's pointer must not be null: that means "not there".
        memories.fill_floats([p or 1 for p in pointers] if 0 in pointers
                             else pointers, self._counts)
        return True

    def views(self, indices: Iterable[int],
              rows: Iterable[Optional[torch.Tensor]]
              ) -> tuple[list[Optional[torch.Tensor]], list[Memory]]:
        """What is sent for these rows, and its memory. None: absent."""
        views: list[Optional[torch.Tensor]] = []
        memory = []
        on_device = []
        # Rows of small models take less time than calls of torch: most tensors
        # need just these.
        for index, row in zip(indices, rows):
            if row is None:
                memory.append((0, 0, _abi.F32))
            else:
                if row.shape != self._shapes[index]:
                    check_shape("the row of", self._names[index], row,
                                self._shapes[index])
                if row.dtype is torch.float32 and row.is_cpu and \
                        row.layout is torch.strided and row.is_contiguous():
                    memory.append((row.data_ptr() or 1, row.numel(), _abi.F32))
                else:
                    row = self._copied(index, row.detach())
                    if not row.is_cpu:
                        on_device.append(row)
                    memory.append(memory_of(row))
            views.append(row)
        self._cuda.hand_over(on_device)
        return views, memory

    def hand_over(self, row: torch.Tensor) -> None:
        """What the current stream was given comes before a later call that
        sends the row."""
        if not row.is_cpu:
            self._cuda.hand_over([row])

    def _copied(self, index: int, row: torch.Tensor) -> torch.Tensor:
        """The row of tensor `index`, where it can be sent. ManifestError: its
        numbers cannot."""
        check_dtype("the row of", self._names[index], row)
        if row.is_meta:
            raise ManifestError(f'the row of "{self._names[index]}" is on the '
                                'device "meta" and has no values')
        if row.layout != torch.strided:
            if not self._warned_sparse:
                warn("a sparse gradient is sent densely: it costs as much as "
                     "the whole parameter")
                self._warned_sparse = True
            row = (row.coalesce() if row.layout is torch.sparse_coo
                   else row).to_dense()
        dtype = (row.dtype if row.dtype in (torch.float32, self._push_dtype)
                 else torch.float32)
        if row.dtype == dtype and row.is_contiguous() and \
                (row.is_cpu or self._cuda.takes(row)):
            return row
        staged = self._staging.buffer(
            index, dtype, row if self._cuda.takes(row) else None)
        staged.copy_(row)
        if row.dtype is torch.float64:
            self._check_narrowed(index, row, staged)
        return staged

    def _check_narrowed(self, index: int, row: torch.Tensor,
                        staged: torch.Tensor) -> None:
        name = self._names[index]
        if bool(row.isfinite().all()) and not bool(staged.isfinite().all()):
            raise ManifestError(
                f'the row of "{name}" is float64 with values up to '
                f"{row.abs().max().item():.4g}; allowed: up to 3.4e38, since "
                "rows travel as float32; scale it (loss_scale=)")
        if not self._warned_wide:
            self._warned_wide = True
            warn(f'the row of "{name}" is float64, and is sent as float32')

    def forget(self) -> None:
        """The copies belong to a round that goes on."""
        self._staging = Staging(self._tensors)
