"""Tensors in the memory of CUDA devices, which the client takes as they are."""

from __future__ import annotations

from typing import Any, Iterable

import torch

from agg_server import _abi


class Cuda:
    """Of one worker."""

    def __init__(self, allowed: bool = True) -> None:
        """allowed: False: none is taken."""
        self._allowed = allowed
        self._found = False

    def takes(self, tensor: Any) -> bool:
        """Whether it is on a device, and the client reads and writes it there:
        False where it has no CUDA driver (ROCm)."""
        if not self._allowed or not tensor.is_cuda:
            return False
        # The driver is loaded by now: there is a tensor of it.
        if not self._found:
            self._found = bool(_abi.load().agg_has_cuda())
        return self._found

    def hand_over(self, tensors: Iterable[Any]) -> None:
        """Before a call with their memory: the client waits for the default
        stream of a device alone, so that waits for what torch was given. (When
        the call returns, all is done.)"""
        for device in {t.device for t in tensors if t.is_cuda}:
            current = torch.cuda.current_stream(device)
            default = torch.cuda.default_stream(device)
            if current != default:
                default.wait_stream(current)
