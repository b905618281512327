import unittest

from tests.lint import deps

_BUILD = """
agg_proto_library(name = "words_cc_proto", srcs = ["words.proto"])

agg_cc_library(
    name = "noun",
    srcs = ["noun.cc"],
    hdrs = ["noun.h"],
    deps = [%s],
)

agg_cc_library(name = "verb", hdrs = ["verb.h"])
"""
_OTHER = """
agg_cc_library(name = "b", hdrs = ["b.h", "c.h"])

agg_cc_test(name = "some_test", deps = [%s])
"""


def tree(listed='":verb", "//b"', source=(), test=(), tested='":b"'):
    return {
        "a/BUILD": (_BUILD % listed).splitlines(),
        "a/noun.h": ['#include "a/verb.h"'],
        "a/noun.cc": ['#include "a/noun.h"', "#include <vector>",
                      '#include "b/c.h"'] + list(source),
        "a/verb.h": [],
        "b/BUILD": (_OTHER % tested).splitlines(),
        "b/some_test.cc": ['#include "gtest/gtest.h"', '#include "b/b.h"'] +
                          list(test),
    }


class DepsTest(unittest.TestCase):

    def findings(self, files):
        return [finding.partition(": ")[2] for finding in deps.check(files)]

    def test_what_is_included_is_listed(self):
        self.assertEqual(self.findings(tree()), [])

    def test_a_target_of_this_tree_is_lacking(self):
        self.assertEqual(self.findings(tree(listed='":verb"')),
                         ["noun lacks //b:b, whose header it includes"])

    def test_with_cuda_makes_a_target_of_its_rule(self):
        files = tree(listed='":verb"')
        files["a/BUILD"] = [
            line.replace("agg_cc_library(", "with_cuda(agg_cc_library,")
            for line in files["a/BUILD"]]
        self.assertEqual(self.findings(files),
                         ["noun lacks //b:b, whose header it includes"])

    def test_lists_that_have_a_name(self):
        files = tree()
        files["a/BUILD"] = ['NOUNS = ["//b"]'] + [
            line.replace('":verb", "//b"]', '":verb"] + NOUNS')
            for line in files["a/BUILD"]]
        self.assertEqual(self.findings(files), [])

    def test_a_header_beside_the_file(self):
        files = tree(listed='"//b"')
        files["a/noun.h"] = ['#include "verb.h"', "#include <memory.h>"]
        self.assertEqual(self.findings(files),
                         ["noun lacks //a:verb, whose header it includes"])

    def test_a_generated_header_is_its_proto_library_s(self):
        self.assertEqual(
            self.findings(tree(source=['#include "a/words.pb.h"'])),
            ["noun lacks //a:words_cc_proto, whose header it includes"])

    def test_a_library_s_longest_beginning_counts(self):
        source = ['#include "absl/strings/str_cat.h"',
                  '#include "absl/strings/str_format.h"']
        self.assertEqual(
            self.findings(tree(source=source)),
            ["noun lacks @absl//:str_format, whose header it includes",
             "noun lacks @absl//:strings, whose header it includes"])

    def test_what_is_not_included_is_not_listed(self):
        self.assertEqual(
            self.findings(tree(listed='":verb", "//b", ":words_cc_proto"')),
            ["noun lists :words_cc_proto, of which it includes nothing"])

    def test_a_comment_keeps_what_no_include_explains(self):
        files = tree()
        at = files["a/BUILD"].index('    deps = [":verb", "//b"],')
        files["a/BUILD"][at:at + 1] = [
            "    deps = [", '        ":verb",', '        "//b",',
            '        ":words_cc_proto",  # Registers itself.', "    ],"]
        self.assertEqual(self.findings(files), [])
        self.assertEqual(
            deps.fix("a/BUILD", files, deps.owners(deps.targets(files))),
            "\n".join(files["a/BUILD"]).replace(
                '        ":verb",\n        "//b",\n'
                '        ":words_cc_proto",  # Registers itself.\n',
                '        ":verb",\n'
                '        ":words_cc_proto",  # Registers itself.\n'
                '        "//b",\n') + "\n")

    def test_googletest_comes_with_a_test(self):
        self.assertEqual(self.findings(tree(tested="")),
                         ["some_test lacks //b:b, whose header it includes"])

    def test_a_test_of_the_core_has_no_grpc_below_it(self):
        files = tree()
        files["b/BUILD"] = [line.replace(
            'name = "some_test"', 'name = "some_test", tags = ["core"]')
            for line in files["b/BUILD"]]
        self.assertEqual(self.findings(files), [])
        files["b/b.h"] = ['#include "b/c.h"']
        files["b/c.h"] = []
        files["b/c.cc"] = ["#include <grpcpp/server.h>"]
        self.assertEqual(list(deps.check_core(deps.targets(files), files)), [
            "b/some_test.cc is of a test with the tag core, and includes gRPC "
            "by way of a header"])

    def test_a_list_with_a_choice_is_checked_for_what_it_lacks(self):
        listed = '":verb", ":words_cc_proto"] + select({"x": ["//b"]}) + ['
        self.assertEqual(self.findings(tree(listed=listed)), [])
        self.assertEqual(self.findings(tree(listed='] + select({"x": [":verb"]}'
                                            ') + [')),
                         ["noun lacks //b:b, whose header it includes"])

    def test_the_list_is_written_anew_in_order(self):
        files = tree(listed='"//x", ":verb"',
                     source=['#include "absl/time/time.h"'])
        text = deps.fix("a/BUILD", files, deps.owners(deps.targets(files)))
        self.assertIn("""    hdrs = ["noun.h"],
    deps = [
        ":verb",
        "//b",
        "@absl//:time",
    ],
)
""", text)
        files["a/BUILD"] = text.splitlines()
        self.assertEqual(self.findings(files), [])


if __name__ == "__main__":
    unittest.main()
