#!/usr/bin/python3
"""Counts what a newcomer has to touch. `newcomer.py [ROOT]`

For each kind of thing that people add (a combination rule, say) one example
stands for all. The table below lists the files that may name the example; so
these are the files that the next one of its kind touches. A file too many is an
error: then somebody typed by hand a name that a table already holds. So is a
file too few: then the table below is out of date.

Tests' own cases and prose do not count: whoever adds a thing tests and
describes it, and nothing breaks without.

Prints what it finds, then `N passed, N failed` with one case for each kind.
"""

import os
import re
import subprocess
import sys

# Kind -> (words that name the example, files that name it).
KINDS = {
    "stateless rule": (
        r"unit_mean|UnitMean",
        (
            "server/combine/rule_table.cc",
            "server/combine/means.cc",
            "server/combine/means.h",
            "tests/reference/combination_rules.cc",
            # The transcription itself.
            "tests/reference/row_statistics.cc",
            "tests/reference/row_statistics.h",
        )),
    "optimizer": (
        r"adagrad|Adagrad",
        (
            "kernels/element_math.h",
            "kernels/optimizer_table.h",
            "tests/conformance/optimizer_sequences.cc",
        )),
    "number that people see": (
        r"gradient_diversity",
        (
            # Its accessor line.
            "server/round/round_numbers.cc",
            # Where it is computed and kept.
            "server/combine/decision.cc",
            "server/combine/decision.h",
            # The first twenty numbers have fields of their own; the next ones
            # go into the map `numbers`.
            "proto/round_log.proto",
        )),
    "client option that Python has": (
        r"channels_per_shard",
        (
            "worker_client/c/agg_types.h",
            "worker_client/c/c_structs.cc",
            "worker_client/client_types.h",
            "worker_client/python/agg_server/options.py",
            # What it allows, and what it does.
            "worker_client/agg_client.cc",
            "worker_client/job_view.cc",
        )),
    "admin method with its command": (
        r'SetLogLevelRe|Admin/SetLogLevel|"loglevel"',
        (
            "proto/admin.proto",
            "server/access/access_rules.cc",
            "server/rpc/admin_service.cc",
            "server/rpc/admin_service.h",
            "worker_client/tools/aggctl_commands.cc",
            "worker_client/tools/aggctl_flags.cc",
        )),
}

_PROSE = (".md", ".json", ".png", ".gz")


def counts(path):
    """Whether a file that names an example makes work for the next one."""
    if path.endswith(_PROSE):
        return False
    if path == "tests/conformance/optimizer_sequences.cc":
        return True
    if path.startswith(("deploy/docs/", "deploy/grafana/", "tests/lint/")):
        return False
    return not path.startswith("tests/") or path.startswith("tests/reference/")


def check_kind(kind, files):
    """What is wrong with one kind, given {path: lines} of the tracked files."""
    words, expected = KINDS[kind]
    pattern = re.compile(words)
    found = {path for path, lines in files.items()
             if counts(path) and (pattern.search(path.rpartition("/")[2]) or
                                  any(map(pattern.search, lines)))}
    for path in sorted(found - set(expected)):
        yield "%s names the %s that stands for all: one file more to touch" % (
            path, kind)
    for path in sorted(set(expected) - found):
        yield "%s does not name the %s: take it out of the table" % (
            path, kind)


def check(files):
    """All findings, for lint.py."""
    for kind in KINDS:
        yield from check_kind(kind, files)


def read_tracked(root):
    """{path: lines} of the tracked text files."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=root,
        stdin=subprocess.DEVNULL, check=True, capture_output=True, text=True)
    files = {}
    for path in filter(None, listing.stdout.split("\0")):
        try:
            with open(os.path.join(root, path), encoding="utf-8") as file:
                files[path] = file.read().splitlines()
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            pass  # Data, or deleted and not yet committed.
    return files


def main(argv):
    files = read_tracked(argv[1] if len(argv) > 1 else os.getcwd())
    failed = 0
    for kind in KINDS:
        findings = list(check_kind(kind, files))
        for finding in findings:
            print(finding)
        failed += 1 if findings else 0
    print("%d passed, %d failed" % (len(KINDS) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
