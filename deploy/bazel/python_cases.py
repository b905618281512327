"""Runs a module of unittest cases as a Bazel test: python_cases.py MODULE

Writes Bazel's XML with an entry for each case, as GoogleTest does, so that a
case that was skipped does not count as one that passed.
"""

import os
import sys
import unittest
import xml.etree.ElementTree as ElementTree


class Result(unittest.TextTestResult):
    """Remembers what passed, too."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.passed = []

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed.append(test)


def report(module, result):
    """The cases as an XML element; a failed subtest is a case of its own."""
    suite = ElementTree.Element("testsuite", name=module)

    def add(test, kind=None, text=""):
        # "module.Class.test_it", or "setUpClass (module.Class)".
        name = test.id().replace(module + ".", "")
        case = ElementTree.SubElement(suite, "testcase", name=name)
        if kind:
            ElementTree.SubElement(case, kind, message=text)

    for test in result.passed:
        add(test)
    for test, text in result.failures:
        add(test, "failure", text)
    for test, text in result.errors:
        add(test, "error", text)
    for test, reason in result.skipped:
        add(test, "skipped", reason)
    for test in result.unexpectedSuccesses:
        add(test, "failure", "it should have failed")
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    return suites


def main(module):
    runner = unittest.TextTestRunner(verbosity=2, resultclass=Result)
    result = runner.run(unittest.defaultTestLoader.loadTestsFromName(module))
    path = os.environ.get("XML_OUTPUT_FILE")
    if path:
        ElementTree.ElementTree(report(module, result)).write(
            path, encoding="utf-8", xml_declaration=True)
    return 0 if result.wasSuccessful() and result.testsRun + len(
        result.skipped) else 1


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())  # of the runfiles
    sys.exit(main(sys.argv[1]))
