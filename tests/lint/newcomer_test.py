"""Tests of newcomer.py: that it sees a file too many and one too few."""

import unittest

from tests.lint import newcomer

_KIND = "stateless rule"


def tree(**changes):
    """The expected files, each naming the rule, with changes."""
    files = {path: ["// unit_mean"] for path in newcomer.KINDS[_KIND][1]}
    files.update(changes)
    return files


def findings(files):
    return list(newcomer.check_kind(_KIND, files))


class NewcomerTest(unittest.TestCase):

    def test_the_expected_files_are_fine(self):
        self.assertEqual(findings(tree()), [])
        self.assertEqual([f for f in newcomer.check(tree()) if _KIND in f], [])

    def test_a_file_too_many(self):
        for line in ('{"mean", "unit_mean"}', "case Rule::kUnitMean:"):
            found = findings(tree(**{"server/config/options.cc": [line]}))
            self.assertEqual(len(found), 1)
            self.assertIn("server/config/options.cc", found[0])

    def test_a_file_too_few(self):
        files = tree()
        files["server/combine/rule_table.cc"] = []
        found = findings(files)
        self.assertEqual(len(found), 1)
        self.assertIn("rule_table.cc", found[0])

    def test_a_file_is_named_by_its_name_too(self):
        found = findings(tree(**{"server/other/unit_mean.h": []}))
        self.assertEqual(len(found), 1)

    def test_prose_and_cases_do_not_count(self):
        self.assertEqual(findings(tree(**{
            "README.md": ["unit_mean"],
            "tests/server/combine/decision_test.cc": ["unit_mean"],
        })), [])


if __name__ == "__main__":
    unittest.main()
