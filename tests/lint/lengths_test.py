"""Tests of lengths.py: which files and functions are too long."""

import unittest

from tests.lint import lengths

_BODY = ["  int x = f();"] * 3


def num_found(path, num_lines):
    return len(list(lengths.check({path: ["x"] * num_lines})))


class LengthsTest(unittest.TestCase):

    def test_files(self):
        for path, limit in (("a.py", 1000), ("tests/a.cc", 1000),
                            ("tests/a.h", 1000), ("a.cc", 1000),
                            ("a.cu", 1000), ("a-inl.h", 1000), ("a.h", 250)):
            self.assertEqual(num_found(path, limit), 0, path)
            self.assertEqual(num_found(path, limit + 1), 1, path)
        self.assertEqual(num_found("a.csv", 1001), 0)

    def test_named_files_may_be_longer(self):
        path = next(path for path in lengths.LONG_FILES if path.endswith(".h"))
        self.assertEqual(num_found(path, 1001), 0)
        self.assertEqual(num_found(path, 250), 1)

    def test_names_of_files_that_are_gone(self):
        self.assertEqual(list(lengths.check_names(lengths.LONG_FILES)), [])
        self.assertEqual(len(list(lengths.check_names({}))),
                         len(lengths.LONG_FILES))

    def test_finds_functions(self):
        lines = ["namespace agg {", "constexpr int kTable[] = {", "    f(1),",
                 "};", "int f();", "template <class T>", "int A::f(int a,",
                 "         int b) {"] + _BODY + [
                     "}", "class C {", " public:", "  C(int a)", "      : a_(a) {"
                 ] + _BODY + ["  }", "  int g() const { return 1; }", "};", "}"]
        self.assertEqual(
            [(number, length)
             for number, _, length in lengths.functions(lines)],
            [(6, 3), (15, 3)])

    def test_functions(self):
        def found(num_lines):
            lines = ["void f() {"] + ["  g();"] * num_lines + ["}"]
            return list(lengths.check({"server/a.cc": lines}))

        self.assertEqual(found(60), [])
        self.assertEqual(len(found(61)), 1)
        self.assertIn("server/a.cc:1: void f has 61 lines", found(61)[0])


if __name__ == "__main__":
    unittest.main()
