"""The thread that makes a client's blocking calls.

Python handles Ctrl-C in the main thread, between two of its own instructions:
so the main thread may wait for this one, and must not wait inside C++.
"""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from typing import Any, Callable, Optional

from agg_server.errors import Cancelled

_Call = tuple[Callable[[], Any], "concurrent.futures.Future[Any]"]


class CallThread:
    """Makes calls in their order, one at a time.

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
