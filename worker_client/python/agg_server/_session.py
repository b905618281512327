"""One client of the C ABI: its handle, its thread, its errors, its end."""

from __future__ import annotations

import atexit
import concurrent.futures
import functools
import logging
import os
import threading
import weakref
from typing import Any, Callable, Optional, Sequence

from agg_server import _abi
from agg_server._call_thread import CallThread
from agg_server._info import Info, push_info_of
from agg_server._operation import Memories, Operation
from agg_server.errors import Error, ForkedError, ManifestError, error_of
from agg_server.outcome import (Job, Outcome, TensorSpec, job_of, outcome_of)
from agg_server.tls import fields_of

_log = logging.getLogger("agg_server")

# Events that end a session, and those that a person wants to see.
_ENDS = (2, 5, 6)
_LEVELS = {0: logging.ERROR, 2: logging.ERROR, 5: logging.ERROR,
           6: logging.ERROR, 4: logging.WARNING, 7: logging.WARNING,
           8: logging.WARNING, 9: logging.WARNING, 10: logging.WARNING,
           11: logging.WARNING}
# How often a wait looks at what the client has heard.
_LOOK_SECONDS = 0.2
# Of close(): of which leaving may take call_timeout.
_END_SECONDS = 15.0

_sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()


def _specs(manifest: Sequence[TensorSpec]) -> Any:
    specs = (_abi.Spec * len(manifest))()
    for spec, tensor in zip(specs, manifest):
        spec.name = tensor.name.encode()
        spec.group = tensor.group.encode()
        spec.shape = (_abi.c_int64 * len(tensor.shape))(*tensor.shape)
        spec.num_dimensions = len(tensor.shape)
        spec.optional = tensor.optional
    return specs


