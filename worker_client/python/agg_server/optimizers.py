"""torch.optim.Optimizer facades: for trainers that call optimizer.step()."""

from __future__ import annotations

import collections
import contextlib
import inspect
from typing import Any, Callable, Iterator, Optional

import torch

from agg_server._shown import warn
from agg_server._signals import Deferred
from agg_server._tensors import check_groups
from agg_server._untraced import untraced, untraced_calls
from agg_server.errors import Error, ManifestError
from agg_server.outcome import Info, Loss, Outcome
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


def _check_inner(inner: Any) -> None:
    kind = type(inner).__name__
    if not hasattr(inner, "param_groups") or isinstance(inner, _Facade):
        raise ManifestError(f"inner is {inner!r}; allowed for Combined: an "
                            "optimizer of torch's kind, on this process alone")
    if isinstance(inner, torch.optim.SparseAdam):
        raise ManifestError(
            f"inner is {kind}, which takes sparse gradients alone, and "
            "combined gradients are dense; allowed for Combined: "
            "torch.optim.Adam or AdamW, say (it steps every row of an "
            "embedding), or LocalSteps, where this optimizer steps locally")
    step = inspect.signature(inner.step).parameters.get("closure")
    needs = step is not None and step.default is inspect.Parameter.empty
    if needs or isinstance(inner, torch.optim.LBFGS):
        raise ManifestError(
            f"inner is {kind}, which evaluates a closure several times in one "
            "step, and a round has one gradient; allowed for Combined: "
            "optimizers that step on the gradients as they are (SGD, AdamW, "
            "..), or LocalSteps, where this optimizer steps locally")


@untraced_calls
class _Facade(torch.optim.Optimizer):
    """One round for each step().

    GradScaler must call step() on every rank, also on one with an inf: its
    row is left out by the server, and the others do not wait for it.
    """

    _step_supports_amp_scaling = True
    worker: Worker

    def describe(self, loss: Loss = None, examples: int = 1,
                 accumulation: int = 1,
                 norm_squared_sum: Optional[float] = None) -> None:
        """What the next step() says of its row: as Worker.step's arguments."""
        self._info: dict[str, Any] = {
            "loss": loss, "examples": examples, "accumulation": accumulation,
            "norm_squared_sum": norm_squared_sum}

    def _take_info(self, loss: Loss) -> dict[str, Any]:
        """What was described; `loss`, the closure's, where no other one was."""
        info = dict(getattr(self, "_info", {}))
        if info.get("loss") is None and loss is not None:
            info["loss"] = loss
        return info

    @contextlib.contextmanager
    def _one_step(self) -> Iterator[None]:
        """A step that an exception has ended may be called again: then what was
        described still holds, and what GradScaler has set must be gone, since it
        multiplies its scale by the one that it finds."""
        try:
            yield
        except BaseException:
            for name in ("grad_scale", "found_inf"):
                self.__dict__.pop(name, None)
            raise
        self._info = {}

    def sit_out(self) -> Outcome:
        """A round without a row of this worker's: Worker.sit_out."""
        return self.worker.sit_out()

    @property
    def last(self) -> Optional[Outcome]:
        """Of the last round."""
        return self.worker.last


# What state_dict() has of a ServerOptimizer.
_MARK = "agg_server"


class _NoState(collections.defaultdict[Any, Any]):
    """Of an optimizer whose state is elsewhere: it has no momentum to read,
    and would lose what is written."""

    _TEXT = ("ServerOptimizer has no state: momentum and the like are the "
             "server's; its checkpoints have them (agg.read_checkpoint)")

    def __missing__(self, key: Any) -> Any:
        raise ManifestError(self._TEXT)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise ManifestError(self._TEXT)


