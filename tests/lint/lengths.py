"""How long files and functions may be.

A file of code has at most 1,000 lines, a header in production code 250, and the
body of a function 60. The limits are wide: a class is one file, and is not cut
for its length. A file that is longer for a reason is named here, with the reason.
"""

import re

_MAX_LINES = 1000
_MAX_HEADER = 250
_MAX_BODY = 60

_CODE = (".h", ".cc", ".cu", ".cuh", ".proto", ".py", ".sh", ".bzl")
_CPP = (".h", ".cc", ".cu", ".cuh")

_ONE_LOCK = "one lock guards all of it, and one class holds it"
_PAGE = "one page that a reader takes in as a whole"
LONG_FILES = {
    "worker_client/python/agg_server/worker.py": "one class is all of a worker",
    "server/coordinator/coordinator.h": "every call of a job: " + _PAGE,
    "server/coordinator/coordinator_state.h": _ONE_LOCK,
    "server/coordinator/coordinator_types.h": "what a call takes and gives",
    "server/coordinator/job_state.cc": "the protocol of one epoch, and its checks",
    "server/coordinator/job_state.h": "the protocol of one epoch: " + _PAGE,
    "server/coordinator/round_engine.cc": "the phases of a round, and their sums",
    "server/coordinator/round_engine.h": "the phases of a round: " + _PAGE,
    "server/rpc/stream_pulls.h": "what a reader gets of a version, and when",
    "server/shard/open_round.h": _ONE_LOCK,
    "server/shard/shard_engine.cc": _ONE_LOCK,
    "server/shard/shard_engine.h": _ONE_LOCK,
    "worker_client/c/agg_types.h": "every struct of the C ABI: " + _PAGE,
    "worker_client/client_core.cc": "one class is all that a client's calls share",
    "worker_client/membership.h": "a client's place in its job: " + _PAGE,
}

_BEGINS = re.compile(r"^( {0,2})[A-Za-z_~]")
_NO_FUNCTION = re.compile(
    r"^ {0,2}(case|class|default|do|else|enum|extern|for|if|namespace|private|"
    r"protected|public|return|struct|switch|typedef|union|using|while)\b")


def functions(lines):
    """(first line's number, name, lines of the body) of each function.

    Goes by clang-format's layout: a function outside a class begins in the
    first column, one inside at the third, and its brace closes there.
    """
    i = 0
    while i < len(lines):
        begin = _BEGINS.match(lines[i])
        if not begin or _NO_FUNCTION.match(lines[i]):
            i += 1
            continue
        last = i
        while last + 1 < len(lines) and not lines[last].endswith(
                ("{", ";", "}", ":")):
            last += 1
        head = " ".join(line.strip() for line in lines[i:last + 1])
        end = last + 1
        if head.endswith("{") and "(" in head and not head.endswith("= {"):
            while end < len(lines) and not lines[end].startswith(
                    begin.group(1) + "}"):
                end += 1
            name = re.sub(r"^template <.*?> (?=\w)", "", head).split("(")[0]
            yield i + 1, name, end - last - 1
        i = end


def _limit(path):
    # A Highway "-inl.h" file is compiled once per target: a source.
    header = path.endswith(".h") and not path.endswith("-inl.h")
    return _MAX_HEADER if header and not path.startswith("tests/") \
        else _MAX_LINES


def _check_functions(path, lines):
    for number, name, length in functions(lines):
        if length > _MAX_BODY:
            yield "%s:%d: %s has %d lines (at most %d)" % (
                path, number, name, length, _MAX_BODY)


def check(files):
    """All findings, for lint.py."""
    for path, lines in files.items():
        if not path.endswith(_CODE):
            continue
        if path not in LONG_FILES and len(lines) > _limit(path):
            yield "%s has %d lines (at most %d; or name it in " \
                "tests/lint/lengths.py)" % (path, len(lines), _limit(path))
        if path in LONG_FILES and len(lines) <= _limit(path):
            yield "%s has %d lines: tests/lint/lengths.py need not name it" % (
                path, len(lines))
        if path.endswith(_CPP) and not path.startswith("tests/"):
            yield from _check_functions(path, lines)


def check_names(files):
    """Names of LONG_FILES that no file of the whole tree has."""
    for path in LONG_FILES:
        if path not in files:
            yield "tests/lint/lengths.py names %s, which is not there" % path
