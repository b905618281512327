"""Where pulled parameters land: beside a model's, or in place."""

from __future__ import annotations

from typing import Any, Sequence

import torch

from agg_server import _abi
from agg_server._operation import Memories
from agg_server._tensors import Staging, memory_of


def _is_plain(tensor: torch.Tensor) -> bool:
    return (tensor.is_cpu and tensor.dtype is torch.float32 and
            tensor.is_contiguous())


class Pulled:
    """Targets of pulls, in the tensors' order."""

    def __init__(self, tensors: Sequence[torch.Tensor], in_place: bool
                 ) -> None:
        """in_place: into the tensors themselves, where they are contiguous
        float32 in this process's memory."""
        self._tensors = list(tensors)
        self._in_place = in_place
        self._staging = Staging(self._tensors)
        self._memories = Memories(_abi.Target, len(self._tensors))
        self._filled = False

    def targets(self) -> list[torch.Tensor]:
        """float32, one for each tensor: good until the next pull."""
        if not self._in_place:
            return self._staging.targets()
        return [t.detach() if _is_plain(t) else self._staging.buffer(i)
                for i, t in enumerate(self._tensors)]

    def memory(self) -> tuple[Memories, Any]:
        """Of the targets, and what holds it: a tensor's storage may be replaced
        while a pull that Ctrl-C has left goes on."""
        # A model's own memory may be another one than at the last pull.
        if self._in_place or not self._filled:
            targets = self.targets()
            self._memories.fill([memory_of(t) for t in targets])
            self._filled = True
            if self._in_place:
                return self._memories, targets
        return self._memories, self._staging

    def write(self) -> None:
        """Into the tensors, once the targets have their values."""
        plain = [self._in_place and _is_plain(t) for t in self._tensors]
        staged = [i for i, found in enumerate(plain) if not found]
        if staged:
            with torch.no_grad():
                torch._foreach_copy_(  # one call for all of them
                    [self._tensors[i] for i in staged],
                    [self._staging.buffer(i) for i in staged])
        changed = [t for t, found in zip(self._tensors, plain) if found]
        if changed:
            # What torch has not seen: graphs of before must not use it.
            for tensor in changed:  # a list: torch 2.5 and later
                torch.autograd.graph.increment_version(tensor)
