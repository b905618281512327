"""A worker whose tensors are a torch model's."""

from __future__ import annotations

import time
import types
import warnings
from typing import (Any, Callable, Iterable, Mapping, Optional, Sequence, Type,
                    Union)

import torch

from agg_server import _abi
from agg_server._session import Info, Session
from agg_server._tensors import (Staging, Tensors, groups_of, memory_of,
                                 named_tensors)
from agg_server.client import coordinator_of, rank_of
from agg_server.errors import Error, ManifestError, NotNow, ShardLost, Timeout
from agg_server.outcome import Job, Outcome, TensorSpec

Listener = Callable[[Outcome], None]

_MODES = ("server", "combine")
_NAMES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
_POLL_SECONDS = 0.2


class Worker:
    """One worker of a job. Not thread-safe; one for each process.

    Modes:
      "server": the server has the optimizer. step() pushes gradients and pulls
        parameters over the model's.
      "combine": the job's optimizer is "none". combine() puts the combined
        gradient into `p.grad`; the optimizer is yours.
    """

    def __init__(self, model: Union[torch.nn.Module, Tensors],
                 coordinator: Optional[str] = None,
                 rank: Optional[int] = None, mode: str = "server", *,
                 groups: Optional[Mapping[str, Iterable[str]]] = None,
                 find_unused: bool = False, seed: str = "first",
                 **options: Any) -> None:
        """Joins the job, and seeds it or pulls over the parameters.

        Args:
          model: its parameters that require gradients, or tensors by name. The
            same names, shapes and order on all workers. Load a checkpoint
            before this, on every rank.
          coordinator: "host:port" of shard 0; default: AGG_COORDINATOR.
          rank: of this worker, unique in the job; default: RANK.
          mode: "server" or "combine".
          groups: {"no_decay": names}: of the job's configuration.
          find_unused: gradients may be missing (None). They count as zero, and
            the server's optimizer steps those parameters all the same.
          seed: "first": the first worker that joins seeds. "rank0": the others
            join after rank 0 has, for up to connect_timeout.
          options: connect_timeout, call_timeout, transfer_timeout,
            round_timeout, reconnect_window, recovery_window (seconds),
            client_name, channels_per_shard, local_sockets, tune_malloc,
            audit_log: as ClientOptions of the C++ client has them.
            shared_memory: False: rows and parameters go over sockets also
            where a shard of this host shares its memory. error_feedback: True:
            what rounding to the job's push_dtype leaves out of a row goes into
            the next one, False: it is lost; default: True for int8 alone.

        Raises:
          ManifestError: an argument; another manifest than the job's; a mode
            that does not fit the job's optimizer.
          ShardLost, Timeout: nobody let this worker in for connect_timeout.
          JobFinished: there is no round to take part in.
        """
        if mode not in _MODES:
            raise ManifestError(f'mode is "{mode}"; allowed: {_MODES}')
        if seed not in ("first", "rank0"):
            raise ManifestError(f'seed is "{seed}"; allowed: "first", "rank0"')
        self.mode = mode
        self.last: Optional[Outcome] = None
        self._tensors = named_tensors(model)
        self._listeners: list[Listener] = []
        self._staging = Staging(list(self._tensors.values()))
        self._warned_sparse = False
        group_of = groups_of(groups, self._tensors)
        manifest = [TensorSpec(name, tuple(t.shape), group_of.get(name, ""),
                               find_unused)
                    for name, t in self._tensors.items()]
        self.rank = rank_of(rank)
        address = coordinator_of(coordinator)
        if seed == "rank0" and self.rank != 0:
            await_seed(address, options.get("connect_timeout") or 30.0)
        self._session = Session(manifest, address, self.rank, options=options)
        try:
            self._check_mode()
            self._start()
        except BaseException:
            self.close()
            raise

    # --- Rounds ---

    def step(self, loss: Any = None, examples: int = 1, accumulation: int = 1,
             loss_scale: float = 1.0,
             norm_squared_sum: Optional[float] = None) -> Outcome:
        """A round of mode "server": pushes every `p.grad`, waits for the
        others, pulls over the parameters, sets every `p.grad` to None.

        Args:
          loss: mean over the row's examples; a number or a tensor of one.
          examples: that the row is the mean of: weighted rules and the
            outcome's loss use it.
          accumulation: micro-batches that the row is the mean of.
          loss_scale: the rows are this times the gradient (GradScaler's
            scale): the server divides it out.
          norm_squared_sum: over micro-gradients, of ||g||^2, in units of the
            pushed row, for AdaScale with one worker.

        Raises agg.Error's kinds; then no parameter was changed.
        """
        self._require("server", "step")
        if self.job.optimizer == "add":
            raise ManifestError(
                'the job\'s optimizer is "add", which would add gradients; '
                "allowed for step(): another one; use LocalSteps, or exchange "
                "changes")
        outcome, pulled = self._round_of_grads(
            Info(loss, examples, accumulation, loss_scale, norm_squared_sum))
        self._write(pulled)
        self._drop_grads()
        return self._tell(outcome)

    def combine(self, loss: Any = None, examples: int = 1,
                accumulation: int = 1, loss_scale: float = 1.0,
                norm_squared_sum: Optional[float] = None) -> Outcome:
        """A round of mode "combine": pushes every `p.grad` and puts the
        combined gradient there, loss scale divided out. Arguments as step's.

        If the outcome is not `applied` (no worker's row was finite), `p.grad`
        is as it was: do not step.
        """
        self._require("combine", "combine")
        outcome, pulled = self._round_of_grads(
            Info(loss, examples, accumulation, loss_scale, norm_squared_sum))
        if outcome.applied:
            for tensor, result in zip(self._tensors.values(), pulled):
                if tensor.grad is None or tensor.grad.is_sparse:
                    tensor.grad = result.to(tensor.device, tensor.dtype,
                                            copy=True)
                else:
                    tensor.grad.copy_(result)
        return self._tell(outcome)

    def exchange(self, rows: Tensors, info: Optional[Info] = None
                 ) -> tuple[Outcome, dict[str, torch.Tensor]]:
        """A round of tensors that are not `p.grad`: what was pulled, float32
        on the CPU by name, good until the next round."""
        unknown = [name for name in rows if name not in self._tensors]
        if unknown:
            raise ManifestError(f'"{unknown[0]}" is none of the tensors')
        outcome, pulled = self._round(
            [rows.get(name) for name in self._tensors], info or Info())
        return self._tell(outcome), dict(zip(self._tensors, pulled))

    def pull(self, version: Optional[int] = None,
             full_precision: bool = False) -> int:
        """Pulls a version (None: the newest) over the parameters; returns it.
        """
        self._require("server", "pull")
        targets = self._staging.targets()
        pulled = self._session.pull(version, [memory_of(t) for t in targets],
                                    full_precision, self._staging)
        self._write(targets)
        return pulled

    # --- What is known ---

    @property
    def version(self) -> int:
        """The last one that was pulled, or seeded."""
        return int(self._session.state().version)

    @property
    def finished(self) -> bool:
        """No round follows."""
        return bool(self._session.state().finished)

    @property
    def job(self) -> Job:
        """How the job is set up."""
        return self._session.job()

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The model's, by the names on the wire."""
        return dict(self._tensors)

    def state_dict(self) -> dict[str, Any]:
        """version, tau, rule: for logs. The optimizer's state is the
        server's; its checkpoints have it."""
        last = self.last
        return {"version": self.version, "tau": last.tau if last else 0.0,
                "rule": self.job.rule}

    def add_listener(self, listener: Listener) -> None:
        """Called with each outcome, in the thread of the round."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Leaves the job; the others go on. When its last worker leaves, a job
        has finished for good: do not close between two epochs of data."""
        self._session.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[types.TracebackType]) -> None:
        self.close()

    # --- Inside ---

    def _require(self, mode: str, call: str) -> None:
        if self.mode != mode:
            raise ManifestError(
                f'mode is "{self.mode}"; allowed for {call}(): "{mode}"')

    def _check_mode(self) -> None:
        kind = self.job.optimizer  # "": a server that does not say it
        if kind and (kind == "none") != (self.mode == "combine"):
            allowed = ('"combine", or a job whose optimizer is another one'
                       if kind == "none" else
                       '"server", or a job with optimizer { kind: "none" }')
            raise ManifestError(f'mode is "{self.mode}" and the job\'s '
                                f'optimizer "{kind}"; allowed: {allowed}')

    def _start(self) -> None:
        targets = self._staging.targets()
        if self.mode == "server":
            for target, tensor in zip(targets, self._tensors.values()):
                target.copy_(tensor.detach())
        # With "none" the seed's values mean nothing: zeros.
        self._session.seed_or_pull([memory_of(t) for t in targets],
                                   self._staging)
        if self.mode == "server":
            self._write(targets)

    def _write(self, pulled: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            for tensor, value in zip(self._tensors.values(), pulled):
                tensor.copy_(value)

    def _drop_grads(self) -> None:
        for tensor in self._tensors.values():
            tensor.grad = None

    def _round_of_grads(self, info: Info
                        ) -> tuple[Outcome, list[torch.Tensor]]:
        try:
            return self._round([t.grad for t in self._tensors.values()], info)
        except KeyboardInterrupt:
            # The push may go on: the next backward must not write into it.
            self._drop_grads()
            raise

    def _round(self, rows: Sequence[Optional[torch.Tensor]], info: Info
               ) -> tuple[Outcome, list[torch.Tensor]]:
        # Staged rows of their own: those of a round that Ctrl-C has left are
        # still in use.
        staging = Staging(list(self._tensors.values()))
        views = [None if row is None else self._view(i, row, staging)
                 for i, row in enumerate(rows)]
        targets = self._staging.targets()
        outcome = self._session.push_pull(
            [(0, 0, _abi.F32) if v is None else memory_of(v) for v in views],
            info, [memory_of(t) for t in targets], (views, self._staging))
        return outcome, targets

    def _view(self, index: int, row: torch.Tensor, staging: Staging
              ) -> torch.Tensor:
        """The row itself, if it can be sent as it is; else a copy."""
        row = row.detach()
        # The client rounds float32 rows of an int8 job.
        push_dtype = _NAMES.get(self.job.push_dtype, torch.float32)
        if row.layout != torch.strided:
            if not self._warned_sparse:
                warnings.warn("a sparse gradient is sent densely: it costs "
                              "as much as the whole parameter", stacklevel=5)
                self._warned_sparse = True
            row = row.coalesce().to_dense()
        dtype = (row.dtype if row.dtype in (torch.float32, push_dtype)
                 else torch.float32)
        if row.device.type == "cpu" and row.dtype == dtype and \
                row.is_contiguous():
            return row
        staged = staging.buffer(index, dtype)
        staged.copy_(row)
        return staged

    def _tell(self, outcome: Outcome) -> Outcome:
        self.last = outcome
        for listener in self._listeners:
            listener(outcome)
        return outcome


def await_seed(coordinator: str, timeout: float) -> None:
    """Until somebody has seeded the job. Timeout: nobody did in time (s)."""
    deadline = time.monotonic() + timeout
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise Timeout(f"nobody has seeded the job within {timeout} s; "
                          'with seed="rank0" rank 0 has to')
        session = None
        try:
            session = Session([], coordinator, observer=True,
                              options={"connect_timeout": left})
            session.latest_version()
            return
        except NotNow:
            time.sleep(min(left, _POLL_SECONDS))
        except ShardLost as error:
            raise Timeout(str(error), error.code) from error
        finally:
            if session is not None:
                session.close()


def allreduce(tensors: Tensors, worker: Worker, examples: int = 1
              ) -> dict[str, torch.Tensor]:
    """The job's combination (Adasum, mean, ...) of all workers' tensors.

    Args:
      tensors: by the names that `worker` was made of, same on all workers.
      worker: of mode "combine": Worker(tensors, mode="combine").

    Returns new tensors of the same dtypes and devices.
    Raises Error if no worker's values were finite.
    """
    if worker.mode != "combine":
        raise ManifestError(f'mode is "{worker.mode}"; allowed for '
                            'allreduce: "combine"')
    outcome, pulled = worker.exchange(tensors, Info(examples=examples))
    if not outcome.applied:
        raise Error(f"the round was {outcome.kind}: {outcome.message}")
    return {name: pulled[name].to(t.device, t.dtype, copy=True)
            for name, t in tensors.items()}


__all__ = ["Worker", "allreduce", "await_seed"]
