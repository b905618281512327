"""A worker whose tensors are a torch model's."""

from __future__ import annotations

import contextlib
import logging
from typing import (TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping,
                    Optional, Sequence, Union)

import numpy as np
import torch

from agg_server import _abi
from agg_server._operation import Memories, targets_of
from agg_server._overlap import Overlap, check_hooks
from agg_server._pulled import Pulled
from agg_server._reduce import Reducer, array_of, check_name
from agg_server._replica import Replica
from agg_server._row import Row
from agg_server._session import Member, Session, await_seed
from agg_server._shown import named, warn
from agg_server._tensors import (Census, Cuda, Overflows, Staging, Tensors,
                                 canonical_name, groups_of, memory_of,
                                 named_tensors)
from agg_server._untraced import untraced, untraced_calls
from agg_server._watch import Watch, differ
from agg_server.client import coordinator_of, rank_of
from agg_server.errors import (Error, ManifestError, NotNow, VersionGone,
                               written_complaint)
from agg_server.options import ClientOptions, shows_options
from agg_server.outcome import Info, Loss, Outcome, TensorSpec

if TYPE_CHECKING:
    from typing_extensions import Unpack

_log = logging.getLogger("agg_server")

Listener = Callable[[Outcome], None]
PullHook = Callable[[dict[str, torch.Tensor]], None]

_MODES = ("server", "combine")

# So many different sets of ranks that differ are told.
_MOST_SETS = 16
# After how many rounds without a checkpoint to begin with it is said again.
_SAY_ROUNDS = 1000


