"""Notices what others write into parameters that are the server's.

A step sends gradients, and what it pulls replaces the parameters: what somebody
else has written into them meanwhile would be lost. torch counts writes, but not
those by `.data` or numpy; so the bytes of a few pieces are compared, too, of
others at each step. What is suspected is then compared with the server's.
"""

from __future__ import annotations

import ctypes
from typing import Any, Optional, Sequence

import torch

# So many pieces of so many bytes are copied after each pull, and compared before
# the next one.
_PIECES = 16
_PIECE_BYTES = 1 << 12
# On a device, where each one costs some calls.
_DEVICE_PIECES = 4


def _is_dense(tensor: torch.Tensor) -> bool:
    """Its elements are all of a stretch of memory, in whatever order."""
    return tensor.layout is torch.strided and (
        tensor.is_contiguous() or
        bool(torch.ops.aten.is_non_overlapping_and_dense(tensor)))


class Watch:
    """Of tensors between a pull and the next step."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = list(tensors)
        self._versions: list[int] = []
        self._pointers: Optional[list[int]] = None
        # Tensor, first byte, and what was there.
        self._pieces: list[tuple[int, int, Any]] = []
        self._next = self._rounds = 0
        self._known = False

    def remember(self) -> None:
        """They are as the server has them."""
        self._versions = [t._version for t in self._tensors]
        self._pointers = self._find_pointers()
        self._pieces = []
        if self._pointers is not None:
            self._take_pieces(self._pointers)
        self._known = True

    def forget(self) -> None:
        """Nothing is known of them until the next remember()."""
        self._known, self._pieces = False, []

    def suspects(self) -> bool:
        """Somebody may have written into one since remember(); False before
        the first one."""
        if not self._known:
            return False
        if [t._version for t in self._tensors] != self._versions or \
                self._find_pointers() != self._pointers:
            return True
        return any(not self._is_same(*piece) for piece in self._pieces)

    def _find_pointers(self) -> Optional[list[int]]:
        try:
            return [t.data_ptr() for t in self._tensors]
        except RuntimeError:  # a subclass that has none
            return None

    def _take_pieces(self, pointers: list[int]) -> None:
        self._rounds += 1
        left = _DEVICE_PIECES
        for _ in range(min(_PIECES, len(self._tensors))):
            index = self._next
            self._next = (index + 1) % len(self._tensors)
            tensor = self._tensors[index]
            size = tensor.numel() * tensor.element_size()
            if size == 0 or pointers[index] == 0 or not _is_dense(tensor):
                continue
            begin = (0 if size <= _PIECE_BYTES else
                     self._rounds * _PIECE_BYTES % size // 16 * 16)
            length = min(_PIECE_BYTES, size - begin)
            if tensor.is_cpu:
                self._pieces.append((index, begin, ctypes.string_at(
                    pointers[index] + begin, length)))
            elif left:
                left -= 1
                self._pieces.append((index, begin, self._on_device(
                    index, begin, length).clone()))

    def _on_device(self, index: int, begin: int, length: int) -> torch.Tensor:
        tensor = self._tensors[index].detach()
        flat = tensor.as_strided((tensor.numel(),), (1,))
        width = tensor.element_size()
        return flat[begin // width:(begin + length) // width]

    def _is_same(self, index: int, begin: int, was: Any) -> bool:
        tensor = self._tensors[index]
        if isinstance(was, bytes):
            return ctypes.string_at(tensor.data_ptr() + begin,
                                    len(was)) == was
        found = self._on_device(index, begin, was.numel() * was.element_size())
        return bool(torch.equal(*_bits(found, was)))


_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _bits(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """As integers: a NaN equals itself, and 0.0 is not -0.0."""
    return [t.view(_INTEGERS[t.element_size()]) for t in tensors]


def differ(tensors: Sequence[torch.Tensor], values: Sequence[torch.Tensor]
           ) -> list[int]:
    """The indices of tensors that are not what these float32 values
    would be in them."""
    found = []
    for index, (tensor, value) in enumerate(zip(tensors, values)):
        own = tensor.detach()
        there = value.to(own.device, own.dtype)
        if own.shape != there.shape or not torch.equal(*_bits(own, there)):
            found.append(index)
    return found
