"""Tests of documents.py: which links break, and what is too long."""

import unittest

from tests.lint import documents

_LONG = " ".join(["Word"] * 36) + "."


def faults(*lines, path="a/page.md", others=()):
    files = {path: list(lines), "a/b/README.md": ["# Two words", "# Two words"],
             "a/code.h": ["1", "2"], "c.md": ["Title", "====="]}
    return list(documents.check_links(files, [*files, "a/image.png", *others]))


class LinksTest(unittest.TestCase):

    def test_anchors_are_those_of_a_code_host(self):
        for heading, expected in (
                ("Two words", "two-words"), ("4.1 `agg_pull`: a, b", "41-agg_pull-a-b"),
                ("*Why* not", "why-not"), ("[A link](x.md) here", "a-link-here"),
                ("1 + 1", "1--1"), ("Größe", "größe"), ("`a  *b*`", "a--b"),
                ("snake_case_word", "snake_case_word")):
            self.assertEqual(documents.anchor(heading), expected)

    def test_equal_headings_are_counted(self):
        self.assertEqual(
            documents.anchors(["# A", "## A", "```", "# B", "```", "### A #",
                               "Under", "-----", '<a name="x"></a>']),
            {"a", "a-1", "a-2", "under", "x"})

    def test_holds(self):
        for line in ("[t](b/README.md)", "[t](b/README.md#two-words-1)",
                     "[t](../c.md#title)", "![i](image.png)", "[t](b)", "[t](..)",
                     "[t](code.h#L2)", "[t](https://host/none)", "[t](#here)",
                     "[two\nlines](b/README.md)", '[t](code.h "title")',
                     "[t](mailto:a@b)", "`[t](none.md)`", "[![i](image.png)](b)",
                     "[d]: code.h", '<img src="image.png">'):
            self.assertEqual(faults("# Here", *line.split("\n")), [], line)
        self.assertEqual(faults("```", "[t](none.md)", "```"), [])
        self.assertEqual(faults("[t](none.md)", path="a/page.txt"), [])

    def test_breaks(self):
        for target, why in (
                ("none.md", "is no tracked file"), ("b/README.md#three", "anchor"),
                ("#there", "anchor"), ("../../d.md", "leaves"), ("/c.md", "root"),
                ("code.h#L3", "last"), ("code.h#title", "is no page"),
                ("b#two-words", "is no page"), ("image.png#x", "is no page"),
                ("../c.md#Title", "anchor"), ("#", "nothing")):
            found = faults("# Here", "", "A [text](%s)." % target)
            self.assertEqual(len(found), 1, target)
            self.assertRegex(found[0], "^a/page.md:3: .*" + why)
        self.assertEqual(len(faults("[t](none.md) and [![i](no.png)](no2.md)")),
                         3)
        self.assertEqual(len(faults("[d]: none.h")), 1)
        self.assertEqual(len(faults('<a href="none.h">')), 1)

    def test_says_the_line_of_a_link(self):
        found = faults("```", "code", "```", "<!-- a", "comment -->",
                       "[two", "lines](none.md)")
        self.assertEqual(found[0].split(": ")[0], "a/page.md:7")


def words(*lines, path="deploy/docs/page.md"):
    return list(documents.check_words({path: list(lines)}))


class WordsTest(unittest.TestCase):

    def test_sentences(self):
        self.assertEqual(
            [s for _, s in documents.sentences(
                ["# Head", "One, e.g. this. Two", "goes on! `code` is 2.5 long.",
                 "- An item", "  of two lines", "- Another", "| a | b. C |",
                 "> Quoted [link text](url).", "```", "code. Here.", "```"])],
            ["Head", "One, e.g. this.", "Two goes on!", "Code is 2.5 long.",
             "An item of two lines", "Another", "a", "b.", "C",
             "Quoted link text."])

    def test_long_sentences(self):
        self.assertEqual(words(_LONG[len("Word "):]), [])
        found = words("", "Short. " + _LONG)
        self.assertEqual(len(found), 1)
        self.assertIn("deploy/docs/page.md:2: a sentence of 36 words", found[0])
        self.assertEqual(len(words("| a | " + _LONG + " |")), 1)
        self.assertEqual(len(words("- " + _LONG)), 1)
        # Two lines that are no sentence together.
        self.assertEqual(words("- " + _LONG[:90], "- " + _LONG[:90]), [])
        self.assertEqual(words("`" + _LONG[:-1] + "`"), [])
        self.assertEqual(words("```", _LONG, "```"), [])

    def test_code_does_not_hide_a_long_sentence(self):
        self.assertEqual(len(words("`Code` " + _LONG + " `Code`")), 1)

    def test_long_pages(self):
        page = ["Two words."] * 1001
        self.assertEqual(words(*page[:1000]), [])
        self.assertEqual(len(words(*page)), 1)
        self.assertEqual(words(*page[:600], path="README.md"), [])
        self.assertEqual(len(words(*page[:601], path="README.md")), 1)

    def test_defaults(self):
        for line in ("It waits 30 s (default).", "The default is `30`.",
                     "Limit, default: 5", 'It defaults to "3".'):
            self.assertEqual(len(words(line)), 1, line)
        for line in ("By default it waits.", "The default rule is mean.",
                     "Another default than 5."):
            self.assertEqual(words(line), [], line)

    def test_other_pages_are_not_judged(self):
        for path in ("a/README.md", "deploy/docs/reference/flags.md",
                     "deploy/docs/conf.py"):
            self.assertEqual(words(_LONG, path=path), [])


if __name__ == "__main__":
    unittest.main()
