"""A manager for torchft's LocalSGD, DiLoCo and Optimizer, over a job.

    from torchft.local_sgd import DiLoCo
    from agg_server.torchft import Manager

    worker = agg.Worker(model, mode="combine")
    with DiLoCo(Manager(worker), [model], inner, outer, sync_every=100):
        ...
"""

from __future__ import annotations

import copy
from typing import Any, Callable, Optional

import torch

from agg_server._tensors import Overflows
from agg_server._untraced import untraced_calls
from agg_server.errors import Error, ManifestError
from agg_server.outcome import Outcome
from agg_server.worker import Worker


@untraced_calls
class Work:
    """Of one allreduce; all of them since the last round are one round, which
    the first wait() of any of them makes."""

    def __init__(self, manager: "Manager", bucket: bool = False) -> None:
        """bucket: of several tensors, one after the other."""
        self._manager = manager
        self.bucket = bucket
        self.future: torch.futures.Future[Any] = torch.futures.Future()

    def wait(self, timeout: Any = None) -> bool:
        """Until the round is over; the worker's limits hold, not `timeout`.

        Raises agg.Error's kinds; Error: the round failed before, or
        start_quorum has dropped it.
        """
        if not self.future.done():
            if not self._manager.has(self):
                raise Error("the round of this allreduce has failed or was "
                            "dropped; call allreduce again")
            self._manager.finish_round()
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        """Done once a wait() has made the round.

        Raises ManifestError: of a second bucket. torchft's callbacks of a
        round's buckets share their variables, and would all copy the last one.
        """
        if self.bucket and self._manager.has_bucket_before(self):
            raise ManifestError(
                "this is the second bucket of a round, whose callback would "
                "run behind both; allowed: one bucket, as with DiLoCo's "
                "bucket_cap_mb of the model's size or more, or none "
                "(use_bucketization=False)")
        return self.future


