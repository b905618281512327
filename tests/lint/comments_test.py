import unittest

from tests.lint import comments


class CommentsTest(unittest.TestCase):

    def found(self, *lines, path="server/a.h"):
        return [finding.split(": ")[0]
                for finding in comments.check({path: list(lines)})]

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

    def test_headers_of_production_code_alone(self):
        for path in ("server/a.cc", "tests/a.h"):
            self.assertEqual(self.found("// Of the round.", path=path), [])


if __name__ == "__main__":
    unittest.main()
