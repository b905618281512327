#!/usr/bin/python3
"""Checks the tracked files. `lint.py [ROOT]`; prints what it finds.

Each check counts as one case. Ends with `N passed, N failed[, N skipped]` and
exits with 1 if a check failed.

  includes    a system library's headers only where the root BUILD lets its
              target be used: compilers find all of /usr/include without one
  channels    gRPC channels are made in one place (proto/grpc_channel.h)
  guards      AGG_PATH_FILE_H_
  classes     a class is defined in one source
  comments    comments in headers begin with a verb or a noun
  deps        BUILD files list what the #includes need, and no more (deps.py)
  length      lines of a file and of a function (lengths.py)
  unfinished  words that mark unfinished work
  paths       paths of the machine that a file was written on
  newcomer    what a new rule, optimizer or number touches (newcomer.py)
  rooms       the table of rooms in ARCHITECTURE.md is what the #includes say
              (rooms.py)
  circles     no folder includes another that includes it, at any distance
  citations   documents, their sections, the protocol's rules (P5) and the
              decisions that a text cites exist
  links       relative links of documents and their anchors (documents.py)
  outcomes    a round's numbers have the same words wherever workers read of
              them (outcome_words.py)
  version     the release is the same wherever it is stated
  words       how long the sentences and pages of README.md and deploy/docs are;
              they name no defaults (documents.py)
  shellcheck  shell scripts, where shellcheck is installed
"""

import ast
import collections
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import deps  # Its neighbours, also where this file is run as a script.
import documents
import lengths
import newcomer
import outcome_words
import rooms

_CPP = (".h", ".cc", ".cu", ".cuh")
_CODE = _CPP + (".proto", ".py", ".sh", ".bzl")

# What an #include path begins with -> the package_group that may include it.
_LIBRARIES = {
    "CLI/": "cli11_users",
    "benchmark/": "test_users",
    "cublas": "cuda_users",
    "cuda": "cuda_users",
    "gmock/": "test_users",
    "google/protobuf/": "protobuf_users",
    "grpc++/": "grpc_users",
    "grpc/": "grpc_users",
    "grpcpp/": "grpc_users",
    "gtest/": "test_users",
    "httplib.h": "httplib_users",
    "hwy/": "highway_users",
    "isa-l": "isal_users",
    "nlohmann/": "nlohmann_users",
    "openssl/": "openssl_users",
    "prometheus/": "prometheus_users",
    "zip.h": "libzip_users",
    "zlib.h": "zlib_users",
}
# What any package may include besides headers without a folder (<vector>).
_OPEN = ("absl/", "arpa/", "linux/", "net/", "netinet/", "sys/")
_OURS = ("agg_client/", "deploy/", "kernels/", "proto/", "server/", "tests/",
         "worker_client/")
_INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')
_CREATE = re.compile(r"\bCreate(?:Custom)?Channel|\bgrpc_channel_create\b")
_CHANNELS_FILE = "proto/grpc_channel.cc"
# Broken up, so that they do not find themselves.
_UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
_MACHINE_PATHS = re.compile(r"(/wor[k]|/roo[t]|/hom[e]|/far[m])/|[.]librar[y]")

# "server/combine/README.md 2.3": a document, and maybe a section of it.
_DOCUMENT = re.compile(r"([\w./-]*\w[.]md)\b(?:,? (?:section )?(\d+(?:[.]\d+)*)\b)?")
# "row_waves.cc" in a comment of C++ code, and what is of other projects.
_SOURCE = re.compile(r"(?<![\w./<-])([a-z]\w*(?:-inl)?[.](?:h|cc|cuh|cu))\b(?![.]\w)")
_FOREIGN = ("cublas_api.h", "cuda.h", "foreach_target.h", "tcp_server_posix.cc")
_RULE = re.compile(r"(?<![\w.])P([1-9]\d?)(?![\w=])")
_DECISION = re.compile(r"\bdecision (\d+)\b")
_RULES_FILE = "proto/README.md"
# Its documents are made up, to be found missing.
_INVENTED = "tests/lint/documents_test.py"
_DECISIONS_FILE = "ARCHITECTURE.md"


def package_groups(build_text):
    """{name: [package patterns]} of a BUILD file's package_group()s."""
    groups = {}
    for node in ast.parse(build_text).body:
        call = getattr(node, "value", None)
        if not isinstance(call, ast.Call) or call.func.id != "package_group":
            continue
        arguments = {
            k.arg: ast.literal_eval(k.value) for k in call.keywords
        }
        groups[arguments["name"]] = arguments.get("packages", [])
    return groups


def allows(patterns, folder):
    """Whether a package of one of the patterns holds files of folder."""
    for pattern in patterns:
        name = pattern[len("//"):]
        if name == folder:
            return True
        if name.endswith("/..."):
            name = name[:-len("/...")]
            if folder == name or folder.startswith(name + "/"):
                return True
    return False


