"""Tests of lint.py: that each check finds what it is for."""

import unittest

from tests.lint import lint

_GROUPS = {
    "cuda_users": ["//kernels/cuda"],
    "grpc_users": ["//server", "//worker_client/..."],
    "test_users": ["//tests/..."],
}


def includes(path, *lines):
    return list(lint.check_includes({path: list(lines)}, _GROUPS))


class LintTest(unittest.TestCase):

    def test_reads_package_groups(self):
        text = 'licenses(["notice"])\n' \
            'package_group(name = "a", packages = ["//x", "//y/..."])\n' \
            'package_group(name = "b", includes = ["//:a"])\n'
        self.assertEqual(lint.package_groups(text),
                         {"a": ["//x", "//y/..."], "b": []})

    def test_libraries_only_in_their_packages(self):
        line = "#include <grpcpp/grpcpp.h>"
        self.assertEqual(includes("server/main.cc", line), [])
        self.assertEqual(includes("worker_client/a/b.cc", line), [])
        self.assertEqual(len(includes("server/combine/a.cc", line)), 1)
        self.assertEqual(len(includes("worker_clients/a.cc", line)), 1)

    def test_sees_through_quotes_and_spaces(self):
        line = '  #  include "gtest/gtest.h"'
        self.assertEqual(includes("tests/a_test.cc", line), [])
        self.assertEqual(len(includes("kernels/a.cc", line)), 1)

    def test_other_includes(self):
        open_to_all = ("#include <vector>", "#include <sys/mman.h>",
                       '#include "absl/status/status.h"',
                       '#include "kernels/dtype.h"')
        self.assertEqual(includes("kernels/a.cc", *open_to_all), [])
        self.assertEqual(len(includes("kernels/a.cc", "#include <re2/re2.h>")),
                         1)
        self.assertEqual(
            len(includes("kernels/cuda/a.cu", '#include "absl/types/span.h"')),
            1)

    def test_channels_are_made_in_one_place(self):
        for line in ("  auto c = grpc::CreateChannel(address, credentials);",
                     "#include <grpcpp/create_channel.h>",
                     "grpc::experimental::CreateCustomChannelWithInterceptors("):
            def found(path):
                return list(lint.check_channels({path: [line]}))
            self.assertEqual(len(found("server/rpc/a.cc")), 1, line)
            self.assertEqual(found("proto/grpc_channel.cc"), [])
            self.assertEqual(found("tests/e2e/a_test.cc"), [])

    def test_guards(self):
        good = ["#ifndef AGG_KERNELS_DTYPE_H_", "#define AGG_KERNELS_DTYPE_H_"]
        self.assertEqual(list(lint.check_guards({"kernels/dtype.h": good})), [])
        self.assertEqual(len(list(lint.check_guards({"a/dtype.h": good}))), 1)
        toggled = ["#ifdef AGG_A_INL_H_", "#else", "#define AGG_A_INL_H_"]
        self.assertEqual(list(lint.check_guards({"a-inl.h": toggled})), [])
        self.assertEqual(len(list(lint.check_guards({"a-inl.h": good}))), 1)

    def test_words_and_paths(self):
        unfinished = {"a": ["// TO" + "DO: more", "METHODOLOGY"]}
        self.assertEqual(
            len(list(lint.check_pattern(unfinished, lint._UNFINISHED))), 1)
        paths = {"a": ["cd /wor" + "k/main", "a network/b", "/roo" + "t/.x"]}
        self.assertEqual(
            len(list(lint.check_pattern(paths, lint._MACHINE_PATHS))), 2)

    def test_citations(self):
        documents = {
            "proto/README.md": ["- **P5** For one", "## Rules",
                                "Withdrawn: P" + "6."],
            "ARCHITECTURE.md": ["3. **Rules are pure"],
            "a/README" + ".md": ["## 2.3 Momentum"],
        }

        def dangling(line):
            files = dict(documents, **{"a/b.cc": [line]})
            return list(lint.check_citations(files))

        for line in ("// (P5)", "// a/README" + ".md 2.3", "// see README" +
                     ".md", "// decision 3", "P = 4", "P2P", "OP5",
                     "// is in b.cc.", "int x;  // cuda.h", "f(x.h)"):
            self.assertEqual(dangling(line), [], line)
        for line in ("// (P" + "6)", "// a/README" + ".md 2.4", "// theory" +
                     ".md 1", "// decision" + " 4", "// is in " + "gone.cc.",
                     "int x;  // (" + "gone.h)"):
            self.assertEqual(len(dangling(line)), 1, line)

    def test_circles(self):
        files = {
            "server/a/x.h": ['#include "server/b/y.h"'],
            "server/b/y.cc": ['#include "server/c/z.h"'],
            "server/c/z.h": ["#include <vector>"],
        }
        self.assertEqual(list(lint.check_circles(files)), [])
        files["server/c/z.h"] = ['#include "server/a/x.h"']
        found = list(lint.check_circles(files))
        self.assertEqual(len(found), 1)
        self.assertIn("server/a -> server/b -> server/c -> server/a", found[0])


