"""Compares the `deps` of C++ targets with the #includes of their sources.

    deps.py [--fix]

A target lists the targets whose headers its files include, and no others: what
a reader sees in a BUILD file is what the code uses. `--fix` writes the lists
anew, in Buildifier's order. A dependency that no #include explains (code that
registers itself, a linker script) stays if a comment on its line says why.
Targets whose list is not a plain one (`select`) are checked for what they lack.

A test that is tagged `core` has no gRPC below it, since ThreadSanitizer runs it
and Debian's gRPC is not instrumented.
"""

import ast
import collections
import os
import re
import sys

_RULES = ("agg_cc_library", "agg_cc_binary", "agg_cc_test", "agg_fuzz_test")
_INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')
# What agg_cc_test adds by itself (deploy/bazel/agg.bzl).
_GIVEN = ("@gtest", "@gtest//:gmock")
# Headers of other projects. The longest beginning counts.
_LIBRARIES = {
    "CLI/": "@cli11",
    "agg_client/": "//:agg_client",
    "absl/base/": "@absl//:core_headers",
    "absl/container/flat_hash_map.h": "@absl//:flat_hash_map",
    "absl/flags/declare.h": "@absl//:flags",
    "absl/flags/flag.h": "@absl//:flags",
    "absl/flags/parse.h": "@absl//:flags_parse",
    "absl/flags/usage.h": "@absl//:flags_usage",
    "absl/functional/function_ref.h": "@absl//:function_ref",
    "absl/memory/": "@absl//:memory",
    "absl/status/status.h": "@absl//:status",
    "absl/status/statusor.h": "@absl//:statusor",
    "absl/strings/": "@absl//:strings",
    "absl/strings/cord.h": "@absl//:cord",
    "absl/strings/str_format.h": "@absl//:str_format",
    "absl/time/": "@absl//:time",
    "absl/types/optional.h": "@absl//:optional",
    "absl/types/span.h": "@absl//:span",
    "cublas": "@cuda//:headers",
    "cuda": "@cuda//:headers",
    "google/protobuf/": "@protobuf",
    "grpc/": "@grpc//:grpc++",
    "grpcpp/": "@grpc//:grpc++",
    "grpcpp/ext/proto_server_reflection_plugin.h":
        "@grpc//:grpc++_reflection",
    "gtest/": "@gtest//:gtest",
    "gmock/": "@gtest//:gmock",
    "httplib.h": "@httplib",
    "hwy/": "@highway//:hwy",
    "isa-l/": "@isal",
    "nlohmann/": "@nlohmann",
    "openssl/": "@openssl",
    "prometheus/": "@prometheus//:core",
    "zip.h": "@libzip",
    "zlib.h": "@zlib",
}

Target = collections.namedtuple(
    "Target", "package rule name sources headers deps plain node")


def _constants(tree):
    """{name: value} of what a BUILD file assigns."""
    return {item.targets[0].id: item.value for item in tree.body
            if isinstance(item, ast.Assign)
            and isinstance(item.targets[0], ast.Name)}


def _literal(node, constants):
    """Strings of a list, or of the lists that a sum or a select has."""
    if node is None:
        return []
    named = [text for leaf in ast.walk(node)
             if isinstance(leaf, ast.Name) and leaf.id in constants
             for text in _literal(constants[leaf.id], constants)]
    texts = [leaf.value for leaf in ast.walk(node)
             if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)]
    return named + [text for text in texts
                    if text.startswith((":", "//", "@")) or "." in text]


