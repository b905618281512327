"""Memory of a row: gradients as the client can send them."""

from __future__ import annotations

import warnings
from typing import Sequence

import torch

from agg_server._tensors import Staging

_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class Row:
    """Gives views of gradients: themselves where that is possible."""

    def __init__(self, tensors: Sequence[torch.Tensor], push_dtype: str
                 ) -> None:
        """push_dtype: the job's. (The client rounds float32 rows of an int8
        job.)"""
        self._tensors = list(tensors)
        self._push_dtype = _DTYPES.get(push_dtype, torch.float32)
        self._staging = Staging(self._tensors)
        self._warned_sparse = False

    def view(self, index: int, row: torch.Tensor) -> torch.Tensor:
        """The row of tensor `index` itself, if it can be sent as it is; else a
        copy."""
        row = row.detach()
        if row.layout != torch.strided:
            if not self._warned_sparse:
                warnings.warn("a sparse gradient is sent densely: it costs "
                              "as much as the whole parameter", stacklevel=6)
                self._warned_sparse = True
            row = row.coalesce().to_dense()
        dtype = (row.dtype if row.dtype in (torch.float32, self._push_dtype)
                 else torch.float32)
        if row.device.type == "cpu" and row.dtype == dtype and \
                row.is_contiguous():
            return row
        staged = self._staging.buffer(index, dtype)
        staged.copy_(row)
        return staged

    def forget(self) -> None:
        """The copies belong to a round that goes on."""
        self._staging = Staging(self._tensors)
