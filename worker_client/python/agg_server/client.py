"""A worker and an observer whose tensors are numpy arrays."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import threading
from typing import (TYPE_CHECKING, Any, Collection, Iterator, Mapping, Optional,
                    Sequence, Union)

import numpy as np

from agg_server import _abi
from agg_server._operation import Memory, targets_of, views_of
from agg_server._reduce import Reducer, array_of, check_name
from agg_server._session import Member, Session
from agg_server._shown import warn
from agg_server._untraced import untraced_calls
from agg_server._windows import digest_of_arrays
from agg_server.errors import ManifestError, NotNow, written_complaint
from agg_server.options import ClientOptions, shows_options
from agg_server.outcome import Info, Loss, Outcome, TensorSpec

if TYPE_CHECKING:
    from typing_extensions import Unpack

_log = logging.getLogger("agg_server")

Arrays = Mapping[str, np.ndarray]

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def job_variable(job: str) -> str:
    """Where agg-launch says the coordinator of one of several jobs."""
    return "AGG_COORDINATOR_" + job.upper().replace("-", "_")


def coordinator_of(coordinator: Optional[str], job: Optional[str] = None
                   ) -> str:
    """The argument, or AGG_COORDINATOR; of `job`, its own variable.
    ManifestError: neither is there."""
    if job is not None:
        if coordinator is not None:
            raise ManifestError(f'job is "{job}" and coordinator '
                                f'"{coordinator}"; allowed: one of the two')
        named = os.environ.get(job_variable(job))
        if not named:
            raise ManifestError(
                f'job is "{job}", and {job_variable(job)} is not set; allowed: '
                f"a name of agg-launch's --job, which sets it")
        return named
    found = coordinator or os.environ.get("AGG_COORDINATOR")
    if not found:
        raise ManifestError('coordinator is None; allowed: "host:port" of '
                            "shard 0, here or in AGG_COORDINATOR, which agg-launch "
                            "sets")
    return found


def rank_of(rank: Optional[int]) -> int:
    """The argument, or RANK. ValueError: neither is a number."""
    found = os.environ.get("RANK", "") if rank is None else str(int(rank))
    if not found.isdigit():
        raise ManifestError(f'rank is "{found}"; allowed: 0 or more, here or '
                            "in RANK, which agg-launch and torchrun set")
    return int(found)


def _memory(array: np.ndarray) -> Memory:
    # An empty array's pointer must not be null: that means "not there".
    return array.ctypes.data or 1, array.size, _abi.F32


def _differ(a: np.ndarray, b: np.ndarray) -> bool:
    """In their bytes: a NaN equals itself."""
    return bool(_memcmp(a.ctypes.data, b.ctypes.data, a.nbytes))


@untraced_calls
class _Base(Member):
    """What Client and Observer share."""

    @property
    def manifest(self) -> list[TensorSpec]:
        """The job's tensors."""
        return self._session.manifest()

    def latest_version(self) -> int:
        """The newest one. NotNow: nobody has seeded yet."""
        return self._session.latest_version()

    def wait(self, version: int) -> Outcome:
        """Of the round that publishes `version` >= 1; the last 16 are kept."""
        return self._session.wait(version)


