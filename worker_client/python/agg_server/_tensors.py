"""What of a torch model goes over the wire: names, groups, memory."""

from __future__ import annotations

from typing import Any, Mapping, Sequence, Union

import torch

from agg_server import _abi
from agg_server._operation import Memory
from agg_server.errors import ManifestError

Tensors = Mapping[str, torch.Tensor]

# What wrappers put into names: the wire has the model's own.
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_DTYPES = {torch.float32: _abi.F32, torch.bfloat16: _abi.BF16,
           torch.float16: _abi.F16}


def canonical_name(name: str) -> str:
    """Without what DDP, FSDP and torch.compile put in."""
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    while len(parts) > 1 and parts[0] == "module":
        parts = parts[1:]
    return ".".join(parts)


def named_tensors(model: Union[torch.nn.Module, Tensors]
                  ) -> dict[str, torch.Tensor]:
    """What a worker exchanges: parameters that learn, tied ones once."""
    named: dict[str, torch.Tensor] = {}
    if isinstance(model, torch.nn.Module):
        for own_name, parameter in model.named_parameters():
            name = canonical_name(own_name)
            if name in named:
                raise ManifestError(f'parameter "{own_name}" would be '
                                    f'"{name}", which another one is')
            if parameter.requires_grad:
                named[name] = parameter
    elif isinstance(model, Mapping) and all(
            isinstance(tensor, torch.Tensor) for tensor in model.values()):
        named.update(model)
    else:
        raise ManifestError(f"model is {model!r}; allowed: a torch.nn.Module "
                            "(an instance), or a dict of tensors by name")
    if not named:
        raise ManifestError("the model has no parameter that requires a "
                            "gradient")
    for name, tensor in named.items():
        if torch.nn.parameter.is_lazy(tensor):
            raise ManifestError(f'parameter "{name}" has no size yet; run the '
                                "model once before the Worker is made")
        if hasattr(tensor, "full_tensor"):
            raise ManifestError(
                f'parameter "{name}" is a DTensor (FSDP); gather gradients to '
                "one process with full_tensor() and make its Worker of a dict")
    return named


def groups_of(groups: Any, tensors: Tensors) -> dict[str, str]:
    """{"group": names} -> {name: "group"}. ManifestError: no such name."""
    found: dict[str, str] = {}
    for group, names in (groups or {}).items():
        for name in names:
            if canonical_name(name) not in tensors:
                raise ManifestError(f'groups: "{group}" has "{name}", which '
                                    "is no parameter that learns")
            found[canonical_name(name)] = group
    return found


class Staging:
    """Memory of a row or of what is pulled, beside the model's own."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._shapes = [t.shape for t in tensors]
        self._buffers: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def buffer(self, index: int, dtype: torch.dtype = torch.float32
               ) -> torch.Tensor:
        """Of tensor `index`: row-major, in this process's memory."""
        key = index, dtype
        if key not in self._buffers:
            self._buffers[key] = torch.zeros(self._shapes[index],
                                             dtype=dtype, device="cpu")
        return self._buffers[key]


def memory_of(tensor: torch.Tensor) -> Memory:
    """For the client. The tensor is in this process's memory, or one that
    Cuda.takes; contiguous."""
    # An empty tensor's pointer must not be null: that means "not there".
    return tensor.data_ptr() or 1, tensor.numel(), _DTYPES[tensor.dtype]
