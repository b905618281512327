"""What a client of the C ABI does, and what all clients have of it."""

from __future__ import annotations

import ctypes
import functools
import logging
import time
from typing import Any, Callable, Optional, Sequence, cast

import numpy as np

from agg_server import _abi
from agg_server._calls import LOOK_SECONDS, Calls
from agg_server._inside import inside
from agg_server._operation import Memories, Operation
from agg_server._untraced import Closing, untraced_calls
from agg_server.errors import NotNow, ShardLost, Timeout
from agg_server.options import ClientOptions, fields_of
from agg_server.outcome import (Info, Job, Outcome, TensorSpec, job_of,
                                outcome_of, push_info_of)


_log = logging.getLogger("agg_server")

_NOT_FOUND = 5

# Of await_seed.
_POLL_SECONDS, _MAX_POLL_SECONDS = 0.2, 2.0
# Without a limit: of one attempt to reach the coordinator.
_CONNECT_SECONDS = 30.0
# When it is said who is waited for, and when again.
_SAY_SECONDS, _SAY_AGAIN_SECONDS = 5.0, 60.0

# Sums, whose ranks are in them, whose are not.
Sums = tuple[np.ndarray, list[int], list[int]]

# Of an outcome's message: what narrow types lose, sums that cannot be, rows
# that are the same.
_SAYINGS = ("pull_dtype", "push_dtype", "norm_squared_sum",
            "rows that are equal")


