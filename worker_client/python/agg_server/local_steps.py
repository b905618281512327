"""Many local steps, then one round of what they have changed."""

from __future__ import annotations

import types
from typing import Any, Optional, Type

import torch

from agg_server._info import Info
from agg_server._untraced import untraced, untraced_calls
from agg_server.errors import ManifestError, NotNow
from agg_server.outcome import Outcome
from agg_server.worker import Worker


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
        if worker.mode != "server" or worker.job.optimizer not in ("add", ""):
            raise ManifestError(
                f'the job\'s optimizer is "{worker.job.optimizer}"; allowed '
                'for LocalSteps: "add", with mode "server"')
        if every < 1:
            raise ManifestError(f"every is {every}; allowed: 1 or more")
        self.worker, self.every = worker, every
        self._inner = inner
        self._steps = 0
        self._hook: Any = None
        self._start: dict[str, torch.Tensor] = {}

    @property
    def last(self) -> Optional[Outcome]:
        """Of the last round."""
        return self.worker.last

    def exchange(self, examples: int = 1, loss: Any = None) -> Outcome:
        """A round now, whatever the number of steps since the last one."""
        tensors = self.worker.tensors
        with torch.no_grad():
            changes = {name: t.detach().float().cpu() - self._start[name]
                       for name, t in tensors.items()}
            outcome, pulled = self.worker.exchange(
                changes, Info(loss=loss, examples=examples))
            for name, tensor in tensors.items():
                tensor.copy_(pulled[name])
                self._start[name].copy_(pulled[name])
        self._steps = 0
        return outcome

    @untraced  # a hook
    def _after_step(self, *_: Any) -> None:
        self._steps += 1
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
        self._hook = self._inner.register_step_post_hook(self._after_step)
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[types.TracebackType]) -> None:
        """Steps since the last round stay local: all workers make as many, or
        they call exchange() at the end."""
        self._hook.remove()
