"""Optimizers that each rank has for itself, where it pushes its own change.

The formulas and the names of fields are the server's (kernels/optimizer_table.h,
server/combine/step_scale.h). An array's first axis is the rank's: all ranks step
at once, in float32.
"""

from __future__ import annotations

import bisect
import math
from typing import Any, Mapping

import numpy as np
import torch

from tests.papers.description import RunError
from tests.papers.tasks import Rows

_FIELDS = {"sgd": {"momentum", "nesterov", "weight_decay"},
           "adam": {"beta1", "beta2", "epsilon"},
           "lamb": {"beta1", "beta2", "epsilon", "weight_decay"}}
_SCHEDULE = {"schedule", "rate", "warmup_steps", "warmup_start_factor",
             "boundaries", "gamma", "decay_steps", "final_factor", "power"}


def learning_rate(fields: Mapping[str, Any], t: float) -> float:
    """rate * warm(t) * decay(t) of server/combine/README.md 6, t in rounds."""
    unknown = set(fields) - _SCHEDULE
    if unknown:
        raise RunError(f"learning_rate has {sorted(unknown)}; allowed: "
                       + ", ".join(sorted(_SCHEDULE)))
    warmup = fields.get("warmup_steps", 0)
    start = fields.get("warmup_start_factor", 0)
    warm = 1.0 if t >= warmup else start + (1 - start) * t / warmup
    since = max(t - warmup, 0)
    kind = fields.get("schedule", "constant")
    last = fields.get("final_factor", 0)
    if kind == "constant":
        decay = 1.0
    elif kind == "multistep":
        decay = fields.get("gamma", 0.1) ** bisect.bisect_right(
            sorted(fields.get("boundaries", [])), t)
    elif kind == "polynomial":
        left = 1 - min(since / fields["decay_steps"], 1)
        decay = last + (1 - last) * left ** fields.get("power", 1)
    elif kind == "cosine":
        done = min(since / fields["decay_steps"], 1)
        decay = last + (1 - last) * 0.5 * (1 + math.cos(math.pi * done))
    else:
        raise RunError(f'learning_rate.schedule is "{kind}"; allowed with '
                       'push "delta": constant, multistep, polynomial, cosine')
    return float(fields["rate"] * warm * decay)


class LocalOptimizers:
    """The ranks' optimizers of one process. Not thread-safe."""

    def __init__(self, optimizer: Mapping[str, Any],
                 schedule: Mapping[str, Any]) -> None:
        """Raises RunError: a kind or a field that is not known here."""
        fields = dict(optimizer)
        self._kind = fields.pop("kind", "sgd")
        if self._kind not in _FIELDS:
            raise RunError(f'optimizer.kind is "{self._kind}"; allowed with '
                           'push "delta": ' + ", ".join(_FIELDS))
        unknown = set(fields) - _FIELDS[self._kind]
        if unknown:
            raise RunError(f"optimizer has {sorted(unknown)}; allowed for "
                           f"{self._kind}: "
                           + ", ".join(sorted(_FIELDS[self._kind])))
        self._fields, self._schedule = fields, schedule
        learning_rate(schedule, 0)
        self._states: dict[str, tuple[torch.Tensor, ...]] = {}
        self._steps = 0

    def step(self, parameters: Mapping[str, np.ndarray], rows: Rows) -> Rows:
        """Turns each rank's gradients, at the parameters that all share, into
        the change that its own optimizer makes. In place; the same rows."""
        rate = learning_rate(self._schedule, self._steps)
        self._steps += 1
        for name, array in rows.items():
            row = torch.from_numpy(array)
            shared = torch.from_numpy(parameters[name])
            if name not in self._states:
                count = 1 if self._kind == "sgd" else 2
                self._states[name] = tuple(torch.zeros_like(row)
                                           for _ in range(count))
            if self._kind == "sgd":
                self._sgd(name, shared, row, rate)
            else:
                self._adam(name, shared, row, rate)
        return rows

    def _sgd(self, name: str, shared: torch.Tensor, row: torch.Tensor,
             rate: float) -> None:
        fields, (buffer,) = self._fields, self._states[name]
        if fields.get("weight_decay"):
            row.add_(shared, alpha=fields["weight_decay"])
        momentum = fields.get("momentum", 0)
        buffer.mul_(momentum).add_(row)
        if fields.get("nesterov"):
            row.add_(buffer, alpha=momentum).mul_(-rate)
        else:
            torch.mul(buffer, -rate, out=row)

    def _adam(self, name: str, shared: torch.Tensor, row: torch.Tensor,
              rate: float) -> None:
        """Adam; with LAMB's decay and trust ratio (its phi the identity)."""
        fields, (first, second) = self._fields, self._states[name]
        beta1, beta2 = fields.get("beta1", 0.9), fields.get("beta2", 0.999)
        first.mul_(beta1).add_(row, alpha=1 - beta1)
        second.mul_(beta2).addcmul_(row, row, value=1 - beta2)
        torch.div(second, 1 - beta2 ** self._steps, out=row)
        row.sqrt_().add_(fields.get("epsilon", 1e-8))
        torch.div(first, row, out=row)
        row.div_(1 - beta1 ** self._steps)
        if self._kind == "adam":
            row.mul_(-rate)
            return
        if fields.get("weight_decay"):
            row.add_(shared, alpha=fields["weight_decay"])
        flat = row.view(len(row), -1)
        norms = flat.double().norm(dim=1)
        weight = float(shared.double().norm())
        # 1 where a norm is 0, as LAMB's authors have it.
        trust = torch.where((norms > 0) & torch.tensor(weight > 0),
                            weight / norms, 1.0)
        flat.mul_((-rate * trust).float()[:, None])
