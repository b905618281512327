"""Tests of rooms.py: that an arrow too many and one too few are found."""

import unittest

from tests.lint import rooms

_TABLE = [
    "| room | what it is for | may use |",
    "|---|---|---|",
    "| `kernels/`, `kernels/cpu/` | loops | - |",
    "| `server/base/` | log | - |",
    "| `server/shard/` | rows | base, kernels (`dtype`) |",
    "| `server/` | the program | base, shard |",
    "| `tests/` | mirrors the tree | all |",
]
_FILES = {
    "ARCHITECTURE.md": _TABLE,
    "kernels/cpu/cpu.cc": ['#include "kernels/backend.h"', "#include <map>"],
    "server/shard/a.cc": ['#include "server/base/log.h"',
                          '#include "kernels/dtype.h"'],
    "server/main.cc": ['#include "server/shard/a.h"',
                       '#include "server/base/log.h"'],
    "tests/server/a_test.cc": ['#include "kernels/cpu/cpu.h"'],
    "server/shard/BUILD": ['    visibility = ["//:shard_users"],'],
}


def check(groups=None, files=None):
    """What rooms.py finds in _FILES, some of them replaced by `files`."""
    return rooms.check({**_FILES, **(files or {})}, groups or {})


class RoomsTest(unittest.TestCase):

    def assert_one(self, findings, *words):
        self.assertEqual(len(findings), 1, findings)
        for word in words:
            self.assertIn(word, findings[0])

    def test_exact_table(self):
        self.assertEqual(check(), [])

    def test_arrow_that_the_table_lacks(self):
        found = check(files={
            "server/base/log.cc": ['#include "server/shard/a.h"',
                                   '#include "server/shard/b.h"']})
        self.assert_one(found, "the row of `server/base/` lacks",
                        "server/shard/a.h", "server/base/log.cc:1")

    def test_arrow_that_the_code_lacks(self):
        found = check(files={"server/main.cc": [
            '#include "server/shard/a.h"']})
        self.assert_one(found, "the row of `server/` lists server/base")

    def test_headers_in_parentheses(self):
        found = check(files={"server/shard/b.cc": [
            '#include "kernels/backend.h"']})
        self.assert_one(found, "the row of `server/shard/` lacks",
                        "kernels/backend.h")
        table = [line.replace("(`dtype`)", "(`dtype`, `backend`)")
                 for line in _TABLE]
        found = check(files={"ARCHITECTURE.md": table})
        self.assert_one(found, "lists `backend` of kernels")

    def test_folder_without_a_row(self):
        found = check(files={"server/new/a.h": [
            '#include "server/base/log.h"']})
        self.assert_one(found, "no row for `server/new/`", "server/new/a.h:1")

    def test_word_that_is_not_a_room(self):
        table = [line.replace("base, shard", "base, shard, cellar")
                 for line in _TABLE]
        self.assert_one(check(files={"ARCHITECTURE.md": table}),
                        "`server/` names `cellar`")

    def test_package_that_does_not_use_a_room(self):
        groups = {"shard_users": ["//server", "//tests/..."]}
        self.assertEqual(check(groups), [])
        groups = {"shard_users": ["//server", "//server/base"]}
        self.assert_one(check(groups), "shard_users lists //server/base")


if __name__ == "__main__":
    unittest.main()
