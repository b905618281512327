"""Signals that come while something must not be left half done."""

from __future__ import annotations

import signal
import types
from typing import Any, Callable, Optional, Type

# What a program may have a handler for that raises.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM,
            signal.SIGUSR1, signal.SIGUSR2)
# To set handlers: more exceptions of theirs in that time are a program's fault.
_TRIES = 100

_Handler = Callable[[int, Optional[types.FrameType]], Any]


class Deferred:
    """In the main thread, which alone runs Python's handlers: those of signals
    run behind the block, once for each signal. Elsewhere: nothing."""

    def __enter__(self) -> "Deferred":
        self._former: list[tuple[signal.Signals, _Handler]] = []
        self._came: dict[int, Optional[types.FrameType]] = {}
        try:
            for number in _SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    # First: another one's handler may raise between the two.
                    self._former.append((number, handler))
                    signal.signal(number, self._note)
        except BaseException as error:
            if isinstance(error, ValueError) and self._former and \
                    signal.getsignal(self._former[0][0]) != self._note:
                # Another thread, or a subinterpreter.
                self._former = []
                return self
            self._restore()
            raise
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[types.TracebackType]) -> None:
        handlers = dict(self._former)
        raised: Optional[BaseException] = None
        try:
            self._restore()
        except BaseException as first:
            raised = first
        for number, frame in self._came.items():
            try:
                handlers[signal.Signals(number)](number, frame)
            except BaseException as next_one:
                raised = raised or next_one
        if raised is not None:
            raise raised

    def _note(self, number: int, frame: Optional[types.FrameType]) -> None:
        self._came.setdefault(number, frame)

    def _restore(self) -> None:
        raised: Optional[BaseException] = None
        # A handler that is there again may raise anywhere here: what is still
        # on the list is set once more.
        for _ in range(_TRIES):
            try:
                while self._former:
                    signal.signal(*self._former[-1])
                    self._former.pop()
                break
            except BaseException as error:
                raised = error
        if raised is not None:
            raise raised
