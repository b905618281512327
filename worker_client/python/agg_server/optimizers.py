"""torch.optim.Optimizer facades: for trainers that call optimizer.step()."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Optional

import torch

from agg_server.errors import ManifestError
from agg_server.outcome import Outcome
from agg_server.worker import Worker

Closure = Optional[Callable[[], Any]]


def _loss_scale(optimizer: Any) -> float:
    """GradScaler's, which sets it for the time of the step; None: the user
    has unscaled the gradients."""
    scale = getattr(optimizer, "grad_scale", None)
    return 1.0 if scale is None else float(scale)


def _run(closure: Closure) -> Any:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


class _Facade(torch.optim.Optimizer):
    """One round for each step().

    GradScaler must call step() on every rank, also on one with an inf: its
    row is left out by the server, and the others do not wait for it.
    """

    _step_supports_amp_scaling = True
    worker: Worker

    def describe(self, loss: Any = None, examples: int = 1,
                 accumulation: int = 1,
                 norm_squared_sum: Optional[float] = None) -> None:
        """What the next step() says of its row: as Worker.step's arguments."""
        self._info: dict[str, Any] = {
            "loss": loss, "examples": examples, "accumulation": accumulation,
            "norm_squared_sum": norm_squared_sum}

    def _take_info(self) -> dict[str, Any]:
        info: dict[str, Any] = getattr(self, "_info", {})
        self._info = {}
        return info

    @property
    def last(self) -> Optional[Outcome]:
        """Of the last round."""
        return self.worker.last


class ServerOptimizer(_Facade):
    """The server's optimizer, for HF Trainer, Lightning, Accelerate.

    Learning rate, decay and schedule are the server's: what a scheduler does
    to this one's `lr` has no effect (a warning says so).
    """

    def __init__(self, worker: Worker) -> None:
        """worker: of mode "server"."""
        if worker.mode != "server":
            raise ManifestError(f'mode is "{worker.mode}"; allowed for '
                                'ServerOptimizer: "server"')
        self.worker = worker
        super().__init__(list(worker.tensors.values()), {"lr": 1.0})
        self._warned = False

    def step(self, closure: Closure = None) -> Any:
        """A round; the closure's loss, if there is one."""
        loss = _run(closure)
        if not self._warned and any(g["lr"] != 1.0 for g in self.param_groups):
            warnings.warn("the learning rate is the server's: changes of this "
                          "optimizer's lr have no effect", stacklevel=3)
            self._warned = True
        info = self._take_info()
        if info.get("loss") is None and loss is not None:
            info["loss"] = loss
        self.worker.step(loss_scale=_loss_scale(self), **info)
        return loss


class Combined(_Facade):
    """An optimizer of yours on combined gradients.

        opt = agg.Combined(torch.optim.AdamW(model.parameters()), worker)

    Schedulers, GradScaler and zero_grad work on it as on the inner one. A
    round that the server skips steps nobody, so that replicas stay the same.
    """

    def __init__(self, inner: torch.optim.Optimizer, worker: Worker) -> None:
        """worker: of mode "combine", with the inner optimizer's parameters."""
        if worker.mode != "combine":
            raise ManifestError(f'mode is "{worker.mode}"; allowed for '
                                'Combined: "combine"')
        known = {id(t) for t in worker.tensors.values()}
        if any(p.requires_grad and id(p) not in known
               for g in inner.param_groups for p in g["params"]):
            raise ManifestError("the optimizer has a parameter that the "
                                "worker's model has not")
        self.worker, self.inner = worker, inner
        super().__init__(inner.param_groups, inner.defaults)
        self._link()

    def step(self, closure: Closure = None) -> Any:
        """A round, and the inner step if it was applied."""
        loss = _run(closure)
        info = self._take_info()
        if info.get("loss") is None and loss is not None:
            info["loss"] = loss
        outcome = self.worker.combine(loss_scale=_loss_scale(self), **info)
        if outcome.applied:
            self.inner.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's."""
        return self.inner.state_dict()

    def load_state_dict(self, state_dict: Any) -> None:
        """The inner optimizer's."""
        self.inner.load_state_dict(state_dict)
        self._link()

    def _link(self) -> None:
        self.param_groups = self.inner.param_groups
        self.state = self.inner.state


class TauSchedule:
    """A learning rate by scale-invariant iterations: AdaScale's clock.

        sched = agg.TauSchedule(opt, lambda tau: 0.1 * 0.5 ** (tau // 1000))
        opt.step(); sched.step()

    Each group's rate is fn(tau) * outcome.learning_rate, which is the step
    scale's factor in a job whose optimizer is "none".
    """

    def __init__(self, optimizer: Combined, fn: Callable[[float], float]
                 ) -> None:
        """fn: the rate of one worker after tau iterations."""
        self._optimizer, self._fn = optimizer, fn
        self._set(0.0, 1.0)

    def step(self, outcome: Optional[Outcome] = None) -> None:
        """After each round; outcome: default the optimizer's last one."""
        heard = outcome or self._optimizer.last
        if heard is not None:
            self._set(heard.tau, heard.learning_rate)

    def _set(self, tau: float, factor: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = self._fn(tau) * factor