def check_includes(files, groups):
    for path, lines in files.items():
        if not path.endswith(_CPP):
            continue
        for number, line in enumerate(lines, 1):
            match = _INCLUDE.match(line)
            if not match or match.group(1).startswith(_OURS):
                continue
            header = match.group(1)
            place = "%s:%d: %s" % (path, number, header)
            group = next((group for prefix, group in _LIBRARIES.items()
                          if header.startswith(prefix)), None)
            if group and not allows(groups[group], os.path.dirname(path)):
                yield "%s is only for //:%s" % (place, group)
            elif header.startswith("absl/") and path.endswith((".cu", ".cuh")):
                yield "%s: no Abseil in CUDA sources" % place
            elif not group and "/" in header and not header.startswith(_OPEN):
                yield "%s is no library of this project" % place


def check_channels(files):
    """gRPC channels are made in one place, which says that no proxy is used."""
    for path, lines in files.items():
        if not path.endswith(_CPP) or path.startswith("tests/") or \
                path == _CHANNELS_FILE:
            continue
        for number, line in enumerate(lines, 1):
            if "grpcpp/create_channel.h" in line or _CREATE.search(line):
                yield "%s:%d: channels are made by %s" % (path, number,
                                                          _CHANNELS_FILE)


def check_guards(files):
    for path, lines in files.items():
        if not path.endswith((".h", ".cuh")):
            continue
        guard = "AGG_%s_" % re.sub(r"[^A-Z0-9]", "_", path.upper())
        # Highway includes "-inl.h" files once per target; their guard toggles.
        test = "#ifdef " if path.endswith("-inl.h") else "#ifndef "
        if test + guard not in lines or "#define " + guard not in lines:
            yield "%s: the include guard is not %s" % (path, guard)


def check_pattern(files, pattern):
    for path, lines in files.items():
        for number, line in enumerate(lines, 1):
            match = pattern.search(line)
            if match:
                yield "%s:%d: %s" % (path, number, match.group(0))


def _folder_graph(files):
    """{folder: folders whose headers it includes}, tests left out."""
    graph = {}
    for path, lines in files.items():
        if not path.endswith(_CPP) or path.startswith("tests/"):
            continue
        folder = os.path.dirname(path)
        for line in lines:
            match = _INCLUDE.match(line)
            if match and match.group(1).startswith(_OURS):
                target = os.path.dirname(match.group(1))
                # A room's factory makes what the folders below it implement.
                if folder != target and not (
                        os.path.basename(path).startswith("backend_factory")):
                    graph.setdefault(folder, set()).add(target)
    return graph


def check_circles(files):
    graph = _folder_graph(files)
    done = set()

    def walk(folder, way):
        if folder in way:
            yield " -> ".join(way[way.index(folder):] + [folder])
            return
        if folder in done:
            return
        for target in sorted(graph.get(folder, ())):
            yield from walk(target, way + [folder])
        done.add(folder)

    for folder in sorted(graph):
        yield from walk(folder, [])


def _first_groups(lines, pattern):
    matches = (re.match(pattern, line) for line in lines)
    return {match.group(1) for match in matches if match}


def _find_document(files, citing, name):
    """The tracked file that a text means: from the root, or from its folder."""
    beside = os.path.normpath(os.path.join(os.path.dirname(citing), name))
    return next((path for path in (name, beside) if path in files), None)


def _dangling(files, path, line):
    """What a line cites that does not exist."""
    for name, section in _DOCUMENT.findall(line):
        document = _find_document(files, path, name)
        if document is None:
            yield name
        elif section and section not in _first_groups(
                files[document], r"#+ (\d+(?:[.]\d+)*)[. ]"):
            yield "%s %s" % (name, section)
    withdrawn = path == _RULES_FILE and line.startswith("Withdrawn: ")
    for rule in [] if withdrawn else _RULE.findall(line):
        if rule not in _first_groups(files.get(_RULES_FILE, []),
                                     r"- [*][*]P(\d+)[*][*]"):
            yield "P%s, which is not in %s" % (rule, _RULES_FILE)
    for decision in _DECISION.findall(line):
        if decision not in _first_groups(files.get(_DECISIONS_FILE, []),
                                         r"(\d+)[.] [*][*]"):
            yield "decision %s, which is not in %s" % (decision,
                                                       _DECISIONS_FILE)


def check_citations(files):
    names = {os.path.basename(path) for path in files}
    for path, lines in files.items():
        if path.endswith(_CPP):
            for number, line in enumerate(lines, 1):
                for name in _SOURCE.findall(line.partition("//")[2]):
                    if name not in names and name not in _FOREIGN:
                        yield "%s:%d: no %s" % (path, number, name)
        if path == _INVENTED or not path.endswith(_CODE + (".md", "BUILD")):
            continue
        for number, line in enumerate(lines, 1):
            for citation in _dangling(files, path, line):
                yield "%s:%d: no %s" % (path, number, citation)


# Who states the release, and how. Whoever else needs it reads version.h.
_VERSIONS = {
    "server/base/version.h": r'.* kVersion\[\] = "(.*)";',
    "worker_client/python/agg_server/__init__.py": r'__version__ = "(.*)"',
    "CHANGELOG.md": r"## (\d+[.]\d+[.]\d+) - \d{4}-\d\d-\d\d$",
    "README.md": r"Version (\d+[.]\d+[.]\d+)\b",
}