class ClassesTest(unittest.TestCase):

    def test_definitions(self):
        for line in ("int Row::size() const {", "Row::Row(int size) : size_(size) {",
                     "Row::~Row() {",
                     "absl::StatusOr<std::string> Row::Read(", "bool Row::operator==("
                     "const Row& other) const {", "Row& Row::Set(int i) {"):
            self.assertEqual(list(lint.defined_classes([line])), ["Row"], line)

    def test_a_class_in_a_class_is_one_of_its_own(self):
        self.assertEqual(lint.defined_classes(["Row::Row() {", "int Row::Part::x() {"]),
                         {"Row": 1, "Row::Part": 2})

    def test_what_is_no_definition(self):
        for line in ("  Row::Clear();", "int size = Row::Size(3);",
                     "// Row::Clear() ends it.", "std::move(row);",
                     "constexpr int kSize = Row::kSize;", "using agg::Row;"):
            self.assertEqual(lint.defined_classes([line]), {}, line)

    def test_one_class_in_two_sources(self):
        files = {"a/row.cc": ["Row::Row() {"], "a/row_more.cc": ["", "int Row::x() {"],
                 "b/line.cc": ["Line::Line() {"], "tests/row.cc": ["Row::Row() {"]}
        self.assertEqual(list(lint.check_classes(files)), [
            "class Row is defined in 2 sources: a/row.cc:1, a/row_more.cc:2"])


class CommentsTest(unittest.TestCase):

    def found(self, *lines, path="server/a.h"):
        return [finding.split(": ")[0]
                for finding in lint.check_comments({path: list(lines)})]

    def test_fragments(self):
        self.assertEqual(
            self.found("// Of the open round.", "int rows;", "", "  // By rank.",
                       "int b;", "// Likewise for a replica.", "// Without one."),
            ["server/a.h:1", "server/a.h:4", "server/a.h:6"])

    def test_sentences(self):
        self.assertEqual(
            self.found("// Rows of the open round,", "// By rank.", "int rows;",
                       "// Ends it.", "int a;  // of the round", "// Offset.",
                       "// Forgets it."), [])

    def test_headers_alone(self):
        self.assertEqual(self.found("// Of the round.", path="server/a.cc"), [])

    def test_a_prepositions_compound_is_a_name(self):
        self.assertEqual(self.found("// Per-target guard."), [])


class VersionTest(unittest.TestCase):

    def found(self, **changes):
        files = {
            "server/base/version.h": [
                "#define A", 'inline constexpr char kVersion[] = "1.2.3";'],
            "worker_client/python/agg_server/__init__.py": [
                '__version__ = "1.2.3"'],
            "CHANGELOG.md": ["# Changelog", "## Unreleased",
                             "## 1.2.3 - 2026-11-28", "## 1.2.2 - 2026-11-01"],
            "README.md": ["Version 1.2.3, for Linux."]}
        return list(lint.check_version({**files, **changes}))

    def test_one_release_everywhere(self):
        self.assertEqual(self.found(), [])

    def test_another_release_and_none(self):
        self.assertEqual(
            self.found(**{"README.md": ["Version 1.2.4"],
                          "CHANGELOG.md": ["## Unreleased"]}),
            ["CHANGELOG.md: the release is nothing; server/base/version.h "
             "says 1.2.3",
             "README.md: the release is 1.2.4; server/base/version.h says "
             "1.2.3"])


if __name__ == "__main__":
    unittest.main()
