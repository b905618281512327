"""What a worker says of its row."""

from __future__ import annotations

from typing import Any, Optional, Protocol, Union

from agg_server import _abi
from agg_server.errors import ManifestError


class _OneNumber(Protocol):
    """A tensor or an array of one number."""

    def item(self) -> Any:
        """The number."""


Loss = Union[float, _OneNumber, None]


class Info:
    """What goes with a row; Worker.step has what the arguments mean."""

    def __init__(self, loss: Loss = None, examples: int = 1,
                 accumulation: int = 1, loss_scale: float = 1.0,
                 norm_squared_sum: Optional[float] = None) -> None:
        for name, value in (("examples", examples),
                            ("accumulation", accumulation)):
            if int(value) != value or value < 1:
                raise ManifestError(
                    f"{name} is {value}; allowed: 1 or more"
                    + ("; a worker without a batch calls sit_out()"
                       if name == "examples" and value == 0 else ""))
        if not loss_scale > 0:
            raise ManifestError(f"loss_scale is {loss_scale}; allowed: > 0")
        # A tensor of one element is a number, too.
        try:
            self.loss: Optional[float] = (
                None if loss is None else
                float(loss.item() if hasattr(loss, "item") else loss))
        except (RuntimeError, TypeError, ValueError) as error:
            raise ManifestError(f"loss is {loss!r}; allowed: a number, or a "
                                "tensor of one") from error
        self.examples, self.accumulation = int(examples), int(accumulation)
        self.loss_scale = float(loss_scale)
        self.norm_squared_sum = norm_squared_sum
        # Of the parameters that the row was computed on; 0: not said.
        self.parameters_digest = 0


def push_info_of(info: Info) -> Any:
    """As the C ABI has it."""
    c = _abi.PushInfo(examples=info.examples, accumulation=info.accumulation,
                      loss_scale=info.loss_scale,
                      parameters_digest=info.parameters_digest)
    if info.loss is not None:
        c.has_loss, c.loss = 1, info.loss
    if info.norm_squared_sum is not None:
        c.has_norm_sum = 1
        c.micro_norm_squared_sum = info.norm_squared_sum
    return c
