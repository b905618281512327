"""Text of others (a server's, a file's, a model's names) as people see it."""

from __future__ import annotations

import logging


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


class ShownFilter(logging.Filter):
    """Of a logger: its messages are one printable line each."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if not text.isprintable():
            record.msg, record.args = shown(text), ()
        return True


# Every module's messages go to this one.
logging.getLogger("agg_server").addFilter(ShownFilter())