@untraced_calls
class Client(_Base):
    """A worker whose parameters and gradients are numpy arrays.

        with agg.Client({"w": w}, coordinator="host:50051", rank=0) as client:
            while not client.finished:
                outcome = client.step({"w": gradient(w)}, loss=loss)

    Thread-safe, but for the arrays.
    """

    @shows_options
    def __init__(self, parameters: Arrays, coordinator: Optional[str] = None,
                 rank: Optional[int] = None, *,
                 groups: Optional[Mapping[str, str]] = None,
                 optional: Union[bool, Collection[str]] = (),
                 start: bool = True, job: Optional[str] = None,
                 **options: Unpack[ClientOptions]) -> None:
        """Joins the job; seeds it, or pulls over `parameters`.

        Args:
          parameters: by name, the same names, shapes and order on all workers;
            float32, contiguous and writeable: pulls write into them.
          coordinator: "host:port" of shard 0; default: AGG_COORDINATOR.
          rank: of this worker, unique in the job; default: RANK.
          groups: of the server's hyperparameters, by tensor name.
          optional: names of tensors that a push may lack; True: all.
          start: False: neither seed nor pull; start() does it.
          job: of several that agg-launch has started (--job), in place of
            coordinator.
          options: as ClientOptions has them.

        Raises:
          ManifestError: an argument, or another manifest than the job's.
          Timeout, ShardLost: nobody let this worker in for connect_timeout.
          JobFinished: there is no round to take part in.
        """
        for name, array in parameters.items():
            self._check_parameter(name, array)
        self._parameters = dict(parameters)
        self._staging = {name: array.copy()
                         for name, array in parameters.items()}
        self._targets = targets_of([_memory(a)
                                    for a in self._staging.values()])
        known = groups or {}
        self._check_names("groups", known)
        some = () if isinstance(optional, bool) else optional
        self._check_names("optional", some)
        specs = [TensorSpec(name, array.shape, known.get(name, ""),
                            optional is True or name in some)
                 for name, array in parameters.items()]
        self.rank = rank_of(rank)
        self._session = Session(specs, coordinator_of(coordinator, job), self.rank,
                                options=options)
        self.last: Optional[Outcome] = None
        self._reducer = Reducer(self._session, self.rank)
        self._warned_wide = False
        # Whether the parameters are the server's alone, what rounds are open,
        # and whether the parameters are what the staging has.
        self._servers = self.job.optimizer not in ("add", "none")
        self._counting, self._open = threading.Lock(), 0
        self._pulled = False
        self._begun = 0  # calls that write into the staging
        if start:
            try:
                self.start()
            except BaseException:
                self.close()
                raise

    def start(self) -> None:
        """Seeds the job with the parameters, or pulls over them."""
        for name, array in self._parameters.items():
            np.copyto(self._staging[name], array)
        self._session.seed_or_pull(self._targets, self._staging)
        if self.job.optimizer == "none" and self.version > 0:
            _log.warning(
                "this worker (rank %d) has joined at version %d of a job whose "
                "optimizer is \"none\": the server has no parameters to give, "
                "and those of the call stay. Load those of version %d from a "
                "checkpoint or another worker", self.rank, self.version,
                self.version)
            return
        self._write_back()

    def step(self, gradients: Mapping[str, Optional[np.ndarray]],
             loss: Loss = None, examples: int = 1,
             accumulation: int = 1, loss_scale: float = 1.0,
             norm_squared_sum: Optional[float] = None) -> Outcome:
        """A round: pushes, waits for the others, pulls over the parameters.

        The parameters change only if the whole round succeeds. With the
        optimizer "none" they are the combined gradient then: all_reduce().

        Args:
          gradients: by name, of the parameters' shapes, any float dtype (sent
            as float32, or as the job's push_dtype). A name that is optional
            may be missing, or None.
          loss: mean over the examples of the row.
          examples: that the row is the mean of.
          accumulation: micro-batches that the row is the mean of.
          loss_scale: the row is this times the gradient.
          norm_squared_sum: over micro-gradients, of ||g||^2, for AdaScale with
            one worker; each g in units of the pushed row, which is their mean
            (not their parts of it: those are accumulation times too small).

        Raises: agg.Error's kinds. ManifestError: a name, a shape, a number.
        NotNow: a parameter was written since the last pull, which the step
        would overwrite (unless the optimizer is "add" or "none").
        """
        self._check_unwritten()
        outcome = self._round(gradients, Info(
            loss, examples, accumulation, loss_scale, norm_squared_sum))
        self._write_back()
        return outcome

    def sit_out(self) -> Outcome:
        """A round without a row of this worker's, which has no batch for it:
        else as step(). Its row is of NaN, which every rule leaves out; the
        outcome has this rank in `excluded_ranks`.

        Raises: as step(). ManifestError: the optimizer is "add", whose
        parameters are this worker's own between two rounds; push zeros there.
        """
        if self.job.optimizer == "add":
            raise ManifestError(
                'the job\'s optimizer is "add"; allowed for sit_out(): another '
                "one; step() sends what has changed, or zeros")
        self._check_unwritten()
        outcome = self._round({name: np.full(array.shape, np.nan, np.float32)
                               for name, array in self._parameters.items()},
                              Info())
        self._write_back()
        return outcome

    def all_reduce(self, gradients: Mapping[str, Optional[np.ndarray]],
                   loss: Loss = None, examples: int = 1,
                   loss_scale: float = 1.0,
                   parameters: Optional[Sequence[np.ndarray]] = None
                   ) -> Optional[dict[str, np.ndarray]]:
        """The combined gradient of a round, float32 by name: with the
        optimizer "none". None: the round was skipped; `last` says why.

        parameters: that this worker steps itself, in an order that all have:
        the server compares them (`last.differing_ranks`)."""
        if self.job.optimizer != "none":
            raise ManifestError(
                f'the job\'s optimizer is "{self.job.optimizer}"; allowed for '
                'all_reduce: optimizer { kind: "none" }; call step instead')
        info = Info(loss, examples, loss_scale=loss_scale)
        if parameters is not None:
            info.parameters_digest = digest_of_arrays(list(parameters),
                                                      self.version)
        outcome = self._round(gradients, info)
        if not outcome.applied:
            return None
        return {name: a.copy() for name, a in self._staging.items()}

    def reduce(self, values: Mapping[str, Any], examples: float = 1,
               op: str = "mean") -> dict[str, Any]:
        """The mean, or "sum", of a few numbers of all workers, beside the
        model and the rounds: {"accuracy": 0.9}.

        Args:
          values: by name, the same names and shapes on all workers: numbers,
            or arrays of floats or (with "sum") integers; 8,191 numbers in all.
          examples: that the values are means of: weights of the mean. 0: this
            worker has none.

        Returns: float64 arrays by name (integers: int64), floats and ints
        where numbers were given; the same bytes on all workers.
        `reduced_ranks` has whose values are in them. Waits for every worker
        that is in, for round_timeout. Integers: up to 2**43 in size. Raises
        agg.Error's kinds.
        """
        for name in values:
            check_name(name)
        arrays = {name: array_of(name, value, op)
                  for name, value in values.items()}
        found = self._reducer.reduce(arrays, op, examples)
        return {name: found[name].item() if isinstance(value, (int, float))
                else found[name] for name, value in values.items()}

    @property
    def reduced_ranks(self) -> tuple[int, ...]:
        """Whose values are in the last reduce()."""
        return self._reducer.ranks

    def pull(self, version: Optional[int] = None,
             full_precision: bool = False) -> int:
        """Pulls a version (None: the newest one) over the parameters.

        Returns: the version. Raises VersionGone: it is not kept any more.
        """
        with self._staging_open():
            pulled = self._session.pull(version, self._targets, full_precision,
                                        self._staging)
        self._write_back()
        return pulled

    def _check_names(self, argument: str, names: Collection[str]) -> None:
        if isinstance(names, str):
            raise ManifestError(f'{argument} is "{names}"; allowed: a list of '
                                f'names, ["{names}"] say')
        for name in names:
            if name not in self._parameters:
                raise ManifestError(
                    f'{argument} has "{name}", which is none of the '
                    f"parameters; allowed: {', '.join(self._parameters)}")

    def _row(self, name: str, gradient: Any) -> np.ndarray:
        """A copy: after Ctrl-C the push goes on, and the caller's array may
        change."""
        given = np.asarray(gradient)
        # The second one is a type of JAX's.
        if not np.issubdtype(given.dtype, np.floating) and \
                given.dtype.name != "bfloat16":
            raise ManifestError(
                f'gradient "{name}" has the dtype {given.dtype}; allowed: '
                "floats, which are sent as float32 (integers beyond 2**24 would "
                "be rounded, imaginary parts dropped)")
        with np.errstate(over="ignore"):
            row = np.array(given, np.float32, order="C")
        if given.dtype.itemsize > 4:
            if np.isfinite(given).all() and not np.isfinite(row).all():
                raise ManifestError(
                    f'gradient "{name}" is {given.dtype} with values up to '
                    f"{np.abs(given).max():.4g}; allowed: up to 3.4e38, since "
                    "rows travel as float32; scale it (loss_scale=)")
            if not self._warned_wide:
                self._warned_wide = True
                warn(f'gradient "{name}" is {given.dtype}, and is sent as '
                     "float32")
        return row

    @staticmethod
    def _check_parameter(name: str, array: np.ndarray) -> None:
        if not isinstance(array, np.ndarray) or array.dtype != np.float32 or \
                not array.flags.c_contiguous or not array.flags.writeable:
            raise ManifestError(
                f'parameter "{name}" is not allowed; allowed: float32 numpy '
                "arrays, contiguous (C order) and writeable")

    def _round(self, gradients: Mapping[str, Optional[np.ndarray]],
               info: Info) -> Outcome:
        unknown = [name for name in gradients if name not in self._parameters]
        if unknown:
            raise ManifestError(f'gradient "{unknown[0]}" is not one of the '
                                "parameters")
        rows: list[Optional[np.ndarray]] = []
        for name, parameter in self._parameters.items():
            gradient = gradients.get(name)
            if gradient is None:
                rows.append(None)
                continue
            if np.shape(gradient) != parameter.shape:
                raise ManifestError(
                    f'gradient "{name}" has the shape {np.shape(gradient)}; '
                    f"allowed: {parameter.shape}")
            rows.append(self._row(name, gradient))
        # An array of this call's own: other threads may make rounds.
        views = views_of([(0, 0, _abi.F32) if row is None else _memory(row)
                          for row in rows])
        with self._staging_open():
            self.last = self._session.round(views, info, self._targets,
                                            (rows, self._staging))
        return self.last

    @contextlib.contextmanager
    def _staging_open(self) -> Iterator[None]:
        """The staging is what was pulled again once _write_back() follows: not
        behind a call that has failed, or that Ctrl-C has left."""
        with self._counting:
            self._open += 1
            self._begun += 1
            self._pulled = False
        try:
            yield
        finally:
            with self._counting:
                self._open -= 1

    def _write_back(self) -> None:
        for name, array in self._parameters.items():
            np.copyto(array, self._staging[name])
        with self._counting:
            self._pulled = self._open == 0

    def _check_unwritten(self) -> None:
        """The staging has what was pulled, unless a call has failed since."""
        with self._counting:
            begun, pulled = self._begun, self._pulled
        if not pulled or not self._servers:
            return
        written = [name for name, array in self._parameters.items()
                   if _differ(array, self._staging[name])]
        # Else another thread's round has come between.
        if written and begun == self._begun:
            raise NotNow(written_complaint(written, self.version,
                                           "client.pull()"))


@untraced_calls
class Observer(_Base):
    """Pulls only: for evaluation and serving. Needs no manifest, no rank.

        with agg.Observer("host:50051") as observer:
            version, arrays = observer.pull()
    """

    @shows_options
    def __init__(self, coordinator: Optional[str] = None, *,
                 job: Optional[str] = None,
                 **options: Unpack[ClientOptions]) -> None:
        """Connects to the job.

        Args:
          coordinator: "host:port" of shard 0; default: AGG_COORDINATOR.
          job: of several that agg-launch has started (--job), in place of
            coordinator.
          options: as ClientOptions has them.

        Raises NotNow while no worker has joined: there is no manifest.
        """
        self._session = Session([], coordinator_of(coordinator, job),
                                observer=True, options=options)

    def pull(self, version: Optional[int] = None, full_precision: bool = True
             ) -> tuple[int, dict[str, np.ndarray]]:
        """A version (None: the newest one) and its arrays, float32 by name.

        Waits for the version after the newest one, for round_timeout.
        """
        arrays = {spec.name: np.zeros(spec.shape, np.float32)
                  for spec in self.manifest}
        pulled = self._session.pull(
            version, targets_of([_memory(a) for a in arrays.values()]),
            full_precision, arrays)
        return pulled, arrays