class Session:
    """Thread-safe; every wait ends with Ctrl-C, which leaves the call running:
    the next one comes after it. What memory a call uses, `keep` holds.
    """

    def __init__(self, manifest: Sequence[TensorSpec], coordinator: str,
                 rank: int = 0, observer: bool = False,
                 options: Optional[dict[str, Any]] = None) -> None:
        """options: further fields of agg_options, by name (times in s)."""
        self._lib = _abi.load()
        self._process = os.getpid()
        self._closing = threading.Lock()
        # Held by what uses the handle outside of the calls' thread. Garbage
        # collection may enter it again.
        self._handle_lock = threading.RLock()
        # Whose round or call is next; a logging handler may call again.
        self._turn = threading.RLock()
        # That Ctrl-C has left: what comes next waits for them.
        self._left_behind: list[Operation] = []
        self._left = False
        self._ended_by: Optional[int] = None
        self._job: Optional[Job] = None
        c = _abi.Options()
        self._lib.agg_options_init(_abi.byref(c), c.size)
        c.coordinator = coordinator.encode()
        c.rank, c.observer = rank, observer
        c.specs, c.num_specs = _specs(manifest), len(manifest)
        for name, value in fields_of(options or {}).items():
            if value is None:
                continue
            if name not in {field[0] for field in _abi.Options._fields_}:
                raise TypeError(f"{name} is no option of a client")
            setattr(c, name, value.encode() if isinstance(value, str)
                    else value)
        self._handle = self._lib.agg_new(_abi.byref(c))
        if not self._handle:
            raise ManifestError(_abi.text(self._lib.agg_error()),
                                "INVALID_ARGUMENT")
        self._thread = CallThread(f"agg-rank{rank}")
        _sessions.add(self)
        try:
            self._call(self._connect)
        except BaseException:
            self.close()
            raise

    # --- Calls ---

    def seed_or_pull(self, targets: Memories, keep: Any) -> None:
        """As AggClient::SeedOrPull."""
        self._call(lambda: self._lib.agg_seed_or_pull(
            self._handle, targets.array, targets.count), keep)

    def seed_file(self, path: str) -> None:
        """As AggClient::SeedFile."""
        self._call(lambda: self._lib.agg_seed_file(
            self._handle, path.encode(), None))

    def round(self, gradient: Memories, info: Info, parameters: Memories,
              keep: Any, tensors: Optional[Sequence[int]] = None) -> Outcome:
        """As AggClient::StartRound, and its outcome.

        tensors: the indices of the gradient's first ones, the others were
        given to start_push; None: the gradient is a whole row.
        """
        named = (None if tensors is None else
                 (_abi.c_uint64 * len(tensors))(*tensors))
        count = gradient.count if tensors is None else len(tensors)
        c_info, outcome = push_info_of(info), _abi.OutcomeStruct()
        self._check_usable()
        with self._turn:
            self._settle()
            operation = Operation(self._lib, keep)
            try:
                self._check(self._now(lambda: self._lib.agg_start_round(
                    self._handle, named, gradient.array, count,
                    _abi.byref(c_info), parameters.array, parameters.count,
                    _abi.byref(operation.handle))))
                self._await_operation(operation)
            except BaseException:
                if operation.handle:
                    self._left_behind.append(operation)
                raise
            ended = self._with_message(lambda: operation.end(outcome))
            result = outcome_of(outcome) if ended[0] == 0 else None
            operation.free()
        self._check(ended)
        assert result is not None
        return result

    def start_push(self, tensors: Any, gradient: Memories, count: int,
                   row: Optional[Operation]) -> None:
        """As AggClient::StartPush, of the first `count` that are named. Does
        not wait. row: gets the row's handle; None: somebody has it."""
        self._check(self._now(lambda: self._lib.agg_start_push(
            self._handle, tensors, gradient.array, count,
            None if row is None else _abi.byref(row.handle))))

    @property
    def busy(self) -> bool:
        """A round that Ctrl-C has left goes on."""
        return any(not each.done() for each in self._left_behind)

    def settle(self) -> None:
        """Waits for the rounds that Ctrl-C has left."""
        self._check_usable()
        with self._turn:
            self._settle()

    def new_operation(self, keep: Any) -> Operation:
        """Without a handle yet."""
        return Operation(self._lib, keep)

    def end_of(self, operation: Operation) -> None:
        """Raises how a done one has failed, if it has."""
        self._check(self._with_message(operation.end))

    def drop(self, operation: Operation) -> None:
        """Cancels; when it returns, the operation's memory is the caller's."""
        operation.cancel()
        with self._turn:
            try:
                self._await_operation(operation)
            except BaseException:
                self._left_behind.append(operation)
                raise
            operation.free()

    def pull(self, version: Optional[int], targets: Memories,
             full_precision: bool, keep: Any) -> int:
        """As AggClient::Pull, or PullLatest for None; the version."""
        pulled = _abi.c_uint64(version or 0)

        def call() -> int:
            if version is None:
                return int(self._lib.agg_pull_latest(
                    self._handle, targets.array, targets.count,
                    full_precision, _abi.byref(pulled)))
            return int(self._lib.agg_pull(self._handle, version, targets.array,
                                          targets.count, full_precision))

        self._call(call, keep)
        return pulled.value

    def latest_version(self) -> int:
        """As AggClient::LatestVersion."""
        version = _abi.c_uint64()
        self._call(lambda: self._lib.agg_latest_version(
            self._handle, _abi.byref(version)))
        return version.value

    def wait(self, version: int) -> Outcome:
        """As AggClient::Wait."""
        outcome = _abi.OutcomeStruct()
        ended: Outcome = self._call(lambda: self._lib.agg_wait(
            self._handle, version, _abi.byref(outcome)), None,
            lambda: outcome_of(outcome))
        return ended

    # --- What is known at once ---

    def state(self) -> Any:
        """version, session, seed_role, finished."""
        state = _abi.State()
        self._check(self._now(
            lambda: self._lib.agg_get_state(self._handle, _abi.byref(state))))
        return state

    def job(self) -> Job:
        """How the job is set up."""
        self._check_usable()  # before the lock, which a fork may find held
        with self._handle_lock:  # as below
            if self._job is None:
                c = _abi.JobStruct()
                self._check(self._now(lambda: self._lib.agg_get_job(
                    self._handle, _abi.byref(c))))
                self._job = job_of(c)
            return self._job

    def manifest(self) -> list[TensorSpec]:
        """The job's."""
        specs, c = [], _abi.Spec()

        def read(index: int) -> int:
            return int(self._lib.agg_get_spec(self._handle, index,
                                              _abi.byref(c)))

        self._check_usable()
        with self._handle_lock:  # what it points to goes with the handle
            for index in range(self.job().num_tensors):
                self._check(self._now(functools.partial(read, index)))
                specs.append(TensorSpec(
                    _abi.text(c.name), tuple(c.shape[:c.num_dimensions]),
                    _abi.text(c.group), bool(c.optional)))
        return specs

    # --- The end ---

    def close(self) -> None:
        """Leaves the job, in bounded time; again: nothing. In a forked child:
        nothing, since the session is the parent's."""
        if os.getpid() != self._process:
            return
        with self._closing:
            handle = self._handle
            if handle is None:
                return
            self._left = True
            # From a thread, so that Ctrl-C ends the wait for it.
            leaver = threading.Thread(
                target=self._lib.agg_leave, args=(handle,), daemon=True)
            leaver.start()
            leaver.join(_END_SECONDS)
            self._drain_events()
            # What still runs (a Connect, say) uses the handle: then it stays.
            ended = self._thread.end(
                _LOOK_SECONDS if leaver.is_alive() or not self._connected
                else _END_SECONDS)
            if ended and not leaver.is_alive():
                with self._handle_lock:
                    self._handle = None
                self._lib.agg_free(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    # --- Inside ---

    def _connect(self) -> int:
        code = int(self._lib.agg_connect(self._handle))
        # Nobody waits for it any more: else the job would wait for a worker
        # that pushes nothing.
        if self._left:
            self._lib.agg_leave(self._handle)
        return code

    _connected = False

    def _check_usable(self) -> None:
        if os.getpid() != self._process:
            raise ForkedError(
                f"process {os.getpid()} is a fork of {self._process}, which "
                "has this client; make a new one in a process that was "
                "spawned (multiprocessing_context=\"forkserver\")", "FORKED")
        if self._left:
            raise error_of(1, "this client was closed", False, True, None)

    def _now(self, call: Callable[[], int]) -> tuple[int, str]:
        self._check_usable()
        with self._handle_lock:
            self._check_usable()
            return self._with_message(call)

    def _with_message(self, call: Callable[[], int]) -> tuple[int, str]:
        # The message is the thread's: it is read where the call was made.
        code = call()
        return code, _abi.text(self._lib.agg_error()) if code else ""

    def _call(self, call: Callable[[], int], keep: Any = None,
              result: Callable[[], Any] = lambda: None) -> Any:
        """`result` copies what the call gave, on the call's thread."""
        self._check_usable()

        def on_thread(kept: Any = keep) -> Any:
            code, message = self._with_message(call)
            return code, message, result() if code == 0 else kept

        with self._turn:
            self._settle()
            value = self._await(self._thread.submit(on_thread))
        self._check(value[:2])
        self._connected = True
        return value[2]

    def _await(self, future: "concurrent.futures.Future[Any]") -> Any:
        while True:
            try:
                return future.result(_LOOK_SECONDS)
            except concurrent.futures.TimeoutError:
                if future.done():
                    raise
            finally:
                self._drain_events()

    def _settle(self) -> None:
        """What Ctrl-C has left behind comes first."""
        while self._left_behind:
            operation = self._left_behind[0]
            self._await_operation(operation)
            operation.free()
            del self._left_behind[0]

    def _await_operation(self, operation: Operation) -> None:
        try:
            while not operation.done(_LOOK_SECONDS):
                self._drain_events()
        finally:
            self._drain_events()

    def _check(self, code_and_message: tuple[int, str]) -> None:
        code, message = code_and_message
        if code == 0:
            return
        finished = False
        if self._connected:
            state = _abi.State()
            with self._handle_lock:
                if self._handle is not None and self._lib.agg_get_state(
                        self._handle, _abi.byref(state)) == 0:
                    finished = bool(state.finished)
        elif code == 9:  # of Join: there is no state yet that says so
            finished = "the job has finished" in message
        raise error_of(code, message, finished, self._left, self._ended_by)

    def _drain_events(self) -> None:
        event = _abi.EventStruct()
        heard = []
        with self._handle_lock:
            while (self._handle is not None and
                   self._lib.agg_next_event(self._handle, 0.0,
                                            _abi.byref(event)) == 0):
                if event.kind in _ENDS:
                    self._ended_by = event.kind
                heard.append((event.kind, _abi.text(event.message)))
        # Without the lock: a handler may ask this session.
        for kind, message in heard:
            _log.log(_LEVELS.get(kind, logging.INFO), "%s",
                     message or f"event {kind}")


def _close_all() -> None:
    for session in list(_sessions):
        try:
            session.close()
        except Error:
            pass


atexit.register(_close_all)
