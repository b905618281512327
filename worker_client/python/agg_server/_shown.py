"""Text of others (a server's, a file's, a model's names) as people see it, in
errors, warnings and the log."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Sequence


# Whose frames a warning does not name: this package's, and what calls its hooks
# or wraps its calls.
_OWN = ("agg_server", "torch", "contextlib")


def shown(text: str, keep: str = "") -> str:
    """With what moves a terminal's cursor, or turns the direction of writing,
    as backslash escapes: control characters (C1, too), and those that format.
    keep: that stay, "\\n" of a text of several lines."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c in keep else
                    c.encode("unicode_escape").decode("ascii") for c in text])


def shown_lines(text: str) -> str:
    """Of a text that may have several lines: an error's."""
    return shown(text, "\n\t")


def warn(text: str) -> None:
    """A UserWarning that names the caller's line, however many frames of _OWN
    are between."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get(
            "__name__", "").partition(".")[0] in _OWN:
        frame, level = frame.f_back, level + 1
    warnings.warn(shown(text), stacklevel=level)


def named(names: Sequence[str]) -> str:
    """The first of one or more, and how many others: '"w" (and 2 more)'."""
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return f'"{names[0]}"{more}'


class ShownFilter(logging.Filter):
    """Of a logger: its messages are one printable line each."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if not text.isprintable():
            record.msg, record.args = shown(text), ()
        return True


# Every module's messages go to this one.
logging.getLogger("agg_server").addFilter(ShownFilter())