@untraced_calls
class ServerOptimizer(_Facade):
    """The server's optimizer, for HF Trainer, Lightning, Accelerate.

    Learning rate, decay and schedule are the server's: what a scheduler does
    to this one's `lr` has no effect (a warning says so). So is its state,
    momentum and the like: state_dict() names the version that it belongs to,
    and load_state_dict() refuses a job that is not as far.
    """

    def __init__(self, worker: Worker) -> None:
        """worker: of mode "server"."""
        if worker.mode != "server":
            raise ManifestError(f'mode is "{worker.mode}"; allowed for '
                                'ServerOptimizer: "server"')
        self.worker = worker
        self._job = worker.job.name
        self._closed = False
        super().__init__(list(worker.tensors.values()), {"lr": 1.0})
        self._closed = True
        self.state = _NoState()
        self._warned: set[str] = set()

    def step(self, closure: Closure = None) -> Any:
        """A round; the closure's loss, if there is one."""
        with self._one_step():
            return self._step(closure)

    def _step(self, closure: Closure) -> Any:
        loss = _run(closure)
        self._look_at_groups()
        self.worker.step(loss_scale=_loss_scale(self), **self._take_info(loss))
        return loss

    def state_dict(self) -> dict[str, Any]:
        """No state: that is in the server's checkpoints. The job's name and
        the version that this process has, for load_state_dict()."""
        if self.worker.last is not None:
            self._warn_once(
                "a checkpoint of this process has no optimizer state: momentum "
                "and the like are the server's. Let it write checkpoints of "
                "its own (checkpoint { path } in the job's configuration; "
                "`aggctl checkpoint` writes one now)")
        state: dict[str, Any] = super().state_dict()
        state["state"] = {}
        state[_MARK] = {"job": self._job, "version": self._version()}
        return state

    def _version(self) -> int:
        try:
            return self.worker.version
        except Error:  # closed: what is saved is what it ended with
            last = self.worker.last
            return 0 if last is None else last.version

    def load_state_dict(self, state_dict: Any) -> None:
        """Restores nothing: checks that the server has the state already.

        ManifestError: the dict is another optimizer's, or another job's, or the
        job is not as far as the dict: the state is lost but for the server's
        checkpoints. A job that is further warns.
        """
        mark = state_dict.get(_MARK)
        if mark is None:
            raise ManifestError(
                "this is the state_dict of another optimizer "
                f"({len(state_dict.get('state', {}))} parameters have state): "
                "ServerOptimizer can restore nothing of it, since the "
                "optimizer is the server's. Begin without it, or use mode "
                '"combine" with agg.Combined(optimizer, worker)')
        name, version = self.worker.job.name, self.worker.version
        if mark["job"] != name or mark["version"] > version:
            raise ManifestError(
                f'this state_dict is of version {mark["version"]} of job '
                f'"{mark["job"]}", and job "{name}" is at version {version}: '
                "the optimizer's state is not in the dict, and the server does "
                "not have it. Start the server with its checkpoint of that "
                "version (checkpoint { path } in its configuration), or begin "
                "without loading this optimizer: momentum starts at zero then")
        if mark["version"] < version:
            warn(
                f'this state_dict is of version {mark["version"]}, and the '
                f"job is at version {version}: the job goes on from there, "
                "with its own parameters and optimizer state")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """ManifestError: parameters and groups are the job's, and fixed."""
        if not self._closed:
            super().add_param_group(param_group)
            return
        given = param_group.get("params", [])
        shapes = [tuple(p.shape) for p in
                  ([given] if isinstance(given, torch.Tensor) else given)
                  if isinstance(p, torch.Tensor)]
        raise ManifestError(
            f"add_param_group of tensors of the shapes {shapes}: the job's "
            "parameters are those that required gradients when the Worker was "
            "made, and groups are named there: Worker(model, groups=...)")

    def _look_at_groups(self) -> None:
        for group in self.param_groups:
            if group["lr"] != 1.0:
                self._warn_once(
                    "the learning rate is the server's: changes of this "
                    "optimizer's lr have no effect")
            others = sorted(group.keys() - {"params", "param_names", "lr",
                                           "initial_lr"})
            if others:
                self._warn_once(
                    f"{', '.join(others)} of a parameter group: the optimizer "
                    "is the server's, and these have no effect")

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warn(text)


