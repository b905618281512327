"""Checks how comments in headers begin.

A comment above a declaration begins with a verb or with a noun that names the
thing: "Ends the session", "Rows of the open round". A fragment ("Of the open
round", "By rank", "Likewise for a replica") leaves the reader to guess of what.
"""

import re

_BEGINS = re.compile(
    r"^\s*// (As|By|For|From|Likewise|Of|The same|With|Without)\b")


def check(files):
    """All findings, for lint.py."""
    for path, lines in files.items():
        if not path.endswith((".h", ".cuh")) or path.startswith("tests/"):
            continue
        before = ""
        for number, line in enumerate(lines, 1):
            match = _BEGINS.match(line)
            if match and not before.lstrip().startswith("//"):
                yield "%s:%d: a comment begins with \"%s\": begin with a verb " \
                    "or with what the thing is" % (path, number, match.group(1))
            before = line
