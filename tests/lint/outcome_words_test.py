"""Tests of outcome_words.py: that it sees other words."""

import unittest

from tests.lint import outcome_words

_TABLE = [line for name in outcome_words.NAMES for line in (
    '    {"%s",' % name, '     "unit",', '     "What %s "' % name,
    '     "means.",', '     RoundValue(nullptr)},')]
_TEXT = [line for name in outcome_words.NAMES for line in (
    "  // What %s" % name, "  // means. And more.", "  double %s = 1;" % name)]


def tree(**changes):
    """Files that agree, with changes."""
    files = {outcome_words.TABLE: _TABLE,
             **{path: _TEXT for path in outcome_words.PLACES}}
    files.update(changes)
    return files


class OutcomeWordsTest(unittest.TestCase):

    def test_the_same_words_are_fine(self):
        self.assertEqual(list(outcome_words.check(tree())), [])

    def test_other_words(self):
        path = outcome_words.PLACES[1]
        found = list(outcome_words.check(tree(**{
            path: [line.replace("What gain", "Which gain")
                   for line in _TEXT]})))
        self.assertEqual(len(found), 1)
        self.assertIn(path + ': gain is not "What gain means."', found[0])

    def test_a_place_that_is_gone(self):
        files = tree()
        del files[outcome_words.PLACES[0]]
        self.assertEqual(len(list(outcome_words.check(files))),
                         len(outcome_words.NAMES))

    def test_a_number_that_is_gone(self):
        found = list(outcome_words.check(tree(**{
            outcome_words.TABLE: _TABLE[5:]})))
        self.assertEqual(found, ["%s: no sentence for %s" % (
            outcome_words.TABLE, outcome_words.NAMES[0])])


if __name__ == "__main__":
    unittest.main()
