#!/usr/bin/python3
"""What a round's numbers mean is said with the same words in each place.

The table of server/round/round_numbers.cc has a sentence for each number. The
metrics and the status page print it; the C++, Python and wire definitions of an
outcome are other languages and repeat it. A place may say more behind it.
"""

import re

TABLE = "server/round/round_numbers.cc"
# Those of an outcome, by their names there.
NAMES = ("learning_rate", "gain", "tau", "orthogonality", "loss",
         "combined_norm")
PLACES = ("proto/agg.proto", "worker_client/client_types.h",
          "worker_client/python/agg_server/outcome.py")

# {"name", "unit", "a text" " in pieces", ...
_ENTRY = re.compile(r'\{"(\w+)",\s*"[^"]*",\s*((?:"[^"]*"\s*)+),')


def sentences(lines):
    """{name: its sentence} of the table."""
    return {name: "".join(re.findall(r'"([^"]*)"', text))
            for name, text in _ENTRY.findall("\n".join(lines))}


def words(lines):
    """A file's text without line breaks and the marks of comments."""
    return " ".join(re.sub(r"^\s*//", "", line).strip() for line in lines)


def check(files):
    """files: {path: lines}"""
    table = sentences(files.get(TABLE, []))
    for name in NAMES:
        if name not in table:
            yield "%s: no sentence for %s" % (TABLE, name)
            continue
        for path in PLACES:
            if table[name] not in words(files.get(path, [])):
                yield '%s: %s is not "%s", as in %s' % (path, name,
                                                        table[name], TABLE)