class Session(Calls):
    """Thread-safe; every wait ends with Ctrl-C, which leaves the call running:
    the next one comes after it. What memory a call uses, `keep` holds.
    """

    def __init__(self, manifest: Sequence[TensorSpec], coordinator: str,
                 rank: int = 0, observer: bool = False,
                 options: Optional[ClientOptions] = None) -> None:
        """TypeError: an option that does not exist, or of a wrong type."""
        # That Ctrl-C has left: what comes next waits for them.
        self._left_behind: list[Operation] = []
        # Of the last round, until heard() is called.
        self._unheard: Optional[Outcome] = None
        self._interrupted = False
        self._said: set[str] = set()  # of _SAYINGS
        # What a reduction came to that Ctrl-C had left: what was reduced, at
        # which version, and the sums.
        self._unheard_sums: Optional[tuple[str, int, Sums]] = None
        super().__init__(manifest, coordinator, rank, observer, options)

    def seed_or_pull(self, targets: Memories, keep: Any) -> None:
        """As AggClient::SeedOrPull."""
        self._call(lambda: self._lib.agg_seed_or_pull(
            self._handle, targets.array, targets.count), keep)

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

        def start(operation: Operation) -> int:
            return int(self._lib.agg_start_round(
                self._handle, named, gradient.array, count,
                _abi.byref(c_info), parameters.array, parameters.count,
                _abi.byref(operation.handle)))

        def go_on(operation: Operation) -> int:
            # What a signal has ended, with the row that it has pushed.
            code = int(self._lib.agg_resume_round(
                self._handle, _abi.byref(operation.handle)))
            return start(operation) if code == _NOT_FOUND else code

        self._check_usable()
        with self._turn:
            self._settle()
            self._unheard = None
            ended: Optional[tuple[int, str]] = None
            try:
                if tensors is None:
                    try:
                        ended = self._round_here(gradient, c_info, parameters,
                                                 outcome)
                    except BaseException:
                        # A signal has ended it, before its outcome: it goes on.
                        if outcome.version == 0:
                            self._leave_behind(go_on, keep)
                        raise
                if ended is None:
                    ended = self._round_beside(
                        go_on if tensors is None else start, keep, outcome)
                result = outcome_of(outcome) if ended[0] == 0 else None
                self._unheard = result
            except BaseException:
                if outcome.version:
                    self._unheard = outcome_of(outcome)
                raise
            self._drain_events()  # behind what points into the outcome
        self._check(ended)
        assert result is not None
        if result.message:
            self._say_once(result)
        return result

    def _say_once(self, outcome: Outcome) -> None:
        """What is so round after round, in the worker's own log, too."""
        new = {saying for saying in _SAYINGS
               if saying in outcome.message} - self._said
        if new:
            self._said |= new
            _log.warning("round %d: %s", outcome.round, outcome.message)

    def _round_here(self, gradient: Memories, info: Any, parameters: Memories,
                    outcome: Any) -> Optional[tuple[int, str]]:
        """On this thread. None: a signal has ended it, and its handler has
        returned; or could not end it."""
        self._check_usable()
        with self._handle_lock:  # behind interrupt() of the round before
            self._interrupted = False
        try:
            entrance = inside()
        except RuntimeError:  # it needs threads, and Python is at its end
            return None
        try:
            if not entrance.enter(self):
                return None
            code = int(self._lib.agg_push_pull(
                self._handle, gradient.array, gradient.count,
                _abi.byref(info), parameters.array, parameters.count,
                _abi.byref(outcome)))
            message = _abi.text(self._lib.agg_error()) if code else ""
        finally:
            entrance.leave(self)
        if code == 1 and self._interrupted and not self._left:
            return None
        return code, message

    def _round_beside(self, start: Callable[[Operation], int], keep: Any,
                      outcome: Any) -> tuple[int, str]:
        """On a thread of the client."""
        operation = Operation(self._lib, keep)
        operation.is_round = True
        try:
            self._check(self._now(lambda: start(operation)))
            self._await_operation(operation)
        except BaseException:
            if operation.handle:
                self._left_behind.append(operation)
            raise
        ended = self._with_message(lambda: operation.end(outcome))
        operation.free()
        return ended

    def _leave_behind(self, start: Callable[[Operation], int], keep: Any
                      ) -> None:
        operation = Operation(self._lib, keep)
        operation.is_round = True
        with self._handle_lock:
            if self._handle is None or self._left or start(operation) != 0:
                return
        self._left_behind.append(operation)

    def interrupt(self) -> None:
        """Of `inside`."""
        with self._handle_lock:
            if self._handle is not None:
                self._interrupted = True
                self._lib.agg_interrupt(self._handle)

    def look(self) -> None:
        """Of `inside`."""
        self._drain_events()

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
        return any(each.reduces is None and not each.done()
                   for each in self._left_behind)

    def settle(self) -> None:
        """Waits for the rounds that Ctrl-C has left."""
        self._check_usable()
        with self._turn:
            self._settle()

    def unheard(self) -> Optional[Outcome]:
        """How the last round has ended, if an exception (Ctrl-C) has kept that
        from its caller, or from doing what it says. Waits for the round; the
        same until heard()."""
        self.settle()
        return self._unheard

    @property
    def kept(self) -> Optional[Outcome]:
        """As unheard(), of rounds that have ended already."""
        for operation in self._left_behind:
            if operation.is_round and operation.handle and operation.done():
                outcome = _abi.OutcomeStruct()
                if operation.end(outcome) == 0:
                    return outcome_of(outcome)
        return self._unheard

    def heard(self) -> None:
        """What the last outcome says was done."""
        self._unheard = None

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
        self._unheard_sums = None  # they were of another place
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

    def reduce(self, what: str, values: np.ndarray) -> Sums:
        """As AggClient::StartReduce, and its end; float64 values. Ctrl-C takes
        them back; if the reduction was made meanwhile, the next call of the
        same one gets its sums."""
        self._check_usable()
        with self._turn:
            self._settle()
            unheard, self._unheard_sums = self._unheard_sums, None
            if unheard is not None:
                if unheard[:2] == (what, self.state().version):
                    _log.warning("%s was interrupted after the other workers "
                                 "had its result: this call gives that, and "
                                 "the values of this call are not in it", what)
                    return unheard[2]
                _log.warning("%s was interrupted after the other workers had "
                             "its result, which is dropped: this call is "
                             "another one", unheard[0])
            operation = Operation(self._lib, None)
            operation.reduces = (what, self.state().version, values.size)
            given = np.ascontiguousarray(values, np.float64)
            pointer = ctypes.POINTER(ctypes.c_double)
            try:
                self._check(self._now(lambda: self._lib.agg_start_reduce(
                    self._handle, what.encode(), given.ctypes.data_as(pointer),
                    given.size, _abi.byref(operation.handle))))
                self._await_operation(operation)
                ended, sums = self._sums_of(operation, given.size)
            except BaseException:
                # No wait here, which another Ctrl-C would end.
                self._left_behind.append(operation)
                operation.cancel()
                raise
        self._check(ended)
        return sums

    def _sums_of(self, operation: Operation, count: int
                 ) -> tuple[tuple[int, str], Sums]:
        """Of a done one, which it frees."""
        sums = np.zeros(count)
        lists = [(ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t())
                 for _ in range(2)]
        ended = self._with_message(lambda: self._lib.agg_operation_sums(
            operation.handle,
            sums.ctypes.data_as(ctypes.POINTER(ctypes.c_double)), count,
            *[_abi.byref(each) for pair in lists for each in pair]))
        ranks, left_out = [[int(p[i]) for i in range(n.value)]
                           for p, n in lists]
        operation.free()
        return ended, (sums, ranks, left_out)

    # --- What is known at once ---

    def state(self) -> Any:
        """version, session, seed_role, finished."""
        state = _abi.State()
        self._check(self._now(
            lambda: self._lib.agg_get_state(self._handle, _abi.byref(state))))
        return state

    def job(self) -> Job:
        """How the job is set up, and bytes travel now."""
        c = _abi.JobStruct()
        self._check_usable()  # before the lock, which a fork may find held
        with self._handle_lock:  # as below
            self._check(self._now(lambda: self._lib.agg_get_job(
                self._handle, _abi.byref(c))))
            return job_of(c)

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

    # --- Operations ---

    def _settle(self) -> None:
        """What Ctrl-C has left behind comes first."""
        while self._left_behind:
            operation = self._left_behind[0]
            self._await_operation(operation)
            if operation.is_round and operation.handle:
                outcome = _abi.OutcomeStruct()
                if operation.end(outcome) == 0:
                    self._unheard = outcome_of(outcome)
            if operation.reduces is not None and operation.handle:
                what, version, count = operation.reduces
                ended, sums = self._sums_of(operation, count)
                if ended[0] == 0:
                    self._unheard_sums = (what, version, sums)
            del self._left_behind[0]
            operation.free()

    def _await_operation(self, operation: Operation) -> None:
        try:
            while not operation.done(LOOK_SECONDS):
                self._drain_events()
        finally:
            self._drain_events()


