import unittest

from tests.lint import classes


class ClassesTest(unittest.TestCase):

    def test_definitions(self):
        for line in ("int Row::size() const {", "Row::Row(int size) : size_(size) {",
                     "Row::~Row() {",
                     "absl::StatusOr<std::string> Row::Read(", "bool Row::operator==("
                     "const Row& other) const {", "Row& Row::Set(int i) {"):
            self.assertEqual(list(classes.defined([line])), ["Row"], line)

    def test_a_class_in_a_class_is_one_of_its_own(self):
        self.assertEqual(classes.defined(["Row::Row() {", "int Row::Part::x() {"]),
                         {"Row": 1, "Row::Part": 2})

    def test_what_is_no_definition(self):
        for line in ("  Row::Clear();", "int size = Row::Size(3);",
                     "// Row::Clear() ends it.", "std::move(row);",
                     "constexpr int kSize = Row::kSize;", "using agg::Row;"):
            self.assertEqual(classes.defined([line]), {}, line)

    def test_one_class_in_two_sources(self):
        files = {"a/row.cc": ["Row::Row() {"], "a/row_more.cc": ["", "int Row::x() {"],
                 "b/line.cc": ["Line::Line() {"], "tests/row.cc": ["Row::Row() {"]}
        self.assertEqual(list(classes.check(files)), [
            "class Row is defined in 2 sources: a/row.cc:1, a/row_more.cc:2"])


if __name__ == "__main__":
    unittest.main()