@untraced_calls
class Combined(_Facade):
    """An optimizer of yours on combined gradients.

        opt = agg.Combined(torch.optim.AdamW(model.parameters()), worker)

    Schedulers, GradScaler and zero_grad work on it as on the inner one. A
    round that the server skips steps nobody, so that replicas stay the same.
    """

    def __init__(self, inner: torch.optim.Optimizer, worker: Worker) -> None:
        """worker: of mode "combine", with the inner optimizer's parameters.

        ManifestError, before a round is spent: the inner optimizer cannot step
        on combined gradients, which are dense and there once for each step.
        """
        _check_inner(inner)
        if worker.mode != "combine":
            raise ManifestError(f'mode is "{worker.mode}"; allowed for '
                                'Combined: "combine"')
        self.worker, self.inner = worker, inner
        self._known = {id(t): name for name, t in worker.tensors.items()}
        check_groups(inner.param_groups, self._known, worker.name_of)
        super().__init__(inner.param_groups, inner.defaults)
        self._link()
        # Both, whichever of the two loads: a scheduler changes this one's.
        self._hook("register_load_state_dict_post_hook", self._after_load)
        self._applies = False  # the inner step is this one's own
        self._stepped_at = worker.version
        self._warned_alone = False
        self._hook("register_step_pre_hook", self._before_inner)

    def _hook(self, register: str, hook: Callable[..., None]) -> None:
        """torch has them from 2.2 on; what is no Optimizer of its may not."""
        call = getattr(self.inner, register, None)
        if call is not None:
            call(hook)

    def step(self, closure: Closure = None) -> Any:
        """A round, and the inner step if it was applied.

        After a call that Ctrl-C, or another exception, has ended, this one
        waits for that round, and steps with what it came to: replicas make the
        same steps. The gradients of this call are dropped then.
        """
        with self._one_step():
            return self._step(closure)

    def _step(self, closure: Closure) -> Any:
        loss = _run(closure)
        if self.param_groups is not self.inner.param_groups:
            self._link()
        check_groups(self.param_groups, self._known, self.worker.name_of, True)
        self._apply(self.worker.combine_unheard(
            Info(loss_scale=_loss_scale(self), **self._take_info(loss))))
        return loss

    def sit_out(self) -> Outcome:
        """A round without a row of this worker's (Worker.sit_out), and the
        inner step if it was applied."""
        return self._apply(self.worker.sit_out_unheard())

    def _apply(self, outcome: Outcome) -> Outcome:
        # Half of a step cannot be made up for.
        with Deferred():
            if outcome.applied:
                self._applies = True
                try:
                    self.inner.step()
                finally:
                    self._applies = False
            self.worker.combine_heard()
        return outcome

    @untraced  # a hook
    def _before_inner(self, *_: Any) -> None:
        version = self.worker.version
        if not self._applies and version == self._stepped_at and \
                not self._warned_alone:
            self._warned_alone = True
            warn("the inner optimizer makes a step with gradients that were "
                 "not combined: no round was made since its last one. Call "
                 "Combined.step(), or Worker.combine() before it; else this "
                 "process trains alone")
        self._stepped_at = version

    @untraced  # a hook
    def _after_load(self, *_: Any) -> None:
        self._link()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """ManifestError: a parameter that learns, and was not the Worker's when
        that was made."""
        params = param_group["params"]
        if isinstance(params, torch.Tensor):
            params = [params]
        elif not isinstance(params, (list, tuple, set)):
            params = list(params)  # a generator's come once
        param_group["params"] = params
        check_groups([{"params": [p[1] if isinstance(p, tuple) else p
                                  for p in params]}],
                     self._known, self.worker.name_of)
        super().add_param_group(param_group)

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


@untraced_calls
class TauSchedule:
    """A learning rate by scale-invariant iterations: AdaScale's clock.

        sched = agg.TauSchedule(opt, lambda tau: 0.1 * 0.5 ** (tau // 1000))
        opt.step(); sched.step()

    Each group's rate is fn(tau) * outcome.learning_rate, which is the step
    scale's factor in a job whose optimizer is "none".
    """

    def __init__(self, optimizer: Combined, fn: Callable[[float], float]
                 ) -> None:
        """fn: the rate of one worker after tau iterations. Begins with the tau
        that the job has: in a worker that joins later, too."""
        self._optimizer, self._fn = optimizer, fn
        self._set(0.0, 1.0)
        self.step()

    def step(self, outcome: Optional[Outcome] = None) -> None:
        """After each round; outcome: default the optimizer's last one."""
        heard = outcome or self._optimizer.last
        if heard is not None:
            self._set(heard.tau, heard.learning_rate)

    def _set(self, tau: float, factor: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = self._fn(tau) * factor