@untraced_calls
class Member(Closing):
    """A worker or an observer of a job, for as long as its session lasts."""

    _session: Session

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

    def close(self) -> None:
        """Leaves the job. When its last worker leaves, a job has finished."""
        self._session.close()


def await_seed(coordinator: str, timeout: Optional[float],
               options: ClientOptions) -> None:
    """Until somebody has seeded the job: another worker waits for rank 0. Timeout: nobody did in time (s; None:
    no limit, once the coordinator can be reached). options: of the worker;
    those that let it in count. TypeError: one of them is wrong."""
    fields_of(options)  # or it would be found wrong behind the wait
    own = cast(ClientOptions, {
        name: value for name, value in options.items()
        if name == "token_file" or name.startswith("tls")})
    begin = time.monotonic()
    pause, say_at = _POLL_SECONDS, begin + _SAY_SECONDS
    while True:
        now = time.monotonic()
        left = (_CONNECT_SECONDS if timeout is None else
                begin + timeout - now)
        if left <= 0:
            raise Timeout(f"nobody has seeded the job within {timeout} s; "
                          'with seed="rank0" rank 0 has to')
        session = None
        try:
            session = Session([], coordinator, observer=True,
                              options={"connect_timeout": left, **own})
            session.latest_version()
            return
        except NotNow as error:
            if now >= say_at:
                say_at = now + _SAY_AGAIN_SECONDS
                _log.warning('waiting for rank 0, which has to seed the job '
                             '(seed="rank0"): %s', error)
            time.sleep(min(left, pause))
            pause = min(1.5 * pause, _MAX_POLL_SECONDS)
        except ShardLost as error:
            raise Timeout(str(error), error.code) from error
        finally:
            if session is not None:
                session.close()
