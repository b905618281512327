"""Pushes each gradient while backward goes on to the next one.

What is sent is what a push at the end would send, or the round is refused: a
row is not committed before step(), which looks whether a gradient has changed
since it was given. A backward() that finds that what was given is nobody's
gradient any more begins the row anew.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
import weakref
from typing import Any, Optional, Sequence

import torch

from agg_server import _abi
from agg_server._operation import Memories, Operation
from agg_server._row import Row
from agg_server._session import Session
from agg_server._untraced import untraced
from agg_server.errors import Error, ManifestError

# Small gradients are given together: a call costs some microseconds, and the
# client sends frames of megabytes.
_GROUP_BYTES = 1 << 20
# Python's own frames of a backward(), and of a node of it.
_BACKWARD = torch.autograd.backward.__code__
_FUNCTION = torch.autograd.function.BackwardCFunction.apply.__code__


@untraced
def _on_gradient(overlap: "weakref.ref[Overlap]", index: int,
                 tensor: torch.Tensor) -> None:
    found = overlap()
    if found is not None:
        found.on_gradient(index, tensor)


def _inside_another_backward() -> bool:
    """Of a hook: its backward() was called while another one runs, as
    checkpoints with use_reentrant=True do. The engine's number of it says
    nothing of the one around it."""
    backwards = 0
    frame: Optional[types.FrameType] = sys._getframe()
    while frame is not None:
        if frame.f_code is _FUNCTION:
            return True
        backwards += frame.f_code is _BACKWARD
        frame = frame.f_back
    return backwards > 1


def check_hooks(tensors: dict[str, torch.Tensor]) -> None:
    """ManifestError: backward() does not come to one of them."""
    for name, tensor in tensors.items():
        if not tensor.requires_grad or not tensor.is_leaf:
            raise ManifestError(
                f'tensor "{name}" has requires_grad={tensor.requires_grad} and '
                f"is_leaf={tensor.is_leaf}; allowed with overlap: tensors that "
                "require gradients, and are no results of others")


class Overlap:
    """The hooks of a worker, and the row that they give.

    Hooks run on the threads of backward, of which a model on several devices
    has several at a time; the rest on the worker's, while no backward runs.
    Keeps the row's gradients until its operation is done.
    """

    def __init__(self, session: Session, tensors: dict[str, torch.Tensor],
                 row: Row) -> None:
        self._session, self._row = session, row
        self._names = list(tensors)
        self._tensors = list(tensors.values())
        self._views = Memories(_abi.View, len(self._tensors))
        self._indices = (_abi.c_uint64 * len(self._tensors))()
        self.paused = False
        # Held by what backward calls.
        self._lock = threading.RLock()
        self._operation: Optional[Operation] = None
        # By tensor: its gradient and the gradient's version when it was given.
        self._given: dict[int, tuple[torch.Tensor, int]] = {}
        self._waiting: list[int] = []  # given to nobody yet
        self._waiting_bytes = 0
        self._base = -1  # version that the row computes on
        self._backwards: set[int] = set()  # that have not ended
        # A tensor's hook must not keep the session: it ends with its worker.
        hook = functools.partial(_on_gradient, weakref.ref(self))
        untyped: Sequence[Any] = self._tensors
        self._hooks = [
            t.register_post_accumulate_grad_hook(functools.partial(hook, i))
            for i, t in enumerate(untyped)]

    # --- In backward ---

    def on_gradient(self, index: int, tensor: torch.Tensor) -> None:
        """Gives what backward has just put into `tensor.grad`."""
        with self._lock:
            self._take_gradient(index, tensor.grad)

    def _take_gradient(self, index: int, gradient: Optional[torch.Tensor]
                       ) -> None:
        if gradient is None or (self.paused and index not in self._given):
            return
        if torch._C._current_graph_task_id() not in self._backwards and \
                _inside_another_backward():
            # The one around it may come here again, or fail, unheard: step()
            # sends this gradient.
            if index in self._given:
                self.drop()
            return
        self._enter_backward(index)
        if index in self._given:
            self._again(index)
        if self.paused:
            return
        self._given[index] = gradient, gradient._version
        # Here: another hook, of another stream or device, may send the group.
        self._row.hand_over(gradient)
        self._waiting.append(index)
        self._waiting_bytes += gradient.numel() * gradient.element_size()
        if self._waiting_bytes >= _GROUP_BYTES:
            self._send()

    def _enter_backward(self, index: int) -> None:
        # Each run of autograd's engine has a number; callbacks run at its end,
        # unless it fails.
        task = torch._C._current_graph_task_id()
        if task in self._backwards:
            return
        # What was given is no gradient any more (zero_grad, a loop that has
        # left the step out, another model's backward): the row begins anew.
        if any(not self._is_current(i) and i != index for i in self._given) or \
                self._was_dropped(index):
            self.drop()
        if not self._given:
            self._backwards.clear()
        self._backwards.add(task)
        torch.autograd.Variable._execution_engine.queue_callback(
            functools.partial(self._on_end, task))

    def _is_current(self, index: int) -> bool:
        gradient, version = self._given[index]
        now = self._tensors[index].grad
        return now is gradient and now._version == version

    def _was_dropped(self, index: int) -> bool:
        """Of a tensor that backward has just come to: it has added to zeros, or
        to another tensor than the one that was given."""
        if index not in self._given:
            return False
        gradient, version = self._given[index]
        now = self._tensors[index].grad
        # backward() alone changes it once.
        return now is not gradient or now._version > version + 1

    @untraced
    def _on_end(self, task: int) -> None:
        with self._lock:
            self._send()  # a backward whose row is not sent has not ended
            self._backwards.discard(task)

    def _again(self, index: int) -> None:
        """A gradient that was given has changed."""
        task = torch._C._current_graph_task_id()
        failed = self._backwards - {task}
        self.drop()
        if failed:  # this one begins the row anew
            self._backwards = {task}
            return
        raise ManifestError(
            f'the gradient of "{self._names[index]}" came twice: backward() '
            "ran again before step(). Allowed with overlap: one backward() "
            "for each step; let those before it run in worker.no_sync(), or "
            "give their gradients up with zero_grad()")

    def _send(self) -> None:
        # While a round that Ctrl-C has left goes on, another row would take the
        # place of its row: then all are given at the end.
        if not self._waiting or (self._operation is None and
                                 self._session.busy):
            return
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        try:
            views, memory = self._row.views(
                waiting, [self._given[i][0] for i in waiting])
            for place, index in enumerate(waiting):
                self._indices[place] = index
            self._views.fill(memory)
            first = self._operation is None
            if first:
                self._base = int(self._session.state().version)
                self._operation = self._session.new_operation([])
            assert self._operation is not None
            # Detached: a gradient's storage may be replaced before it is sent.
            self._operation.keep([v.detach() for v in views if v is not None])
            self._session.start_push(self._indices, self._views, len(waiting),
                                     self._operation if first else None)
        except BaseException:
            self.drop()
            raise

    # --- In step() ---

    def take(self) -> Optional[tuple[Operation, set[int]]]:
        """The row, for a round that gives the rest, and which tensors it has.
        None: nothing was given.

        Raises Error, and the gradients are dropped: backward() has failed, or
        a gradient has changed since.
        """
        if not self._given and not self._backwards:
            return None
        try:
            self._check()
            self._session.settle()
            self._send()
        except BaseException:
            self.drop()
            self._backwards.clear()
            for tensor in self._tensors:
                tensor.grad = None
            raise
        operation, given = self._operation, set(self._given)
        if operation is not None and self._base != int(
                self._session.state().version):
            # A pull since: the row is of the version before.
            self.drop()
            return None
        if operation is not None and operation.done():
            try:
                self._session.end_of(operation)
            except BaseException:
                self.drop()
                raise
        self._operation = None
        self._given = {}
        return None if operation is None else (operation, given)

    def _check(self) -> None:
        if self._backwards:
            raise Error("the last backward() did not end: its gradients are "
                        "dropped. Run backward() again, or leave this step out")
        for index, (gradient, version) in self._given.items():
            now = self._tensors[index].grad
            if now is not gradient or now._version != version:
                raise ManifestError(
                    f'the gradient of "{self._names[index]}" has changed '
                    "between backward() and step() (clipping, unscale_?). "
                    "Allowed with overlap: gradients as backward() leaves "
                    "them; clip with the job's clip_norm")

    def drop(self) -> None:
        """The row is none; its memory is the gradients' again."""
        operation, self._operation = self._operation, None
        self._given, self._waiting, self._waiting_bytes = {}, [], 0
        if operation is not None:
            self._session.drop(operation)

    def close(self) -> None:
        """No hooks any more."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