@untraced_calls
class Manager:
    """What torchft's LocalSGD, DiLoCo and Optimizer ask of a manager.

    There is no quorum: a round waits for the job's workers, and those that are
    lost are left out as the job is configured. The job's rule combines, and its
    optimizer is "none". A tensor is known by its shape and order, so that all
    workers reduce the same ones. Not thread-safe. A worker that joins later gets
    the parameters from another one, by way of the user's (state_dict()): this
    job has only what was combined.
    """

    _use_async_quorum = False

    def __init__(self, worker: Worker) -> None:
        """worker: of mode "combine", of the model; with find_unused=True if a
        round has some of the tensors only (fragments)."""
        if worker.mode != "combine":
            raise ManifestError(f'mode is "{worker.mode}"; allowed for '
                                'Manager: "combine"')
        if worker.overlaps:
            raise ManifestError(
                "overlap is True, and the worker would send gradients that "
                "allreduce is not given; allowed for Manager: overlap=False")
        self.worker = worker
        self._open: list[tuple[torch.Tensor, list[str], Work]] = []
        self._last: Optional[Outcome] = None
        self._overflows = Overflows()
        self._carried: dict[str, tuple[Callable[[Any], None],
                                       Callable[[], Any]]] = {}

    def start_quorum(self, *_: Any, **__: Any) -> None:
        """A round begins; what a failed one left open is dropped."""
        self._open = []
        self._last = None

    def allreduce(self, tensor: torch.Tensor, should_quantize: bool = False,
                  reduce_op: Any = None) -> Work:
        """Takes a tensor into the round; its result will be written over it.

        Args:
          tensor: of the shape of one of the worker's, or flat: several of them
            one after the other, and zeros. A vector that could be either is
            the next one of the worker's, or else the next ones if these fill
            it, or else the first of its length.
          should_quantize: nothing; the job's push_dtype says how rows travel.
          reduce_op: None or AVG; the job's rule decides.

        Raises ManifestError: no tensors of the worker's that are left fit.
        """
        if reduce_op is not None and "AVG" not in str(reduce_op):
            raise ManifestError(f"reduce_op is {reduce_op}; allowed: AVG, "
                                "which the job's rule stands for")
        names = self._names_of(tensor)
        work = Work(self, len(names) > 1)
        self._open.append((tensor, names, work))
        return work

    def should_commit(self, *_: Any, **__: Any) -> bool:
        """Whether the round had a result; makes it if nobody has waited."""
        if self._open:
            self.finish_round()
        return self._last is not None and self._last.applied

    def current_step(self) -> int:
        """Rounds so far, the same on all workers."""
        return self.worker.version

    def num_participants(self) -> int:
        """Workers whose rows are in the last result."""
        return len(self._last.ranks) if self._last else 0

    def is_participating(self) -> bool:
        """Always: a worker of the job takes part."""
        return True

    def errored(self) -> None:
        """Nothing: what goes wrong is raised by the call."""

    def has(self, work: Work) -> bool:
        """Whether the next round is this one's."""
        return any(each is work for _, _, each in self._open)

    def has_bucket_before(self, work: Work) -> bool:
        """Whether the next round has a bucket besides this one."""
        return any(each.bucket and each is not work
                   for _, _, each in self._open)

    def finish_round(self) -> None:
        """Pushes what is open, and writes the results over it."""
        taken, self._open = self._open, []
        self._last = None
        rows: dict[str, torch.Tensor] = {}
        for tensor, names, _ in taken:
            rows.update(zip(names, self._parts(tensor, names)))
        self._last, pulled = self.worker.exchange(rows)
        for tensor, names, work in taken:
            if self._last.applied:
                parts = self._parts(tensor, names)
                for name, part in zip(names, parts):
                    part.copy_(pulled[name])
                self._overflows.look(names, parts,
                                     [pulled[name] for name in names])
            work.future.set_result(tensor)

    def _names_of(self, tensor: torch.Tensor) -> list[str]:
        taken = {name for _, names, _ in self._open for name in names}
        left = {name: t for name, t in self.worker.tensors.items()
                if name not in taken}
        for name, own in left.items():
            if own.grad is tensor:
                return [name]
        if torch._C._current_graph_task_id() != -1:
            raise ManifestError(
                "allreduce was called by backward() with no parameter's grad; "
                "allowed: torchft's PureDistributedDataParallel, or torch's "
                "DistributedDataParallel with agg.node_hook: a bucket of "
                "torchft's says nothing of its tensors, which most rules need")
        names, room = [], tensor.numel() if tensor.dim() == 1 else 0
        for name, own in left.items():
            if own.numel() > room:
                break
            names.append(name)
            room -= own.numel()
        if room > 0 or len(names) < 2:  # else a bucket that they fill
            for name, own in left.items():
                if own.shape == tensor.shape:
                    return [name]
        if not names:
            raise ManifestError(
                f"a tensor of shape {tuple(tensor.shape)} is none of those "
                "that are left; allowed: the worker's, each once in a round")
        return names

    def _parts(self, tensor: torch.Tensor, names: list[str]
               ) -> list[torch.Tensor]:
        own = self.worker.tensors
        tensor = tensor.detach()
        if len(names) == 1 and own[names[0]].shape == tensor.shape:
            return [tensor]
        parts, first = [], 0
        for name in names:
            count = own[name].numel()
            parts.append(tensor[first:first + count].view(own[name].shape))
            first += count
        return parts

    def allow_state_dict_read(self) -> None:
        """Nothing: workers hand each other no state."""

    def disallow_state_dict_read(self) -> None:
        """Nothing: workers hand each other no state."""

    def register_state_dict_fn(self, key: str, load: Callable[[Any], None],
                               save: Callable[[], Any]) -> None:
        """DiLoCo's: what state_dict() and load_state_dict() carry."""
        self._carried[key] = (load, save)

    def state_dict(self) -> dict[str, Any]:
        """What a worker that joins later lacks: of each DiLoCo the parameters
        that all share and the outer optimizer's state, as copies. Between two
        rounds; with the model's own state_dict(), which is the user's to hand
        over, it is all that load_state_dict() needs."""
        return {"version": self.worker.version,
                "carried": {key: copy.deepcopy(save())
                            for key, (_, save) in self._carried.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over state_dict() of another worker, within DiLoCo.

        Raises ManifestError: of another version than this worker's.
        """
        if state["version"] != self.worker.version:
            raise ManifestError(
                f"state is of version {state['version']}; allowed: "
                f"{self.worker.version}, which this worker has joined at")
        for key, value in state["carried"].items():
            self._carried[key][0](value)

    def shutdown(self, *_: Any, **__: Any) -> None:
        """Leaves the job."""
        self.worker.close()


__all__ = ["Manager", "Work"]
