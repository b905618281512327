"""Checks that a class is defined in one source.

A reader of a class opens its header and one .cc file. A class that has become
too large for one file is several classes.
"""

import collections
import re

_SOURCES = (".cc", ".cu")
# "Type Outer::Method(", "Outer::Outer(", "Outer::Inner::~Inner(": a definition
# begins in the first column. Its type may stand on the line before.
_DEFINITION = re.compile(
    r"^(?:[A-Za-z_][\w:<>,&* ]*[ &*])?([A-Z]\w*(?:::\w+)*)::"
    r"(?:~?\w+|operator.+?)\(")


def defined(lines):
    """{class: first line's number} of the classes whose members are defined."""
    found = {}
    for number, line in enumerate(lines, 1):
        match = _DEFINITION.match(line)
        if match:
            found.setdefault(match.group(1), number)
    return found


def check(files):
    """All findings, for lint.py."""
    places = collections.defaultdict(list)
    for path, lines in files.items():
        if path.endswith(_SOURCES) and not path.startswith("tests/"):
            for name, number in defined(lines).items():
                places[name].append("%s:%d" % (path, number))
    for name, where in sorted(places.items()):
        if len(where) > 1:
            yield "class %s is defined in %d sources: %s" % (
                name, len(where), ", ".join(where))
