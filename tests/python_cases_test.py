"""Tests of deploy/bazel/python_cases.py: what a module's cases become."""

import io
import unittest

from deploy.bazel import python_cases


class Cases(unittest.TestCase):
    """None is named test_, so only the test below runs them."""

    def passes(self):
        pass

    def fails(self):
        self.fail("so it is")

    def skips(self):
        self.skipTest("no device")

    def fails_in_part(self):
        for i in range(2):
            with self.subTest(i=i):
                self.assertEqual(i, 0)


class AbsentClass(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        raise unittest.SkipTest("nothing of it is here")

    def passes(self):
        pass


class PythonCasesTest(unittest.TestCase):

    def entries(self, *cases):
        """(name, what became of it, text) of each case that ran."""
        result = unittest.TextTestRunner(
            stream=io.StringIO(), resultclass=python_cases.Result).run(
                unittest.TestSuite(cases))
        suites = python_cases.report(__name__, result)
        self.assertEqual(suites[0].get("name"), __name__)
        return [(case.get("name"), case[0].tag if len(case) else "passed",
                 case[0].get("message") if len(case) else "")
                for case in suites.iter("testcase")]

    def test_each_case_has_an_entry(self):
        passed, failed, skipped = self.entries(
            Cases("passes"), Cases("fails"), Cases("skips"))
        self.assertEqual(passed, ("Cases.passes", "passed", ""))
        self.assertEqual(failed[:2], ("Cases.fails", "failure"))
        self.assertIn("so it is", failed[2])
        self.assertEqual(skipped, ("Cases.skips", "skipped", "no device"))

    def test_a_failed_part_is_a_failure(self):
        (name, kind, _), = self.entries(Cases("fails_in_part"))
        self.assertEqual((name, kind), ("Cases.fails_in_part (i=1)", "failure"))

    def test_a_class_that_is_skipped_says_why(self):
        (name, kind, text), = self.entries(AbsentClass("passes"))
        self.assertIn("AbsentClass", name)
        self.assertEqual((kind, text), ("skipped", "nothing of it is here"))


if __name__ == "__main__":
    unittest.main()
