"""Where pulled parameters land: beside a model's, or in place."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch

from agg_server import _abi
from agg_server._operation import Memories
from agg_server._tensors import (Cuda, Overflows, Staging, check_shape,
                                 memory_of)


# Numbers that torch's call for each tensor costs more than.
_SMALL = 1 << 18


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.dtype is torch.float32 and tensor.is_contiguous()


def _increment_versions(tensors: Sequence[torch.Tensor]) -> None:
    """Of what torch has not seen change: graphs of before must not use it."""
    increment: Any = torch.autograd.graph.increment_version
    try:
        increment(tensors)
    except (TypeError, AttributeError):  # before torch 2.5
        for tensor in tensors:
            increment(tensor)


class Pulled:
    """Targets of pulls, in the tensors' order."""

    def __init__(self, tensors: Sequence[torch.Tensor], in_place: bool,
                 cuda: Optional[Cuda] = None,
                 names: Optional[Sequence[str]] = None) -> None:
        """names: of the tensors, for messages. in_place: into the tensors
        themselves, where they are contiguous float32 in this process's memory,
        or of a device that `cuda` takes (None: it takes none). What is not
        pulled into a tensor lands beside it, on its device if `cuda` takes
        that."""
        self._cuda = cuda or Cuda(allowed=False)
        self._tensors = list(tensors)
        self._names = list(names or map(str, range(len(self._tensors))))
        self._overflows = Overflows()
        self._in_place = in_place
        self._staging = Staging(self._tensors)
        self._memories = Memories(_abi.Target, len(self._tensors))
        # Of the tensors as they were at the last round: aliases that need no
        # gradient, which of them are plain, and the targets.
        self._own: list[torch.Tensor] = []
        # None: they are looked at each time.
        self._pointers: Optional[list[int]] = None
        self._plain: list[bool] = []
        self._narrow: list[int] = []  # which have not float32's range
        self._targets: list[torch.Tensor] = []
        self._on_device: list[torch.Tensor] = []  # of the targets
        # Few numbers, which agg_copy brings to their places.
        self._small = False
        self._places = Memories(_abi.Target, len(self._tensors))

    def targets(self) -> list[torch.Tensor]:
        """float32, one for each tensor: good until the next pull."""
        self._look()
        return self._targets

    def memory(self) -> tuple[Memories, Any]:
        """Of the targets, and what holds it: a tensor's storage may be replaced
        while a pull that Ctrl-C has left goes on."""
        self._look()
        self._cuda.hand_over(self._on_device)
        return self._memories, self._targets

    def write(self) -> None:
        """Into the tensors, once the targets of memory() have their values."""
        self._write()
        if self._narrow:
            self._overflows.look(*zip(*[
                (self._names[i], self._own[i], self._targets[i])
                for i in self._narrow]))

    def drop_staging(self) -> None:
        """Gives the memory beside the tensors back, until it is used again."""
        self._staging = Staging(self._tensors)
        self._pointers = None
        self._targets, self._on_device = [], []

    def _write(self) -> None:
        if self._small:
            _abi.load().agg_copy(self._memories.array, self._places.array,
                                 self._places.count)
            _increment_versions(self._own)
            return
        if not self._in_place:
            torch._foreach_copy_(self._own, self._targets)
            return
        staged = [i for i, plain in enumerate(self._plain) if not plain]
        if staged:
            torch._foreach_copy_([self._own[i] for i in staged],
                                 [self._targets[i] for i in staged])
        _increment_versions([tensor for tensor, plain in
                             zip(self._own, self._plain) if plain])

    def _look(self) -> None:
        """A model's memory may be another one than at the last round. (What
        was there then is kept, and so no other memory has its address.)"""
        pointers: Optional[list[int]] = None
        try:
            pointers = [t.data_ptr() for t in self._tensors]
        except RuntimeError:  # a subclass that has none
            pass
        if pointers is not None and pointers == self._pointers and all(
                [t.is_contiguous() for t in self._tensors]):
            return
        for index, tensor in enumerate(self._tensors):
            check_shape("tensor", self._names[index], tensor,
                        self._staging.shape(index))
        self._own = [t.detach() for t in self._tensors]
        self._plain = [self._in_place and _is_plain(t) and
                       (t.is_cpu or self._cuda.takes(t)) for t in self._own]
        self._narrow = [i for i, t in enumerate(self._own)
                        if t.dtype in (torch.float16, torch.bfloat16)]
        self._targets = [
            own if plain else self._staging.buffer(
                i, beside=own if self._cuda.takes(own) else None)
            for i, (own, plain) in enumerate(zip(self._own, self._plain))]
        self._on_device = [t for t in self._targets if not t.is_cpu]
        self._memories.fill([memory_of(t) for t in self._targets])
        self._small = (not self._in_place and
                       all(t.is_cpu and _is_plain(t) for t in self._own) and
                       sum(t.numel() for t in self._own) <= _SMALL)
        if self._small:
            self._places.fill([memory_of(t) for t in self._own])
        # Others are looked at each time.
        known = pointers is not None and 0 not in pointers and \
            all(t.is_contiguous() for t in self._own)
        self._pointers = pointers if known else None