def targets(files):
    """All targets of BUILD files that have sources, headers or .proto files."""
    found = []
    for path, lines in files.items():
        if os.path.basename(path) != "BUILD":
            continue
        package = os.path.dirname(path)
        tree = ast.parse("\n".join(lines))
        constants = _constants(tree)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or \
                    not isinstance(node.func, ast.Name):
                continue
            given = {item.arg: item.value for item in node.keywords}
            name = given.get("name")
            rule = node.func.id
            if rule == "with_cuda" and isinstance(node.args[0], ast.Name):
                rule = node.args[0].id  # only where a toolkit is
            if not isinstance(name, ast.Constant) or \
                    not rule.startswith("agg_"):
                continue
            sources = _literal(given.get("srcs"), constants)
            if not sources and rule in ("agg_cc_test", "agg_fuzz_test"):
                sources = [name.value + ".cc"]
            headers = _literal(given.get("hdrs"), constants) + \
                _literal(given.get("textual_hdrs"), constants)
            deps = given.get("deps")
            plain = deps is None or isinstance(deps, ast.List)
            found.append(Target(package, rule, name.value, sources, headers,
                                _literal(deps, constants), plain, node))
    return found


def _file(package, name):
    """The path of a file that a target lists, which may be of elsewhere."""
    if name.startswith("//"):
        return name[2:].replace(":", "/")
    return "%s/%s" % (package, name.lstrip(":"))


def _label(package, name, seen_from):
    if package == seen_from:
        return ":" + name
    if os.path.basename(package) == name:
        return "//" + package
    return "//%s:%s" % (package, name)


def _absolute(label, package):
    """//folder:name of a label that a BUILD file of `package` has."""
    if label.startswith("@"):
        repository, _, name = label.partition("//")
        name = name.lstrip(":")
        return repository if not name or "@" + name == repository \
            else "%s//:%s" % (repository, name)
    if label.startswith(":"):
        return "//%s%s" % (package, label)
    return label if ":" in label else "%s:%s" % (label,
                                                 os.path.basename(label))


def owners(all_targets):
    """{header: [//folder:name of the targets that have it]}."""
    found = collections.defaultdict(list)
    for target in all_targets:
        label = "//%s:%s" % (target.package, target.name)
        for header in target.headers:
            found[_file(target.package, header)].append(label)
        if target.rule == "agg_proto_library":
            for source in target.sources:
                path = _file(target.package, source)
                found[path.replace(".proto", ".pb.h")].append(label)
                found[path.replace(".proto", ".grpc.pb.h")].append(label)
    return found


def _needed(target, by_header, files):
    """Sets of labels, one of each of which the target has to list."""
    needed = set()
    own = "//%s:%s" % (target.package, target.name)
    private = {_file(target.package, name) for name in target.sources}
    for name in target.sources + target.headers:
        for line in files.get(_file(target.package, name), ()):
            match = _INCLUDE.match(line)
            if not match:
                continue
            header = match.group(1)
            beside = _file(target.package, header)
            if "/" not in header and beside in by_header:
                header = beside  # The C ABI's, which are installed so, too.
            if header in private:
                continue
            if header in by_header:
                if own not in by_header[header]:
                    needed.add(tuple(by_header[header]))
                continue
            known = [begin for begin in _LIBRARIES if header.startswith(begin)]
            if known:
                needed.add((_absolute(_LIBRARIES[max(known, key=len)], ""),))
    given = _GIVEN if target.rule == "agg_cc_test" else ()
    return {labels for labels in needed if not set(labels) & set(given)}


def compare(target, by_header, files):
    """(labels that the target lacks, entries that no #include explains)."""
    have = {_absolute(entry, target.package): entry for entry in target.deps}
    needed = _needed(target, by_header, files)
    lacks = sorted(labels[0] for labels in needed if not set(labels) &
                   set(have))
    explained = {label for labels in needed for label in labels}
    lines = files[target.package + "/BUILD" if target.package else "BUILD"]
    # Others link what they list, or have headers that a rule makes.
    tracked = any(_file(target.package, name) in files
                  for name in target.sources + target.headers)
    extra = []
    for label, entry in have.items():
        if label in explained or not target.plain or not tracked:
            continue
        places = lines[target.node.lineno - 1:target.node.end_lineno]
        if not any('"%s"' % entry in line and "#" in line for line in places):
            extra.append(entry)
    return lacks, extra