@untraced_calls
class Worker(Member):
    """One worker of a job. Not thread-safe; one for each process.

    Modes:
      "server": the server has the optimizer. step() pushes gradients and pulls
        parameters over the model's.
      "combine": the job's optimizer is "none". combine() puts the combined
        gradient into `p.grad`; the optimizer is yours.
    """

    @shows_options
    def __init__(self, model: Union[torch.nn.Module, Tensors],
                 coordinator: Optional[str] = None,
                 rank: Optional[int] = None, mode: str = "server", *,
                 groups: Optional[Mapping[str, Iterable[str]]] = None,
                 find_unused: bool = False, seed: str = "first",
                 overlap: bool = False, zero_copy: bool = False,
                 job: Optional[str] = None, replicated: Optional[bool] = None,
                 **options: Unpack[ClientOptions]) -> None:
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
            join after rank 0 has, however long that takes; or, if it is given,
            for up to connect_timeout.
          overlap: backward() sends each gradient as soon as it is there. One
            backward() for each step(), those before it in no_sync(); gradients
            stay as backward() leaves them; no DistributedDataParallel.
          zero_copy: pulls write into the parameters, which are undefined after
            a step() that failed or that Ctrl-C has ended. Saves a copy, and
            the memory beside the parameters that it comes from: 4 bytes for
            each, on their device. (What is not contiguous float32 has that
            memory all the same.) Of mode "server".
          job: of several that agg-launch has started (--job), in place of
            coordinator.
          replicated: of mode "combine": the tensors are parameters that all
            workers have the same of. They begin with those of the worker that
            seeds, and each round compares them (Outcome.differing_ranks). None:
            True for a module, False for a dict.
          options: as ClientOptions has them.

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
        if overlap and isinstance(
                model, torch.nn.parallel.DistributedDataParallel):
            raise ManifestError("overlap is True and the model a Distributed"
                                "DataParallel, whose gradients are not final "
                                "when they come; allowed: overlap=False")
        self.mode = mode
        self.last: Optional[Outcome] = None
        self._tensors = named_tensors(model)
        self._census = (Census(model, self._tensors)
                        if isinstance(model, torch.nn.Module) else None)
        if replicated is None:
            replicated = self._census is not None
        self._replica = (
            Replica(self._census.parameters() if self._census is not None
                    else list(self._tensors.values()))
            if replicated and mode == "combine" else None)
        # The parameters of a worker that has joined later, as torch counts
        # writes: nobody has given it the others' so far.
        self._late: Optional[list[int]] = None
        self._caught_up = -1  # the round that catch_up() has left to a step
        # Who made the round of Session.unheard().
        self._round_by: Optional[object] = None
        # Of the parameters that pulls have written over.
        self._pull_hooks: list[PullHook] = []
        # Its tensors when it had joined, as torch counts writes.
        self._begun: Optional[list[int]] = None
        self._said: set[str] = set()  # once
        self._differing: set[tuple[int, ...]] = set()  # that were told
        if overlap:
            check_hooks(self._tensors)
        self._listeners: list[Listener] = []
        listed = list(self._tensors.values())
        names = list(self._tensors)
        cuda = Cuda(options.get("cuda_rows") is not False)
        # No parameter. (Where pulls go into the parameters it is needed to
        # begin with alone, and a device may have no room for it.)
        self._beside = Pulled(listed, False, None if zero_copy and
                              mode == "server" else cuda, names)
        self._pulled = (Pulled(listed, True, cuda, names) if zero_copy
                        else self._beside)
        self._views = Memories(_abi.View, len(listed))
        self._watch = Watch(listed)
        self._remembered = 0  # the version that the parameters are of
        self._overflows = Overflows()
        self._find_unused = find_unused
        self._overlap: Optional[Overlap] = None
        group_of = groups_of(groups, self._tensors)
        manifest = [TensorSpec(name, tuple(t.shape), group_of.get(name, ""),
                               find_unused)
                    for name, t in self._tensors.items()]
        self.rank = rank_of(rank)
        address = coordinator_of(coordinator, job)
        if seed == "rank0" and self.rank != 0:
            await_seed(address, options.get("connect_timeout"), options)
        self._session = Session(manifest, address, self.rank, options=options)
        self._reducer = Reducer(self._session, self.rank)
        try:
            self._check_mode(overlap)
            self._row = Row(self._tensors, self.job.push_dtype, cuda)
            self._start()
            self._begun = [t._version for t in listed]
            self._tell_buffers(model)
            if zero_copy:
                self._beside.drop_staging()
            if overlap:
                self._overlap = Overlap(self._session, self._tensors,
                                        self._row)
        except BaseException:
            self.close()
            raise

    # --- Rounds ---

    def step(self, loss: Loss = None, examples: int = 1, accumulation: int = 1,
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
          norm_squared_sum: over micro-gradients, of ||g||^2, for AdaScale with
            one worker; each g in units of the pushed row, which is their mean.
            Where backward() is of loss / accumulation, its g is that much too
            small: multiply the sum by accumulation ** 2.

        Raises agg.Error's kinds; then no parameter was changed. NotNow: others
        have written into a parameter since the last pull (load_state_dict, an
        optimizer beside, weight clipping), which the step would overwrite.
        Values that were swapped and are back are no such write.
        """
        self._require("server", "step")
        if self.job.optimizer == "add":
            raise ManifestError(
                'the job\'s optimizer is "add", which would add gradients; '
                "allowed for step(): another one; use LocalSteps, or exchange "
                "changes")
        self.check_unwritten()
        if self._find_unused:
            self._tell_missing()
        outcome = self._round_of(None, Info(
            loss, examples, accumulation, loss_scale, norm_squared_sum),
            self._pulled)
        self._pulled.write()
        self._remember()
        self._drop_grads()
        self._session.heard()
        return self._tell(outcome)

    def _tell_missing(self) -> None:
        """torch leaves alone what has no gradient; the server does not."""
        lacking = [name for name, t in self._tensors.items() if t.grad is None]
        if lacking and len(lacking) < len(self._tensors):
            self._say_once(
                "missing", logging.WARNING,
                f"{named(lacking)} has no gradient on rank {self.rank}: it "
                f'counts as zero, and the server\'s "{self.job.optimizer}" '
                "steps it all the same, by momentum and weight decay if it has "
                "those, or by other workers' gradients; torch's would leave it "
                "alone, as mode \"combine\" does")

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """With overlap: backward() in it sends nothing, and its gradients are
        added up in `p.grad`. For all micro-batches of a step but the last."""
        overlap = self._overlap
        if overlap is None:
            yield
            return
        before, overlap.paused = overlap.paused, True
        try:
            yield
        finally:
            overlap.paused = before

    def combine(self, loss: Loss = None, examples: int = 1,
                accumulation: int = 1, loss_scale: float = 1.0,
                norm_squared_sum: Optional[float] = None) -> Outcome:
        """A round of mode "combine": pushes every `p.grad` and puts the
        combined gradient there, loss scale divided out. Arguments as step's.

        If the outcome is not `applied` (no worker's row was finite), `p.grad`
        is as it was: do not step. A `p.grad` that none of the rows in it had
        (find_unused) is None, and that of a parameter that does not learn any
        more stays None.

        After a call that Ctrl-C, or another exception of a signal, has ended,
        this one waits for that round and gives what it came to: each combined
        gradient comes once. The gradients of this call are dropped then.
        """
        outcome = self.combine_unheard(
            Info(loss, examples, accumulation, loss_scale, norm_squared_sum))
        self._session.heard()
        return outcome

    def combine_unheard(self, info: Info,
                        rows: Optional[Sequence[Optional[torch.Tensor]]] = None
                        ) -> Outcome:
        """Of Combined: as combine(), which gives the same again until
        combine_heard(). rows: in place of the gradients."""
        self._require("combine", "combine")
        outcome = self._unheard(self)
        if outcome is None:
            if rows is None:
                self._check_start()
            base = self.version
            outcome = self._round_of(rows, info, self._beside)
            missed = self.version - 1 - base
            if self._replica is not None and missed > 0:
                _log.warning(
                    "rank %d was away: it has missed the combined gradients of "
                    "%d round(s) before that of version %d, and its parameters "
                    "are others now than those of the other workers. Load "
                    "theirs, and the optimizer's state", self.rank, missed,
                    self.version)
        else:
            self._drop_sent()
            _log.log(
                logging.INFO if self._caught_up == outcome.round else
                logging.WARNING,
                "round %d %s: this call gives its combined gradient, and the "
                "gradients that it was called with are not pushed",
                outcome.round,
                "has ended behind the checkpoint that this worker has begun "
                "with" if self._caught_up == outcome.round else
                "was interrupted and has ended")
        if outcome.applied:
            # Who comes too late gets the newest one, of a later round.
            self._write_grads(set(outcome.absent_tensors)
                              if outcome.version == self.version else set())
        return self._tell(outcome)

    def catch_up(self, load: Callable[[], Optional[int]]) -> int:
        """Of mode "combine": gets a worker that has joined later the
        parameters of the others, which the server does not have. At the start
        of a job, and where it has nothing to do: nothing.

            worker = agg.Worker(model, mode="combine")
            opt = agg.Combined(torch.optim.AdamW(model.parameters()), worker)
            worker.catch_up(load)

        Until the others write a checkpoint of a version that this worker takes
        part in it sits rounds out. The next step() or combine() may give the
        result of the last one of these, which then came behind the checkpoint,
        and drops the gradients that it was called with. If two rounds have had
        nobody's row (all have started again), the newest checkpoint is where
        all begin.

        Args:
          load: loads the newest checkpoint into the model, and whatever the
            step of the others needs (optimizer, scheduler); returns the
            `worker.version` at which it was written, or None: there is none.
            Called behind each round. Who writes has to do so between two steps,
            under another name, which os.replace() then makes the right one.

        Returns the version of the checkpoint, or the worker's own.
        """
        self._require("combine", "catch_up")
        said = -1
        while self._late is not None:
            before = self.last
            outcome = self.sit_out_unheard()
            found = load()
            nobody = not outcome.ranks and before is not None and \
                not before.ranks
            if found is not None and (nobody or found == outcome.version):
                self.combine_heard()
            elif found == outcome.round:
                # All rows of that round came behind this checkpoint.
                self._caught_up = outcome.round
            else:
                self.combine_heard()
                # What was loaded is not said to be the others'.
                assert self._replica is not None
                self._late = self._replica.writes()
                if outcome.round >= said + _SAY_ROUNDS or said < 0:
                    said = outcome.round
                    _log.warning(
                        "rank %d sits out rounds since it joined: it waits for "
                        "a checkpoint of version %d or later, and the newest "
                        "one %s", self.rank, outcome.version,
                        "is not there" if found is None
                        else f"is of version {found}")
                continue
            self._drop_grads()
            self._late = None
            _log.info("rank %d goes on from the checkpoint of version %d",
                      self.rank, found)
            assert found is not None
            return found
        return self.version

    def mark_start(self) -> None:
        """Of mode "combine", in a worker that has joined later: says that its
        parameters, and its optimizer's state, are those of the other workers
        at `version`. They are compared from then on."""
        self._require("combine", "mark_start")
        self._late = None

    def _check_start(self) -> None:
        """NotNow: the parameters are still those that this worker has joined
        with, after rounds that it knows nothing of."""
        if self._late is None:
            return
        assert self._replica is not None
        if self._replica.writes() != self._late:
            self._late = None  # something was loaded: it is compared
            return
        self._drop_sent()
        version = self.version
        raise NotNow(
            f"rank {self.rank} has joined at version {version} of a job whose "
            'optimizer is "none", and its parameters are those that it came '
            "with: those of the other workers have had rounds that the server "
            "does not keep. Allowed: worker.catch_up(load), which sits out "
            "rounds until a checkpoint of the others fits; or load their "
            f"parameters of version {version}, and the optimizer's state, and "
            "say worker.mark_start()")

    def sit_out(self) -> Outcome:
        """A round without a row of this worker's, which has no batch for it:
        the others' rows make the result, which comes here as after step() or
        combine(). Whatever `p.grad` has is given up.

        Its row is of NaN, which every rule leaves out (and with find_unused of
        one tensor alone): the outcome has this rank in `excluded_ranks`, and if
        all workers sit out, the round is skipped. Raises as step().
        """
        if self.mode == "server" and self.job.optimizer == "add":
            raise ManifestError(
                'the job\'s optimizer is "add"; allowed for sit_out(): another '
                "one; LocalSteps.exchange() sends what has changed, or zero")
        self._drop_sent()
        self._drop_grads()
        if self.mode == "combine":
            outcome = self.sit_out_unheard()
        else:
            self.check_unwritten()
            outcome = self._round_of(self._rows_of_nan(), Info(), self._pulled)
            self._pulled.write()
            self._remember()
            self._tell(outcome)
        self._session.heard()
        return outcome

    def sit_out_unheard(self) -> Outcome:
        """Of Combined: as sit_out(), until combine_heard()."""
        self._drop_sent()
        self._drop_grads()
        return self.combine_unheard(Info(), self._rows_of_nan())

    def _rows_of_nan(self) -> list[Optional[torch.Tensor]]:
        sizes = [t.numel() for t in self._tensors.values()]
        nan = torch.full((max(sizes),), float("nan"))
        rows: list[Optional[torch.Tensor]] = [
            nan[:t.numel()].view(t.shape) for t in self._tensors.values()]
        if self._find_unused and max(sizes):
            # One NaN is enough, and a missing tensor costs nothing.
            one = min((size, i) for i, size in enumerate(sizes) if size)[1]
            rows = [row if i == one else None for i, row in enumerate(rows)]
        return rows

    # --- Beside the rounds ---

    def has(self, name: str) -> bool:
        """Whether it is the name of a tensor that this worker was made of."""
        return name in self._tensors

    def reduce(self, values: Mapping[str, np.ndarray], op: Optional[str],
               examples: float) -> dict[str, np.ndarray]:
        """Of allreduce, with float64 and int64 arrays."""
        return self._reducer.reduce(values, op, examples)

    @property
    def reduced_ranks(self) -> tuple[int, ...]:
        """Whose values are in the last allreduce beside the model."""
        return self._reducer.ranks

    def combine_heard(self) -> None:
        """The last outcome's gradient was stepped."""
        self._session.heard()

    def _write_grads(self, absent: set[int]) -> None:
        written: list[tuple[str, torch.Tensor, torch.Tensor]] = []
        for index, ((name, tensor), result) in enumerate(
                zip(self._tensors.items(), self._beside.targets())):
            if index in absent:
                # Also where a row that was left out had one: the others skip
                # this tensor, and zeros would decay it here alone.
                tensor.grad = None
                continue
            if tensor.grad is None and self._is_frozen(tensor):
                continue
            if tensor.grad is None or tensor.grad.is_sparse:
                tensor.grad = result.to(tensor.device, tensor.dtype, copy=True)
            else:
                tensor.grad.copy_(result)
            written.append((name, tensor.grad, result))
        if written:
            self._overflows.look(*zip(*written))

    def _is_frozen(self, tensor: torch.Tensor) -> bool:
        # In a dict there may be tensors that have never learned.
        return self._census is not None and not tensor.requires_grad

    def exchange(self, rows: Tensors, info: Optional[Info] = None
                 ) -> tuple[Outcome, dict[str, torch.Tensor]]:
        """A round of tensors that are not `p.grad`: what was pulled, float32
        by name, on the CPU or the tensors' devices, good until the next round.
        """
        found = self.exchange_unheard(rows, info or Info(), None)
        self.exchange_heard()
        return found

    def exchange_unheard(self, rows: Tensors, info: Info, by: Any
                         ) -> tuple[Outcome, dict[str, torch.Tensor]]:
        """Of LocalSteps: as exchange(), whose outcome is kept for `by` until
        the next round, or exchange_heard()."""
        self._check_rows(rows)
        self._drop_sent()
        self.check_tensors()
        self._round_by = by
        outcome = self._round([rows.get(name) for name in self._tensors], info,
                              self._beside)
        return self._tell(outcome), self._pulled_beside()

    def exchange_lost(self, by: Any
                      ) -> Optional[tuple[Outcome, dict[str, torch.Tensor]]]:
        """What the last exchange_unheard of `by` came to, if that was kept from
        it by an exception; waits for it."""
        outcome = self._unheard(by)
        return None if outcome is None else (outcome, self._pulled_beside())

    def exchange_heard(self) -> None:
        """What was pulled is where it belongs."""
        self._remembered = self.version
        self._session.heard()

    def _pulled_beside(self) -> dict[str, torch.Tensor]:
        return dict(zip(self._tensors, self._beside.targets()))

    def _unheard(self, by: object) -> Optional[Outcome]:
        outcome = self._session.unheard()  # also waits for others' rounds
        return outcome if self._round_by is by else None

    def pull(self, version: Optional[int] = None,
             full_precision: bool = False) -> int:
        """Pulls a version (None: the newest) over the parameters; returns it.
        """
        self._require("server", "pull")
        memory, keep = self._pulled.memory()
        try:
            pulled = self._session.pull(version, memory, full_precision, keep)
        except BaseException:
            if self._pulled is not self._beside:
                self._watch.forget()  # undefined, by nobody else
            raise
        self._pulled.write()
        self._session.heard()
        self._remember()
        for hook in list(self._pull_hooks):
            hook(dict(zip(self._tensors, self._pulled.targets())))
        return pulled

    def on_pull(self, hook: PullHook) -> Callable[[], None]:
        """Of LocalSteps: called with what pull() has written over the
        parameters, by name, until the result is called."""
        self._pull_hooks.append(hook)
        return lambda: self._pull_hooks.remove(hook)

    def _remember(self) -> None:
        self._remembered = self.version
        self._watch.remember()

    def check_unwritten(self) -> None:
        """NotNow: others have written into a parameter since the last pull, of
        which the server would not hear. step() asks this by itself."""
        if not self._watch.suspects():
            return
        version = self.version
        if version != self._remembered:
            self._drop_sent()
            raise NotNow(
                f"the parameters are not those of version {version}: a call "
                "that an exception (Ctrl-C) has ended has brought this worker "
                f"there from version {self._remembered}, and has not written "
                "them, or they were written since. Allowed: worker.pull(), "
                "before the next backward()")
        staging = Staging(list(self._tensors.values()))
        values = [staging.buffer(i) for i in range(len(self._tensors))]
        try:
            self._session.pull(version,
                               targets_of([memory_of(t) for t in values]),
                               False, values)
        except VersionGone:
            # Rounds have gone on without this worker (a quorum), and its next
            # one brings it to the newest version, as without a write.
            self._say_once("not compared", logging.WARNING,
                           f"a parameter may have been written since version "
                           f"{version} was pulled, which the server does not "
                           "keep any more: it cannot be compared, and the next "
                           "round replaces it")
            return
        written = differ(list(self._tensors.values()), values)
        if not written:
            self._remember()
            return
        self._drop_sent()
        names = list(self._tensors)
        raise NotNow(written_complaint([names[i] for i in written], version,
                                       "worker.pull()"))

    # --- What is known ---

    @property
    def overlaps(self) -> bool:
        """backward() sends gradients: made with overlap=True."""
        return self._overlap is not None

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

    def parameters_digest(self) -> int:
        """What this worker's rows say of its parameters: equal numbers of
        workers at the same version are equal parameters. Of a large model a
        part, another one at each version. 0: nothing (mode "server",
        replicated=False, one that has joined later and has not got them)."""
        if self._replica is None or (
                self._late is not None and
                self._replica.writes() == self._late):
            return 0
        return self._replica.digest(self.version)

    def check_tensors(self) -> None:
        """ManifestError: the model has another tensor in place of one of the
        worker's, which is named."""
        if self._census is not None:
            self._census.check()

    def name_of(self, tensor: torch.Tensor) -> str:
        """In the model, or the dict; "": it is not there."""
        for name, own in self._tensors.items():
            if own is tensor:
                return name
        return "" if self._census is None else self._census.name_of(tensor)

    def add_listener(self, listener: Listener) -> None:
        """Called with each outcome, in the thread of the round. What it raises
        is logged, once, and ends nothing: other workers go on."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Leaves the job; the others go on. When its last worker leaves, a job
        has finished for good: do not close between two epochs of data."""
        self._tell_unused()
        if self._overlap is not None:
            self._overlap.close()
        super().close()

    def _tell_unused(self) -> None:
        """A script that has trained, and never made a round; or that has left
        the result of the last one."""
        if not self._session.usable:
            return
        left = self._session.kept
        if left is not None and left.applied and self._replica is not None \
                and self._round_by is self:
            _log.warning(
                "rank %d leaves, and has not stepped what round %d combined, "
                "since an exception came between: its parameters are not those "
                "of version %d, which the others have", self.rank, left.round,
                left.version)
        if self.last is not None or self._begun is None:
            return
        begun, self._begun = self._begun, None
        trained = [name for (name, t), version in
                   zip(self._tensors.items(), begun)
                   if t.grad is not None and t._version != version]
        if trained:
            call = ("step()" if self.mode == "server" else
                    "combine(), or Combined's step()")
            _log.warning(
                'rank %d leaves, and has made no round: "%s" has a gradient '
                "and was written, which no other worker has heard of; call %s "
                "in place of the optimizer's own step", self.rank, trained[0],
                call)

    # --- Inside ---

    def _require(self, mode: str, call: str) -> None:
        if self.mode != mode:
            raise ManifestError(
                f'mode is "{self.mode}"; allowed for {call}(): "{mode}"')

    def _check_rows(self, rows: Tensors) -> None:
        for name, row in rows.items():
            if name not in self._tensors:
                raise ManifestError(
                    f'"{name}" is none of the tensors that the Worker was made '
                    "of; allowed: these. Other values need a job and a Worker "
                    f'of their own: Worker({{"{name}": t}}, mode="combine", '
                    'job="..."), with `agg-launch --job` (README.md, '
                    '"Several jobs")')
            if not isinstance(row, torch.Tensor):
                raise ManifestError(f'the row of "{name}" is a '
                                    f"{type(row).__name__}; allowed: a tensor")
        lacking = [name for name in self._tensors if rows.get(name) is None]
        if lacking and not self._find_unused:
            raise ManifestError(
                f'the row of "{lacking[0]}" is missing; allowed: rows of all '
                "tensors that the Worker was made of, or "
                "Worker(find_unused=True), with which missing ones are zero")

    def _check_mode(self, overlap: bool) -> None:
        kind = self.job.optimizer  # "": a server that does not say it
        if kind == "add" and overlap:
            raise ManifestError('overlap is True and the job\'s optimizer "add"'
                                ", which takes no gradients; allowed: "
                                "overlap=False")
        if kind and (kind == "none") != (self.mode == "combine"):
            allowed = ('"combine", or a job whose optimizer is another one'
                       if kind == "none" else
                       '"server", or a job with optimizer { kind: "none" }')
            raise ManifestError(f'mode is "{self.mode}" and the job\'s '
                                f'optimizer "{kind}"; allowed: {allowed}')

    def _start(self) -> None:
        # Beside: what others get must not be half of a seed.
        if self.mode == "server" or self._replica is not None:
            for target, tensor in zip(self._beside.targets(),
                                      self._tensors.values()):
                target.copy_(tensor.detach())
            self._check_seed()
        # Of tensors that are no parameters the seed's values mean nothing.
        self._session.seed_or_pull(*self._beside.memory())
        if self.mode == "server":
            if self.version > 0 and differ(list(self._tensors.values()),
                                           self._beside.targets()):
                _log.warning(
                    'rank %d joins job "%s" at version %d: its parameters '
                    "replace those that the model had (a checkpoint that was "
                    "loaded into it, say)", self.rank, self.job.name,
                    self.version)
            self._beside.write()
            self._remember()
        elif self.version > 0:
            self._join_later()
        elif self._replica is not None:
            self._take_seed()

    def _tell_buffers(self, model: Any) -> None:
        """DistributedDataParallel sends buffers, SyncBatchNorm statistics."""
        if not isinstance(model, torch.nn.Module) or self.job.workers < 2:
            return
        norms = {canonical_name(name): layer
                 for name, layer in model.named_modules()
                 if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)
                 and layer.track_running_stats and layer.training}
        if not norms:
            return
        first = next(iter(norms.values()))
        _log.warning(
            "the running statistics of %s are not sent: rank %d has its own%s. "
            "Save, and evaluate, with those of one rank, or use GroupNorm",
            named(list(norms)), self.rank,
            "; SyncBatchNorm needs torch.distributed, whose processes alone it "
            "joins" if isinstance(first, torch.nn.SyncBatchNorm) else "")

    def _take_seed(self) -> None:
        """All begin with the parameters of the worker that has seeded."""
        with torch.no_grad():
            own, seed = list(self._tensors.values()), self._beside.targets()
            others = differ(own, seed)
            for index in others:
                own[index].copy_(seed[index])
        if others and not self._session.state().seed_role:
            names = list(self._tensors)
            _log.warning(
                'rank %d begins with the parameters of the worker that has '
                'seeded: those of %s were others. (Where some ranks alone have '
                'loaded a checkpoint, say seed="rank0")', self.rank,
                named([names[i] for i in others]))

    def _join_later(self) -> None:
        """The server has what was combined, and no parameters."""
        version = self.version
        try:
            self.last = self._session.wait(version)
        except VersionGone:
            _log.warning("how round %d has ended is not kept any more: tau is "
                         "not known before the next round", version - 1)
        if self._replica is not None:
            self._late = self._replica.writes()
            _log.warning(
                "this worker (rank %d) has joined at version %d of a job whose "
                "optimizer is \"none\": the server has no parameters to give. "
                "worker.catch_up(load) gets them, and the optimizer's state, "
                "from a checkpoint of the other workers; a step without them "
                "is refused", self.rank, version)

    def _check_seed(self) -> None:
        for name, target in zip(self._tensors, self._beside.targets()):
            own = self._tensors[name].detach()
            if own.dtype is torch.float64 and bool(own.isfinite().all()) and \
                    not bool(target.isfinite().all()):
                raise ManifestError(
                    f'tensor "{name}" is float64 with values up to '
                    f"{own.abs().max().item():.4g}; allowed: up to 3.4e38, "
                    "since the server keeps float32")

    def _drop_sent(self) -> None:
        """Gives up what backward() has sent."""
        if self._overlap is not None:
            self._overlap.drop()

    def _drop_grads(self) -> None:
        for tensor in self._tensors.values():
            tensor.grad = None

    def _round_of(self, rows: Optional[Sequence[Optional[torch.Tensor]]],
                  info: Info, into: Pulled) -> Outcome:
        """rows: None: the gradients, of which some may have gone before."""
        try:
            self.check_tensors()
            if self._census is not None:
                self._census.check_gradients()
            self._round_by = self
            info.parameters_digest = self.parameters_digest()
            grads = rows or [t.grad for t in self._tensors.values()]
            taken = rows is None and self._overlap and self._overlap.take()
            if not taken:
                return self._round(grads, info, into)
            row, given = taken
            try:
                rest = [i for i, grad in enumerate(grads)
                        if grad is not None and i not in given]
                return self._round([grads[i] for i in rest], info, into, rest,
                                   row)
            except BaseException:
                # Else the row would stay open, and another could not begin.
                if not self._session.busy:
                    self._session.drop(row)
                raise
        except BaseException as error:
            if into is not self._beside:
                self._watch.forget()  # undefined, by nobody else
            # The push may go on: the next backward must not write into it.
            if isinstance(error, KeyboardInterrupt) or self._session.busy:
                self._drop_grads()
            frozen = [name for name, t in self._tensors.items()
                      if not t.requires_grad and f'"{name}"' in str(error)]
            if "is missing; only optional" in str(error):
                raise ManifestError(
                    f"{error}; " + (
                        "it does not require a gradient any more: say "
                        "find_unused=True to freeze layers after the Worker is "
                        "made" if frozen else
                        "call loss.backward() first, or say find_unused=True, "
                        "or call sit_out() where this worker has no batch"),
                    "INVALID_ARGUMENT") from error
            raise

    def _round(self, rows: Sequence[Optional[torch.Tensor]], info: Info,
               into: Pulled, tensors: Optional[list[int]] = None,
               keep: Any = None) -> Outcome:
        """tensors: the indices of the rows, if others were given before."""
        views: list[Optional[torch.Tensor]] = []
        try:
            if tensors is None and self._row.fill(self._views, rows):
                views = list(rows)
            else:
                views, memory = self._row.views(
                    range(len(rows)) if tensors is None else tensors, rows)
                self._views.fill(memory)
            targets, targets_keep = into.memory()
            return self._session.round(self._views, info, targets,
                                       (views, targets_keep, keep), tensors)
        except BaseException:
            # It may go on: with its copies, and with the storage that the rows
            # have now. (Here, since most rounds need not pay for that.)
            self._row.forget()
            views.extend([v.detach() for v in views if v is not None])
            raise

    def _tell(self, outcome: Outcome) -> Outcome:
        if outcome is self.last:  # it was told, before an exception
            return outcome
        self.last = outcome
        if outcome.differing_ranks:
            self._tell_differing(outcome)
        for listener in self._listeners:
            # Else this worker alone would not step what was combined.
            try:
                listener(outcome)
            except Exception as error:  # pylint: disable=broad-except
                self._say_once(
                    f"listener {id(listener)}", logging.ERROR,
                    f"the listener {listener!r} has raised {error!r} in round "
                    f"{outcome.round}; the round counts, and it is called "
                    "again in the next one", error)
        return outcome

    def _tell_differing(self, outcome: Outcome) -> None:
        """Each set of ranks once, and not more of them than a person reads."""
        ranks = outcome.differing_ranks
        if ranks in self._differing or len(self._differing) >= _MOST_SETS:
            return
        self._differing.add(ranks)
        _log.warning("round %d: %s%s", outcome.round, outcome.message,
                     "" if len(self._differing) < _MOST_SETS else
                     f" (the last of {_MOST_SETS} sets of ranks that are named "
                     "here; outcome.differing_ranks goes on)")

    def _say_once(self, key: str, level: int, text: str,
                  error: Optional[BaseException] = None) -> None:
        if key not in self._said:
            self._said.add(key)
            _log.log(level, "%s", text, exc_info=error)


def _array_of(name: str, value: Any, op: Optional[str]) -> np.ndarray:
    if not isinstance(value, torch.Tensor):
        return array_of(name, value, op)
    if value.layout != torch.strided or value.device.type == "meta" or \
            hasattr(value, "full_tensor") or value.is_quantized:
        raise ManifestError(f'"{name}" is no plain tensor ({value.layout}, '
                            f"{value.device}); allowed: dense ones with values")
    t = value.detach().cpu()
    if t.dtype == torch.bool or t.is_complex():
        raise ManifestError(
            f'"{name}" is {value.dtype}; allowed: floats and integers (count a '
            "bool's, or reduce real and imaginary parts)")
    # An uint64 need not be an int64.
    return array_of(name, (t.double() if t.is_floating_point()
                           else t).numpy(), op)


def _like(name: str, value: Any, found: np.ndarray) -> Any:
    """`found` as what was given."""
    if not isinstance(value, torch.Tensor):
        return found.item() if isinstance(value, (int, float)) else found
    exact = torch.from_numpy(np.array(found))
    if found.dtype.kind == "i" and found.size and not (
            torch.iinfo(value.dtype).min <= found.min() and
            found.max() <= torch.iinfo(value.dtype).max):
        raise ManifestError(f'the sum of "{name}" is beyond {value.dtype}; '
                            "allowed: a wider type, int64 say")
    result = exact.to(value.device, value.dtype)
    if exact.isfinite().all() and not result.isfinite().all():
        warn(f'"{name}" is {value.dtype}, and what came for it is beyond its '
             "range: it is infinite there. Reduce it as float64")
    return result


@untraced
def allreduce(tensors: Any, worker: Worker, examples: float = 1,
              op: Optional[str] = None) -> Any:
    """All workers' tensors as one: the job's own by its rule (Adasum, mean,
    ...), or a few numbers beside the model: {"accuracy": t}.

    Args:
      tensors: by name, same on all workers. In mode "combine" names that
        `worker` was made of: a round of the job, which combines them. Else
        what is reduced beside the model, without a round: floats, or (with
        "sum") integers, 8,191 numbers in all; tensors, Python's numbers, numpy
        arrays. One of them without a name, too.
      examples: that the values are means of: weights. Beside the model 0 says
        that this worker has none.
      op: beside the model "mean" (the default) or "sum", in float64.

    Returns new tensors of the same dtypes and devices (numbers for numbers),
    the same on all workers; what is beyond a float dtype's range is infinite,
    and a warning names it. No gradient flows through.

    All workers make the same reductions in the same order. Each waits for
    every worker that is in, for round_timeout, and says for whom; who leaves or
    is lost is not waited for. `worker.reduced_ranks` has whose values are in the
    last one, and a warning says if one that is in was left out. What was given
    to one worker survives the loss of a process. The end of the wait, or
    Ctrl-C, takes the values back; had the others the result already, it is
    returned, after Ctrl-C by the next call of the same one.

    Raises ManifestError: names, shapes or dtypes that do not fit, on this
    worker or between two (nothing is broadcast), or too many numbers; Error:
    no worker's values were finite (of the job's own tensors).
    """
    named = tensors if isinstance(tensors, Mapping) else {"value": tensors}
    if worker.mode == "combine" and isinstance(tensors, Mapping) and (
            not tensors or any(worker.has(name) for name in tensors)):
        if op is not None:
            raise ManifestError(
                f'op is "{op}", and the job\'s own tensors are combined by its '
                "rule; allowed: other names, or no op")
        if examples != int(examples):
            raise ManifestError(f"examples is {examples}; allowed for the "
                                "job's own tensors: a whole number")
        return _combine(tensors, worker, int(examples))
    if not named:
        raise ManifestError("nothing is given; allowed: at least one tensor")
    for name in named:
        check_name(name)
    found = worker.reduce({name: _array_of(name, value, op)
                           for name, value in named.items()}, op, examples)
    results = {name: _like(name, value, found[name])
               for name, value in named.items()}
    return results if isinstance(tensors, Mapping) else results["value"]


def _combine(tensors: Tensors, worker: Worker, examples: int
             ) -> dict[str, torch.Tensor]:
    outcome, pulled = worker.exchange(tensors, Info(examples=examples))
    if not outcome.applied:
        raise Error(f"the round was {outcome.kind}: {outcome.message}")
    results = {name: pulled[name].to(t.device, t.dtype, copy=True)
               for name, t in tensors.items()}
    Overflows().look(results, results.values(),
                     [pulled[name] for name in results])
    return results


__all__ = ["Worker", "allreduce", "await_seed"]
