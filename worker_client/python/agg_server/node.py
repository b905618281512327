"""Nodes as workers: DDP averages inside a node, one process of it is the
worker, and its result goes to all of them."""

from __future__ import annotations

import threading
from typing import Any, Optional

import torch
import torch.distributed as dist

from agg_server._tensors import Census, canonical_name, named_tensors
from agg_server._untraced import untraced, untraced_calls
from agg_server.errors import Error, ManifestError
from agg_server.outcome import Info, Outcome
from agg_server.worker import Worker

# Buffer, future, names and views of its tensors; whether DDP wants it sparse.
_Bucket = tuple[torch.Tensor, Any, list[str], list[torch.Tensor], bool]


@untraced_calls
class NodeState:
    """What node_hook keeps, in each process of a node.

        state = agg.NodeState(model, node_group, side_group, worker)
        ddp = DDP(model, process_group=node_group)
        ddp.register_comm_hook(state, agg.node_hook)

    After backward each `p.grad` is the combination of the nodes' means, on all
    ranks; if the round was skipped, zeros (`state.last.applied` is False on
    the leader). examples: set `state.examples` before backward to the node's.
    """

    def __init__(self, model: torch.nn.Module, node_group: dist.ProcessGroup,
                 side_group: dist.ProcessGroup,
                 worker: Optional[Worker]) -> None:
        """Args:
          model: the one that DDP wraps.
          node_group: the node's processes, DDP's own group.
          side_group: the same processes in another group: its broadcasts run
            beside DDP's collectives.
          worker: on the node's first process (of mode "combine"), else None.
        """
        leads = dist.get_rank(node_group) == 0
        if leads != (worker is not None):
            raise ManifestError("worker is for the first process of the node, "
                                "and None on the others")
        if worker is not None and worker.mode != "combine":
            raise ManifestError(f'mode is "{worker.mode}"; allowed for '
                                'NodeState: "combine"')
        if worker is not None and worker.overlaps:
            raise ManifestError(
                "overlap is True, and the worker would send this process's "
                "gradients before the node's mean is there; allowed for "
                "NodeState: overlap=False")
        if side_group is node_group:
            raise ManifestError("side_group is node_group; allowed: another "
                                "group of the same processes")
        self.node, self.side, self.worker = node_group, side_group, worker
        self.leader = dist.get_global_rank(node_group, 0)
        self.size = dist.get_world_size(node_group)
        self._census = Census(model, named_tensors(model))
        self.name = {id(p): canonical_name(name)
                     for name, p in model.named_parameters()}
        self.examples = self.size
        self.error: Optional[BaseException] = None
        self.open: list[_Bucket] = []
        self.last: Optional[Outcome] = None

    def check(self) -> None:
        """Raises what went wrong in the last backward: DDP's own exception
        does not tell its type. ManifestError: a parameter of the model is
        another tensor than before, or has a gradient that DDP does not know of.
        """
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self._census.check()
        self._census.check_gradients()

    def finish(self) -> None:
        """All buckets are there: one round, in a thread of its own, since a
        hook that waited would hold up backward."""
        buckets, self.open = self.open, []
        threading.Thread(target=self._finish, args=(buckets,),
                         name="agg-node", daemon=True).start()

    def _finish(self, buckets: list[_Bucket]) -> None:
        failed = torch.zeros(1, device=buckets[0][0].device)
        try:
            if self.worker is not None:
                self._combine(self.worker, buckets)
        except BaseException as error:  # pylint: disable=broad-except
            self.error = error
            failed += 1
        try:
            # The others must hear of a failure, or they would wait for ever.
            dist.broadcast(failed, self.leader, group=self.side)
            if failed.item() and self.error is None:
                self.error = Error("the node's worker has failed; its own "
                                   "process says why")
            for buffer, future, _, _, sparse in buckets:
                if not failed.item():
                    dist.broadcast(buffer, self.leader, group=self.side)
                    future.set_result(buffer.to_sparse(1) if sparse
                                      else buffer)
        except BaseException as error:  # pylint: disable=broad-except
            self.error = self.error or error
        if self.error is not None:
            for _, future, _, _, _ in buckets:
                if not future.done():
                    future.set_exception(RuntimeError(str(self.error)))

    def _combine(self, worker: Worker, buckets: list[_Bucket]) -> None:
        rows: dict[str, torch.Tensor] = {}
        for buffer, _, names, views, _ in buckets:
            buffer.div_(self.size)
            rows.update(zip(names, views))
        info = Info(examples=self.examples)
        info.parameters_digest = worker.parameters_digest()
        self.last, pulled = worker.exchange(rows, info)
        for _, _, names, views, _ in buckets:
            for name, view in zip(names, views):
                if self.last.applied:
                    view.copy_(pulled[name])
                else:
                    view.zero_()


@untraced
def node_hook(state: NodeState, bucket: Any
              ) -> torch.futures.Future[torch.Tensor]:
    """DDP's communication hook; bucket: a dist.GradBucket. A sparse gradient
    is sent densely."""
    buffer = bucket.buffer()
    sparse = bool(buffer.is_sparse)
    if sparse:
        buffer = buffer.coalesce().to_dense()
    devices = [buffer.device] if buffer.device.type == "cuda" else None
    future: torch.futures.Future[torch.Tensor] = (
        torch.futures.Future(devices=devices) if devices
        else torch.futures.Future())
    dist.reduce(buffer, state.leader, group=state.node)
    state.open.append((buffer, future,
                       [state.name[id(p)] for p in bucket.parameters()],
                       [buffer] if sparse else bucket.gradients(), sparse))
    if bucket.is_last():
        state.finish()
    return future


# DDP compares these with the types themselves. (They are the untraced
# function's, too.)
node_hook.__annotations__.update({
    "state": NodeState, "bucket": getattr(dist, "GradBucket"),
    "return": torch.futures.Future[torch.Tensor]})
