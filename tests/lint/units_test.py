import unittest

from tests.lint import units

_FILES = {
    "a/row.h": ["#include <vector>"],
    "a/row.cc": ['#include "a/row.h"', '#include "a/line.h"', '#include "b/x.h"'],
    "a/line.h": ['#include "a/point.h"'],
    "a/point.h": [],
    "a/point.cc": ['#include "a/point.h"', '#include "a/line.h"'],
    "a/note.txt": ['#include "a/row.h"'],
    "b/x.h": ['#include "a/row.h"'],
}


class UnitsTest(unittest.TestCase):

    def test_arrows_within_the_rooms(self):
        found, pairs = units.arrows(_FILES, ("a",))
        self.assertEqual(found, {"a/row", "a/line", "a/point"})
        self.assertEqual(pairs, {("a/row", "a/line"), ("a/line", "a/point"),
                                 ("a/point", "a/line")})

    def test_circles(self):
        _, pairs = units.arrows(_FILES, ("a",))
        self.assertEqual(units.circles(pairs), {frozenset({"a/line", "a/point"})})
        self.assertEqual(units.circles({("a", "b"), ("b", "c"), ("a", "c")}),
                         set())


if __name__ == "__main__":
    unittest.main()
