"""One client of the C ABI: its handle, its thread, its errors, its end."""

from __future__ import annotations

import atexit
import concurrent.futures
import logging
import os
import queue
import threading
import weakref
from typing import Any, Callable, Optional, Sequence

from agg_server import _abi
from agg_server.errors import (Cancelled, Error, ForkedError, ManifestError,
                               error_of)
from agg_server.options import ClientOptions, fields_of
from agg_server.outcome import TensorSpec

_log = logging.getLogger("agg_server")

# Events that end a session, and those that a person wants to see.
_ENDS = (2, 5, 6)
_FINISHED = 1
_LEVELS = {0: logging.ERROR, 2: logging.ERROR, 5: logging.ERROR,
           6: logging.ERROR, 4: logging.WARNING, 7: logging.WARNING,
           8: logging.WARNING, 9: logging.WARNING, 10: logging.WARNING,
           11: logging.WARNING, 12: logging.WARNING, 13: logging.WARNING}
# How often a wait looks at what the client has heard.
LOOK_SECONDS = 0.2
# Of close(): of which leaving may take call_timeout.
_END_SECONDS = 15.0

_Call = tuple[Callable[[], Any], "concurrent.futures.Future[Any]"]

_sessions: "weakref.WeakSet[Calls]" = weakref.WeakSet()


def _specs(manifest: Sequence[TensorSpec]) -> Any:
    specs = (_abi.Spec * len(manifest))()
    for spec, tensor in zip(specs, manifest):
        spec.name = tensor.name.encode()
        spec.group = tensor.group.encode()
        spec.shape = (_abi.c_int64 * len(tensor.shape))(*tensor.shape)
        spec.num_dimensions = len(tensor.shape)
        spec.optional = tensor.optional
    return specs


class CallThread:
    """The thread that makes a client's blocking calls, in their order.

    Python handles Ctrl-C in the main thread, between two of its own
    instructions: so the main thread may wait for this one, and must not wait
    inside C++.

    A daemon, since Python joins other threads before it runs atexit functions,
    and then a call that waits for another worker would wait for ever.
    """

    def __init__(self, name: str) -> None:
        self._queue: "queue.SimpleQueue[Optional[_Call]]" = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._loop, name=name,
                                        daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], Any]
               ) -> "concurrent.futures.Future[Any]":
        """`call` keeps alive what it uses, also when nobody waits for it."""
        future: "concurrent.futures.Future[Any]" = concurrent.futures.Future()
        with self._lock:
            if self._ended:
                future.set_exception(Cancelled("this client was closed"))
            else:
                self._queue.put((call, future))
        return future

    def end(self, timeout: float) -> bool:
        """Ends after what was submitted; False: not within `timeout` (s), or
        called on the thread itself."""
        with self._lock:
            self._ended = True
            self._queue.put(None)
        if threading.current_thread() is self._thread:
            return False
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _loop(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                return
            call, future = item
            try:
                future.set_result(call())
            except BaseException as error:  # pylint: disable=broad-except
                future.set_exception(error)
            del item, call, future


class Calls:
    """How a client is called: Session has the calls. Thread-safe."""

    def __init__(self, manifest: Sequence[TensorSpec], coordinator: str,
                 rank: int = 0, observer: bool = False,
                 options: Optional[ClientOptions] = None) -> None:
        """TypeError: an option that does not exist, or of a wrong type."""
        self._lib = _abi.load()
        self._process = os.getpid()
        self._closing = threading.Lock()
        # Held by what uses the handle outside of the calls' thread. Garbage
        # collection may enter it again.
        self._handle_lock = threading.RLock()
        # Whose round or call is next; a logging handler may call again.
        self._turn = threading.RLock()
        self._left = False
        self._ended_by: Optional[int] = None
        self._finished_because = ""  # "finished at version 3: ..."
        c = _abi.Options()
        self._lib.agg_options_init(_abi.byref(c), c.size)
        c.coordinator = coordinator.encode()
        c.rank, c.observer = rank, observer
        c.specs, c.num_specs = _specs(manifest), len(manifest)
        for name, value in fields_of(options or {}).items():
            setattr(c, name, value)
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

    def _settle(self) -> None:
        """What Ctrl-C has left behind comes first."""
        raise NotImplementedError

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
            try:
                leaver.start()
                leaver.join(_END_SECONDS)
            except RuntimeError:
                # Python 3.12 starts no thread any more once it ends. Leaving
                # takes call_timeout at most, which Ctrl-C must wait for then.
                self._lib.agg_leave(handle)
            self._drain_events()
            # What still runs (a Connect, say) uses the handle: then it stays.
            timeout = (LOOK_SECONDS
                       if leaver.is_alive() or not self._connected
                       else _END_SECONDS)
            ended = self._thread.end(timeout)
            # Another thread's round is inside until it has heard of the end.
            if ended and not leaver.is_alive() and \
                    self._turn.acquire(timeout=timeout):
                try:
                    with self._handle_lock:
                        self._handle = None
                    self._lib.agg_free(handle)
                finally:
                    self._turn.release()

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
                "started by multiprocessing's \"spawn\" or \"forkserver\" "
                "(multiprocessing_context= of a DataLoader)", "FORKED")
        if self._left:
            raise error_of(1, "this client was closed", False, True, None)

    @property
    def usable(self) -> bool:
        """Neither closed, nor the parent's of a forked child."""
        return os.getpid() == self._process and not self._left

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
        # A plain lock: in the midst of a Condition's wait, as Future.result()
        # has it, Ctrl-C may become a RuntimeError of that Condition's lock.
        done = threading.Lock()
        done.acquire()
        future.add_done_callback(lambda _: done.release())
        while True:
            try:
                if done.acquire(timeout=LOOK_SECONDS):
                    return future.result()
            finally:
                self._drain_events()

    def _check(self, code_and_message: tuple[int, str]) -> None:
        code, message = code_and_message
        if code == 0:
            return
        self._drain_events()  # they may say why
        finished = False
        if self._connected:
            state = _abi.State()
            with self._handle_lock:
                if self._handle is not None and self._lib.agg_get_state(
                        self._handle, _abi.byref(state)) == 0:
                    finished = bool(state.finished)
        elif code == 9:  # of Join: there is no state yet that says so
            finished = "the job has finished" in message
        # A shard refuses a push without the reason, which the coordinator has.
        if finished and self._finished_because and \
                self._finished_because not in message:
            message += f" (the job has {self._finished_because})"
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
                message = _abi.text(event.message)
                if event.kind == _FINISHED:
                    self._finished_because = message
                heard.append((event.kind, message))
        # Without the lock: a handler may ask this session.
        for kind, message in heard:
            failed = kind == _FINISHED and ": it failed: " in message
            _log.log(logging.ERROR if failed else
                     _LEVELS.get(kind, logging.INFO), "%s",
                     message or f"event {kind}")


def _close_all() -> None:
    for session in list(_sessions):
        try:
            session.close()
        except Error:
            pass


atexit.register(_close_all)