def check_version(files):
    stated = {}
    for path, pattern in _VERSIONS.items():
        matches = (re.match(pattern, line) for line in files.get(path, []))
        # The newest one of the change log comes first.
        stated[path] = next((m.group(1) for m in matches if m), "nothing")
    owner, *others = stated
    for path in others:
        if stated[path] != stated[owner]:
            yield "%s: the release is %s; %s says %s" % (
                path, stated[path], owner, stated[owner])


def check_shell(root, files):
    scripts = [path for path, lines in files.items()
               if lines and re.match(r"#!.*\b(ba|da)?sh\b", lines[0])]
    if not scripts:
        return []
    process = subprocess.run(["shellcheck", "-x", "-f", "gcc"] + scripts,
                             cwd=root, stdin=subprocess.DEVNULL, check=False,
                             capture_output=True, text=True)
    return (process.stdout + process.stderr).splitlines()


def tracked_paths(root):
    """All that git tracks, text or not."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=root,
        stdin=subprocess.DEVNULL, check=True, capture_output=True, text=True)
    return sorted(filter(None, listing.stdout.split("\0")))


def tracked_files(root):
    """{path: lines} of the tracked text files."""
    files = {}
    for path in tracked_paths(root):
        full = os.path.join(root, path)
        if not os.path.isfile(full) or os.path.islink(full):
            continue
        try:
            with open(full, encoding="utf-8") as file:
                files[path] = file.read().splitlines()
        except UnicodeDecodeError:
            pass  # Data.
    return files


_SOURCES = (".cc", ".cu")
# "Type Outer::Method(", "Outer::Outer(", "Outer::Inner::~Inner(": a definition
# begins in the first column. Its type may stand on the line before.
_DEFINITION = re.compile(
    r"^(?:[A-Za-z_][\w:<>,&* ]*[ &*])?([A-Z]\w*(?:::\w+)*)::"
    r"(?:~?\w+|operator.+?)\(")


def defined_classes(lines):
    """{class: first line's number} of the classes whose members are defined."""
    found = {}
    for number, line in enumerate(lines, 1):
        match = _DEFINITION.match(line)
        if match:
            found.setdefault(match.group(1), number)
    return found


def check_classes(files):
    """A class is defined in one source.

    A reader of a class opens its header and one .cc file. A class that has
    become too large for one file is several classes.
    """
    places = collections.defaultdict(list)
    for path, lines in files.items():
        if path.endswith(_SOURCES) and not path.startswith("tests/"):
            for name, number in defined_classes(lines).items():
                places[name].append("%s:%d" % (path, number))
    for name, where in sorted(places.items()):
        if len(where) > 1:
            yield "class %s is defined in %d sources: %s" % (
                name, len(where), ", ".join(where))


_FRAGMENT = re.compile(
    r"^\s*// (Above|After|As|Before|Behind|Below|Beside|Between|By|During|For|"
    r"From|In|Into|Likewise|Of|On|Over|Per|Since|The same|Through|To|Under|"
    r"Until|Up to|With|Within|Without)(?![-\w])")


def check_comments(files):
    """A comment above a declaration begins with a verb or what names the thing.

    "Ends the session", "Rows of the open round". A fragment ("Of the open
    round", "By rank", "Likewise for a replica") leaves the reader to guess of
    what.
    """
    for path, lines in files.items():
        if not path.endswith((".h", ".cuh")):
            continue
        before = ""
        for number, line in enumerate(lines, 1):
            match = _FRAGMENT.match(line)
            if match and not before.lstrip().startswith("//"):
                yield "%s:%d: a comment begins with \"%s\": begin with a verb " \
                    "or with what the thing is" % (path, number, match.group(1))
            before = line


def main(argv):
    root = argv[1] if len(argv) > 1 else os.getcwd()
    files = tracked_files(root)
    groups = package_groups("\n".join(files["BUILD"]))
    checks = {
        "includes": check_includes(files, groups),
        "channels": check_channels(files),
        "guards": check_guards(files),
        "classes": check_classes(files),
        "comments": check_comments(files),
        "deps": deps.check(files),
        "length": [*lengths.check(files), *lengths.check_names(files)],
        "unfinished": check_pattern(files, _UNFINISHED),
        "paths": check_pattern(files, _MACHINE_PATHS),
        "circles": check_circles(files),
        "newcomer": newcomer.check(files),
        "rooms": rooms.check(files, groups),
        "citations": check_citations(files),
        "links": documents.check_links(files, tracked_paths(root)),
        "outcomes": outcome_words.check(files),
        "words": documents.check_words(files),
        "version": check_version(files),
    }
    skipped = 0
    if shutil.which("shellcheck"):
        checks["shellcheck"] = check_shell(root, files)
    else:
        skipped = 1
        print("SKIPPED lint shellcheck: it is not installed")
    failed = 0
    for name, findings in checks.items():
        findings = list(findings)
        for finding in findings:
            print("%s: %s" % (name, finding))
        if findings:
            failed += 1
            print("FAILED  lint " + name)
    print("%d passed, %d failed" % (len(checks) - failed, failed) +
          (", %d skipped" % skipped if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
