"""Many local steps, then one round of what they have changed."""

from __future__ import annotations

import logging
import types
from typing import Any, Optional, Type

import torch

from agg_server._replica import Replica
from agg_server._shown import warn
from agg_server._signals import Deferred
from agg_server._tensors import check_groups
from agg_server._untraced import untraced, untraced_calls
from agg_server.errors import ManifestError, NotNow
from agg_server.outcome import Info, Loss, Outcome
from agg_server.worker import Worker

_log = logging.getLogger("agg_server")


@untraced_calls
class LocalSteps:
    """Every `every` steps of `inner`: pushes p - start, pulls p.

        inner = torch.optim.AdamW(model.parameters(), lr=4e-4)
        with agg.LocalSteps(worker, inner, every=100):
            for x, y in loader:
                inner.zero_grad(); loss_fn(model(x), y).backward()
                inner.step()

    The job's optimizer is "add": with rate 1 the combined change is added
    (local SGD, Adasum of changes), with rate 0.7 and Nesterov momentum 0.9 it
    is DiLoCo. The inner optimizer's state stays local.
    """

    def __init__(self, worker: Worker, inner: torch.optim.Optimizer,
                 every: int) -> None:
        """worker: of mode "server"."""
        if worker.mode != "server" or worker.job.optimizer != "add":
            raise ManifestError(
                f'the job\'s optimizer is "{worker.job.optimizer}"; allowed '
                'for LocalSteps: "add", with mode "server"')
        if every < 1:
            raise ManifestError(f"every is {every}; allowed: 1 or more")
        self.worker, self.every = worker, every
        self._inner = inner
        self._steps = 0
        self._hooks: list[Any] = []
        self._let_go: Any = None  # of the worker's pulls
        self._start: dict[str, torch.Tensor] = {}
        # The start in the model's dtypes, and what the server compares of it.
        self._anchor: dict[str, torch.Tensor] = {}
        self._replica: Optional[Replica] = None
        # What an exchange has pushed whose outcome an exception has kept from
        # it, and after how many steps.
        self._sent: dict[str, torch.Tensor] = {}
        self._sent_steps = 0
        # As torch counts writes, behind the last one of ours.
        self._written: list[int] = []
        self._warned = False
        self._known = {id(t): name for name, t in worker.tensors.items()}
        check_groups(inner.param_groups, self._known, worker.name_of)

    @property
    def last(self) -> Optional[Outcome]:
        """Of the last round."""
        return self.worker.last

    def exchange(self, examples: int = 1, loss: Loss = None) -> Outcome:
        """A round now, whatever the number of steps since the last one.

        After an exchange that Ctrl-C has ended, this one waits for it first, and
        what changed up to then counts once.
        """
        check_groups(self._inner.param_groups, self._known, self.worker.name_of)
        self._take_lost()
        self._look_for_writes()
        info = Info(loss=loss, examples=examples)
        with torch.no_grad():
            info.parameters_digest = self._digest()
            self._sent, self._sent_steps = self._changes(), self._steps
            outcome, pulled = self.worker.exchange_unheard(self._sent, info,
                                                           self)
            self._go_on_from(pulled, {})
        return outcome

    def _digest(self) -> int:
        # As the model has them: who has joined later has not seen more digits.
        for name in self._start:
            if self._anchor[name] is not self._start[name]:
                self._anchor[name].copy_(self._start[name])
        assert self._replica is not None
        return self._replica.digest(self.worker.version)

    def _changes(self) -> dict[str, torch.Tensor]:
        return {name: t.detach().float().cpu() - self._start[name]
                for name, t in self.worker.tensors.items()}

    def _take_lost(self) -> bool:
        """Whether there was a round that an exception has left: then what it
        came to is the start, and the steps since go on from there."""
        lost = self.worker.exchange_lost(self)
        if lost is None or not self._sent:
            return False
        with torch.no_grad():
            changes = self._changes()
            self._go_on_from(lost[1], {name: changes[name] - sent
                                       for name, sent in self._sent.items()})
        return True

    def _go_on_from(self, pulled: dict[str, torch.Tensor],
                    since: dict[str, torch.Tensor]) -> None:
        """since: changes that no round has had."""
        # Half of it would be another change.
        with Deferred():
            for name, tensor in self.worker.tensors.items():
                start = self._start[name]
                start.copy_(pulled[name])
                tensor.copy_(start + since[name] if name in since else start)
            self._steps -= self._sent_steps
            self._sent = {}
            self._note_writes()
            self.worker.exchange_heard()

    def _after_pull(self, pulled: dict[str, torch.Tensor]) -> None:
        """The worker has pulled a version over the parameters: what changed
        before is in it, or was given up."""
        with torch.no_grad():
            for name, start in self._start.items():
                start.copy_(pulled[name])
        self._steps, self._sent = 0, {}
        self._note_writes()

    def _note_writes(self) -> None:
        self._written = [t._version for t in self.worker.tensors.values()]

    def _look_for_writes(self) -> None:
        """What the inner optimizer has not written is pushed as if it had."""
        now = [t._version for t in self.worker.tensors.values()]
        if now == self._written or self._warned:
            return
        self._warned = True
        name = next(name for name, a, b in zip(
            self.worker.tensors, self._written, now) if a != b)
        warn(f'parameter "{name}" was written between two steps by something '
             "else than the inner optimizer (load_state_dict?): LocalSteps "
             "pushes that as a change, which all workers get. To go on from a "
             "checkpoint load it on every rank before the job begins; "
             "worker.pull() drops what was written")

    @untraced  # a hook
    def _before_step(self, *_: Any) -> None:
        self._look_for_writes()

    @untraced  # a hook
    def _after_step(self, *_: Any) -> None:
        self._note_writes()
        self._steps += 1
        if self._sent:
            self._take_lost()
        if self._steps >= self.every:
            self.exchange()

    def __enter__(self) -> "LocalSteps":
        """NotNow: a parameter was written since the last pull, of which no
        round would hear: a checkpoint that was loaded, or steps behind the
        last round of a LocalSteps before this one."""
        try:
            self.worker.check_unwritten()
        except NotNow as error:
            raise NotNow(f"{error}. (Steps of a LocalSteps that ended without "
                         "exchange() are such writes)") from error
        self._steps = 0
        self._start = {name: t.detach().float().cpu().clone()
                       for name, t in self.worker.tensors.items()}
        self._sent = {}
        self._anchor = {name: self._start[name].to(t.dtype)
                        for name, t in self.worker.tensors.items()}
        self._replica = Replica(list(self._anchor.values()))
        self._note_writes()
        self._hooks = [self._inner.register_step_pre_hook(self._before_step),
                       self._inner.register_step_post_hook(self._after_step)]
        self._let_go = self.worker.on_pull(self._after_pull)
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[types.TracebackType]) -> None:
        """Steps since the last round stay local: all workers make as many, or
        they call exchange() at the end."""
        for hook in self._hooks:
            hook.remove()
        self._let_go()
        if kind is None and self._steps:
            _log.warning(
                "LocalSteps ends %d step(s) behind the last round: no other "
                "worker gets what they have changed, and rank %d has "
                "parameters of its own now; exchange() on all ranks sends it, "
                "worker.pull() drops it", self._steps, self.worker.rank)
