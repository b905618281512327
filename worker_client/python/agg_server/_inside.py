"""Rounds that run on the thread that called for them, inside C++.

That saves two changes of threads in each round. But Python handles a signal in
the main thread, between two of its own instructions: so while that thread is
inside, another one waits for signals, and ends the call when one has come. And
a third one hands on what the client has heard.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from typing import Optional, Protocol

# How often what clients have heard is handed on, while rounds run.
_LOOK_SECONDS = 0.2
# How often a call is told to end, and how many times: it may not have begun when
# a signal comes.
_AGAIN_SECONDS, _AGAIN = 0.02, 250


def _file_of(fd: int) -> Optional[tuple[int, int]]:
    """What is open there; None: nothing."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class Guest(Protocol):
    """Who is inside."""

    def interrupt(self) -> None:
        """Ends the call, if it runs. Called on another thread."""

    def look(self) -> None:
        """Hands on what was heard. Called on another thread."""


class Inside:
    """Of one process. Behind each enter() comes a leave() of the same thread.
    """

    def __init__(self) -> None:
        self._main_thread = threading.main_thread().ident
        # Python's handler of a signal writes its number there.
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._guests: set[Guest] = set()
        self._main_guest: Optional[Guest] = None
        # Whether signals come here: the main thread's alone.
        self._takes_signals = False
        # The file that somebody else has signals written to, and what it is.
        self._owner: Optional[tuple[int, tuple[int, int]]] = None
        # Counts: of entries, by any thread; of those of the main thread.
        self._entries = self._main_entries = 0
        self._idle = threading.Event()  # set: nobody looks
        self._wanted = threading.Event()
        for name, loop in (("agg-signals", self._await_signals),
                           ("agg-events", self._look)):
            # Daemons, since Python joins others before its atexit functions.
            threading.Thread(target=loop, name=name, daemon=True).start()

    def enter(self, guest: Guest) -> bool:
        """False: a signal could not end the call."""
        if threading.get_ident() == self._main_thread:
            if not self._take_signals():
                return False
            self._main_entries += 1
            self._main_guest = guest
        self._guests.add(guest)
        self._entries += 1
        if self._idle.is_set():
            self._wanted.set()
        return True

    def leave(self, guest: Guest) -> None:
        """The call has ended, or enter() has not."""
        self._guests.discard(guest)
        if threading.get_ident() == self._main_thread:
            self._main_guest = None
            if self._takes_signals:
                self._leave_signals()

    def _take_signals(self) -> bool:
        # An owner is asked for by taking its place, and how it wants to be
        # warned cannot be asked for at all: one that is known is left alone.
        if self._owner is not None and _file_of(self._owner[0]) == \
                self._owner[1]:
            return False
        self._owner = None
        # Before the call: what ends in its midst is left, too.
        self._takes_signals = True
        try:
            former = signal.set_wakeup_fd(self._write,
                                          warn_on_full_buffer=False)
        except ValueError:  # in a subinterpreter
            self._takes_signals = False
            return False
        if former in (-1, self._write):
            return True
        signal.set_wakeup_fd(former)  # of somebody's event loop
        self._takes_signals = False
        file = _file_of(former)
        self._owner = None if file is None else (former, file)
        return False

    def _leave_signals(self) -> None:
        former = signal.set_wakeup_fd(-1)
        if former != self._write:
            signal.set_wakeup_fd(former)  # a handler's, which began a loop
        self._takes_signals = False

    def _await_signals(self) -> None:
        while True:
            try:
                os.read(self._read, 4096)
            except OSError:
                return
            entry, guest = self._main_entries, self._main_guest
            for _ in range(_AGAIN):
                if guest is None or self._main_guest is not guest or \
                        self._main_entries != entry:
                    break
                guest.interrupt()
                time.sleep(_AGAIN_SECONDS)

    def _look(self) -> None:
        seen = -1
        while True:
            # Nobody has come since the last look: no more of them until then.
            if seen == self._entries and not self._guests:
                self._idle.set()
                if seen == self._entries:
                    self._wanted.wait()
                self._idle.clear()
                self._wanted.clear()
            seen = self._entries
            time.sleep(_LOOK_SECONDS)
            for guest in list(self._guests):
                try:
                    guest.look()
                except Exception:  # of a handler of the log
                    traceback.print_exc()

    def forget(self) -> None:
        """In a forked child: signals are not the parent's."""
        if self._main_guest is not None:
            signal.set_wakeup_fd(-1)
        os.close(self._read)
        os.close(self._write)


_lock = threading.Lock()
_inside: Optional[Inside] = None


def inside() -> Inside:
    """This process's."""
    global _inside
    found = _inside
    if found is None:
        with _lock:
            if _inside is None:
                _inside = Inside()
            found = _inside
    return found


def _after_fork() -> None:
    global _inside, _lock
    former, _inside = _inside, None
    _lock = threading.Lock()
    if former is not None:
        former.forget()


os.register_at_fork(after_in_child=_after_fork)
