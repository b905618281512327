"""What of a torch model goes over the wire: names, groups, memory."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional, Sequence, Union

import torch

from agg_server import _abi
from agg_server._operation import Memory
from agg_server._warn import warn
from agg_server.errors import ManifestError

Tensors = Mapping[str, torch.Tensor]

# What wrappers put into names: the wire has the model's own.
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_DTYPES = {torch.float32: _abi.F32, torch.bfloat16: _abi.BF16,
           torch.float16: _abi.F16}


# What travels exactly as float32, and what is rounded to it.
_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def check_dtype(what: str, name: str, tensor: torch.Tensor) -> None:
    """ManifestError: its numbers are none that a row can have. `what` it is,
    for the message."""
    if tensor.dtype in _FLOATS:
        return
    if tensor.dtype.is_complex:
        instead = "give torch.view_as_real(t), whose last dimension is 2"
    elif tensor.is_quantized:
        instead = "give t.dequantize()"
    else:
        instead = ("give t.float(), or t.double() where integers beyond 2**24 "
                   "may be rounded" if not tensor.dtype.is_floating_point else
                   "give t.float()")
    raise ManifestError(f'{what} "{name}" has the dtype {tensor.dtype}; '
                        "allowed: float32, bfloat16, float16, and float64, "
                        f"which is sent as float32; {instead}")


def _check_layout(name: str, tensor: torch.Tensor) -> None:
    if tensor.is_meta:
        raise ManifestError(f'tensor "{name}" is on the device "meta" and has '
                            "no values; allowed: tensors that have "
                            "(module.to_empty(device=..), and initialise it)")
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise ManifestError(f'tensor "{name}" has the layout {tensor.layout}'
                            f'{" (nested)" if tensor.is_nested else ""}; '
                            "allowed: dense ones (t.to_dense()); its gradient "
                            "may be sparse")
    if any(size > 1 and stride == 0
           for size, stride in zip(tensor.shape, tensor.stride())):
        raise ManifestError(f'tensor "{name}" is expanded: several of its '
                            "elements share a place, and pulls could not write "
                            "them; allowed: t.clone()")


def check_shape(what: str, name: str, tensor: torch.Tensor,
                shape: Sequence[int]) -> None:
    """ManifestError: another shape than the job's; nothing is broadcast."""
    if tensor.shape != shape:
        raise ManifestError(
            f'{what} "{name}" has the shape {tuple(tensor.shape)}; allowed: '
            f"{tuple(shape)}, which it had when the Worker was made")


class Overflows:
    """Says once by name which tensors have not the range of what they get."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def look(self, names: Iterable[str], targets: Iterable[torch.Tensor],
             sources: Iterable[torch.Tensor]) -> None:
        """targets: what `sources`, float32, have been copied into."""
        looked = [(name, target.detach(), source)
                  for name, target, source in zip(names, targets, sources)
                  if target.dtype in (torch.float16, torch.bfloat16) and
                  target.numel() and name not in self._said]
        if not looked:
            return
        # One number for each, and one look at all of them: on a device a look
        # waits for it.
        norms = torch._foreach_norm([t for _, t, _ in looked], float("inf"))
        if all(bool(torch.stack([n.float() for n in of]).isfinite().all())
               for of in _by_device(norms)):
            return
        for name, target, source in looked:
            if source.isfinite().all() and not target.isfinite().all():
                self._said.add(name)
                warn(f'"{name}" is {target.dtype}, and what came for it is '
                     f"beyond its range (the largest is "
                     f"{source.abs().max().item():.4g}): it is infinite there. "
                     "Keep it as float32")


def _by_device(tensors: Iterable[torch.Tensor]) -> list[list[torch.Tensor]]:
    found: dict[torch.device, list[torch.Tensor]] = {}
    for tensor in tensors:
        found.setdefault(tensor.device, []).append(tensor)
    return list(found.values())


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
        check_dtype("tensor", name, tensor)
        if torch.nn.parameter.is_lazy(tensor):
            raise ManifestError(f'parameter "{name}" has no size yet; run the '
                                "model once before the Worker is made")
        if hasattr(tensor, "full_tensor"):
            raise ManifestError(
                f'parameter "{name}" is a DTensor (FSDP); gather gradients to '
                "one process with full_tensor() and make its Worker of a dict")
        _check_layout(name, tensor)
    wide = [name for name, t in named.items() if t.dtype is torch.float64]
    if wide:
        others = f" and {len(wide) - 1} others" if len(wide) > 1 else ""
        warn(f'"{wide[0]}"{others} of float64: rows and parameters travel, and '
             "the server keeps them, as float32")
    return named


def groups_of(groups: Any, tensors: Tensors) -> dict[str, str]:
    """{"group": names} -> {name: "group"}. ManifestError: no such name."""
    found: dict[str, str] = {}
    for group, names in (groups or {}).items():
        if isinstance(names, str):
            raise ManifestError(f'groups: "{group}" has "{names}"; allowed: a '
                                "list of names")
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

    def shape(self, index: int) -> torch.Size:
        """Of tensor `index`, when this was made."""
        return self._shapes[index]

    def buffer(self, index: int, dtype: torch.dtype = torch.float32,
               beside: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Of tensor `index`: row-major, on the device of `beside`, or in this
        process's memory."""
        device = torch.device("cpu") if beside is None else beside.device
        key = index, dtype
        there = self._buffers.get(key)
        if there is None or there.device != device:  # the model was moved
            there = torch.zeros(self._shapes[index], dtype=dtype,
                                device=device)
            self._buffers[key] = there
        return there


def memory_of(tensor: torch.Tensor) -> Memory:
    """For the client. The tensor is in this process's memory, or one that
    Cuda.takes; contiguous."""
    # An empty tensor's pointer must not be null: that means "not there".
    return tensor.data_ptr() or 1, tensor.numel(), _DTYPES[tensor.dtype]
