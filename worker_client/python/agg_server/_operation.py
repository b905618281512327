"""An operation of the C ABI, and the memory that it reads and writes.

The client does the work on threads of its own; who waits looks up now and
then, so that Python can handle Ctrl-C, and that costs no thread of Python's.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Optional, Sequence

import numpy as np

from agg_server import _abi

# (pointer, number of elements, dtype of the ABI); a pointer of 0: not there.
Memory = tuple[int, int, int]

# Memory of operations that went on behind a client that was not freed.
_kept: list[Any] = []


class Memories:
    """Arrays of agg_view or agg_target that are filled in again and again.

    Calls copy them: only the tensors' memory must stay.
    """

    def __init__(self, struct: Any, count: int) -> None:
        self.array = (struct * count)()
        self.count = count
        # Of the array's own memory: an item is made at each access.
        self._items = list(self.array)
        self._has_dtype = struct is _abi.View
        # The same as numbers: pointer, number of elements, dtype.
        self._words = np.frombuffer(self.array, np.uint64).reshape(
            count, ctypes.sizeof(struct) // 8)

    def fill_floats(self, pointers: Sequence[int], counts: Any) -> "Memories":
        """float32, all of them; counts: an array. In a fraction of fill()'s
        time. Itself."""
        self._words[:, 0] = pointers
        self._words[:, 1] = counts
        if self._has_dtype:
            self._words[:, 2] = _abi.F32
        return self

    def fill(self, memory: Sequence[Memory]) -> "Memories":
        """All of them; itself."""
        for item, (pointer, count, dtype) in zip(self._items, memory):
            item.data, item.num_elements = pointer, count
            if self._has_dtype:
                item.dtype = dtype
        return self


def views_of(memory: Sequence[Memory]) -> Memories:
    """An array of agg_view."""
    return Memories(_abi.View, len(memory)).fill(memory)


def targets_of(memory: Sequence[Memory]) -> Memories:
    """An array of agg_target."""
    return Memories(_abi.Target, len(memory)).fill(memory)


class Operation:
    """One handle. `keep` holds the memory until the operation is done.

    Used by one thread at a time, but for cancel().
    """

    def __init__(self, lib: Any, keep: Any) -> None:
        self._lib, self._keep = lib, keep
        self._process = os.getpid()
        # Filled in by an agg_start_ call; 0 until then.
        self.handle = _abi.c_void_p()
        self.is_round = False  # it has an outcome
        # It has sums: what is reduced, at which version, how many numbers.
        self.reduces: Optional[tuple[str, int, int]] = None

    def keep(self, more: Any) -> None:
        """Holds this, too. REQUIRES: `keep` is a list."""
        self._keep.append(more)

    def done(self, seconds: float = 0.0) -> bool:
        """Waits for so long; Ctrl-C comes after it."""
        return not self.handle or bool(
            self._lib.agg_operation_done(self.handle, seconds))

    def end(self, outcome: Any = None) -> int:
        """The code of a done one; agg_error() has the message."""
        return int(self._lib.agg_operation_end(
            self.handle, None if outcome is None else _abi.byref(outcome)))

    def cancel(self) -> None:
        """It ends soon."""
        if self.handle:
            self._lib.agg_operation_cancel(self.handle)

    def free(self) -> None:
        """Lets go of a done one; again: nothing. In a forked child: nothing,
        since it is the parent's."""
        if self.handle and os.getpid() == self._process:
            if not self.done():
                _kept.append(self._keep)
            handle, self.handle = self.handle, _abi.c_void_p()
            self._lib.agg_operation_free(handle)
        self._keep = None

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.free()
