"""What of a torch model goes over the wire: names, groups, memory."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional, Sequence, Union

import torch

from agg_server import _abi
from agg_server._operation import Memory
from agg_server._shown import named, warn
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


class Census:
    """Whether a model still has the tensors of the worker that was made of it.

    A parameter that is replaced, or that learns only later, is none of the
    worker's: what it learned would be this process's alone.
    """

    def __init__(self, model: torch.nn.Module,
                 tensors: Mapping[str, torch.Tensor]) -> None:
        """tensors: the worker's, by name."""
        self._model = model
        self._tensors = dict(tensors)
        self._known = {id(t) for t in self._tensors.values()}
        self._places: list[tuple[dict[str, Any], str, Any]] = []
        self._sizes: list[tuple[dict[str, Any], int]] = []
        self._outside: list[torch.Tensor] = []
        self._look()

    def parameters(self) -> list[torch.Tensor]:
        """All of the model's, those that do not learn included, in an order
        that all workers have."""
        return list(self._model.parameters())

    def name_of(self, tensor: torch.Tensor) -> str:
        """In the model; "": it is not there."""
        for name, parameter in self._model.named_parameters():
            if parameter is tensor:
                return canonical_name(name)
        return ""

    def check(self) -> None:
        """ManifestError: one of the worker's tensors is not in the model any
        more, by name."""
        # Most calls find nothing new, and lists cost less than loops.
        if False not in [where.get(key) is what
                         for where, key, what in self._places] and \
                False not in [len(where) == size for where, size in self._sizes]:
            return
        found = {id(p) for p in self._model.parameters()}
        lost = [name for name, t in self._tensors.items()
                if id(t) not in found]
        if lost:
            raise ManifestError(
                f"parameter {named(lost)} of the model is another tensor than "
                "when the Worker was made, which would go on with the old one; "
                "allowed: the same tensors. Load without assign=True, tie "
                "weights and replace layers before Worker(...), or make a new "
                "Worker")
        self._look()

    def check_gradients(self) -> None:
        """ManifestError: one that is not the worker's has a gradient, by name.
        """
        for parameter in self._outside:
            if parameter.requires_grad and parameter.grad is not None:
                raise ManifestError(outside_complaint(
                    f'parameter "{self.name_of(parameter)}"'))

    def _look(self) -> None:
        self._places, self._sizes = [], []
        for module in self._model.modules():
            # Their own dictionaries: attributes may be a wrapper's.
            for kind in ("_parameters", "_modules"):
                where = vars(module).get(kind)
                if not isinstance(where, dict):
                    continue  # of torch.jit, whose parameters stay
                self._sizes.append((where, len(where)))
                self._places.extend((where, key, what)
                                    for key, what in where.items())
        self._outside = [p for p in self._model.parameters()
                         if id(p) not in self._known]


def outside_complaint(what: str) -> str:
    """For what has a gradient of which no round would hear."""
    return (f"{what} has a gradient and is none of the Worker's tensors: it did "
            "not require one, or was not there, when the Worker was made. "
            "Allowed: let all that will ever learn require gradients when the "
            "Worker is made, with find_unused=True, and freeze it after that; "
            "or make a new Worker")


def check_groups(groups: Sequence[Mapping[str, Any]],
                 known: Mapping[int, str], names: Any,
                 learns: bool = False) -> None:
    """ManifestError: a parameter of an optimizer's groups that learns is none
    of `known`, by id. names: of a tensor, "" if it has none. learns: those
    without a gradient do not count."""
    for number, group in enumerate(groups):
        for place, parameter in enumerate(group["params"]):
            if id(parameter) in known or not parameter.requires_grad or \
                    (learns and parameter.grad is None):
                continue
            name = names(parameter)
            what = (f'parameter "{name}"' if name else
                    f"parameter {place} of group {number}, of shape "
                    f"{tuple(parameter.shape)},")
            raise ManifestError(
                f"{what} of the optimizer is none of the Worker's tensors: it "
                "would be stepped with this process's gradient alone. Allowed: "
                "parameters that required gradients, and were in the model, "
                "when the Worker was made")


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


class Cuda:
    """Which tensors in the memory of CUDA devices the client of one worker takes
    as they are."""

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


def memory_of(tensor: torch.Tensor) -> Memory:
    """For the client. The tensor is in this process's memory, or one that
    Cuda.takes; contiguous."""
    # An empty tensor's pointer must not be null: that means "not there".
    return tensor.data_ptr() or 1, tensor.numel(), _DTYPES[tensor.dtype]