def _uses_grpc(unit, files, known):
    """Whether a header or its source includes gRPC, at any distance."""
    if unit not in known:
        known[unit] = False  # of a circle, until its other units are known
        for path in (unit + ".h", unit + ".cc"):
            for line in files.get(path, ()):
                match = _INCLUDE.match(line)
                header = match.group(1) if match else ""
                if header.startswith(("grpc/", "grpcpp/")) or (
                        header in files and header.endswith(".h") and
                        _uses_grpc(header[:-len(".h")], files, known)):
                    known[unit] = True
    return known[unit]


def check_core(found, files):
    """Tests of the core that have gRPC below them."""
    known = {}
    for target in found:
        tags = next((item.value for item in target.node.keywords
                     if item.arg == "tags"), None)
        if target.rule != "agg_cc_test" or tags is None or not any(
                isinstance(leaf, ast.Constant) and leaf.value == "core"
                for leaf in ast.walk(tags)):
            continue
        for source in target.sources:
            unit = os.path.splitext(_file(target.package, source))[0]
            if _uses_grpc(unit, files, known):
                yield "%s.cc is of a test with the tag core, and includes " \
                    "gRPC by way of a header" % unit


def check(files):
    """All findings, for lint.py."""
    found = targets(files)
    yield from check_core(found, files)
    by_header = owners(found)
    for target in found:
        if target.rule not in _RULES:
            continue
        lacks, extra = compare(target, by_header, files)
        place = "%s/BUILD:%d: %s" % (target.package, target.node.lineno,
                                     target.name)
        for label in lacks:
            yield "%s lacks %s, whose header it includes" % (place, label)
        for entry in extra:
            yield "%s lists %s, of which it includes nothing" % (place, entry)


def _order(entry):
    label = entry.strip().lstrip('"')
    begins = next(i for i, begin in enumerate((":", "//", "@", ""))
                  if label.startswith(begin))
    return begins, label.split('"')[0].replace(":", "!").lower()


def _entries(target, lacks, extra, lines):
    """The lines of the new list."""
    kept = []
    for entry in target.deps:
        if entry in extra:
            continue
        line = next(line for line in lines if '"%s"' % entry in line)
        comment = line.partition("#")[2]
        kept.append('        "%s",%s' % (
            entry, "  #" + comment if comment else ""))
    for label in lacks:
        if label.startswith("//"):
            package, _, name = label[2:].partition(":")
            label = _label(package, name, target.package)
        kept.append('        "%s",' % label)
    return sorted(set(kept), key=_order)


def fix(path, files, by_header):
    """The text of a BUILD file with its lists written anew."""
    lines = list(files[path])
    for target in sorted(targets({path: files[path]}),
                         key=lambda item: -item.node.lineno):
        if target.rule not in _RULES or not target.plain:
            continue
        lacks, extra = compare(target, by_header, files)
        first, last = target.node.lineno - 1, target.node.end_lineno - 1
        entries = _entries(target, lacks, extra, lines[first:last + 1])
        node = next((item.value for item in target.node.keywords
                     if item.arg == "deps"), None)
        if len(entries) == 1 and "#" not in entries[0]:
            text = ["    deps = [%s]," % entries[0].strip().rstrip(",")]
        else:
            text = ["    deps = ["] + entries + ["    ],"]
        if not entries:
            text = []
        if node is not None:
            lines[node.lineno - 1:node.end_lineno] = text
        else:
            lines[last:last] = text
    return "\n".join(lines) + "\n"


def main(argv):
    root = os.path.dirname(os.path.dirname(os.path.dirname(
        os.path.abspath(__file__))))
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import lint  # Here alone, since lint.py imports this file.
    files = lint.tracked_files(root)
    if argv[1:] == ["--fix"]:
        by_header = owners(targets(files))
        for path in files:
            if os.path.basename(path) != "BUILD":
                continue
            text = fix(path, files, by_header)
            if text != "\n".join(files[path]) + "\n":
                with open(os.path.join(root, path), "w",
                          encoding="utf-8") as file:
                    file.write(text)
                print(path)
        return 0
    findings = list(check(files))
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
