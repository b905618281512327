"""Warnings that name the caller's line, however many frames are between."""

from __future__ import annotations

import sys
import warnings

from agg_server._shown import shown

_OWN = ("agg_server", "torch", "contextlib")


def warn(text: str) -> None:
    """A UserWarning at the innermost frame that is neither this package's nor
    torch's, which calls a hook or wraps a call."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get(
            "__name__", "").partition(".")[0] in _OWN:
        frame, level = frame.f_back, level + 1
    warnings.warn(shown(text), stacklevel=level)
