"""Runs the suites of this folder; ends with `N passed, N failed[, N skipped]`.

A test that does not end ends the run, with every thread's stack and no counts.
"""

import faulthandler
import os
import pathlib
import sys
import time
import unittest


# Seconds of one test; whatever it waits for ends sooner. AGG_LONGEST_TEST: for
# suites that build or install, as tests/run.sh says.
LONGEST = int(os.environ.get("AGG_LONGEST_TEST", 1800))


class Result(unittest.TextTestResult):
    """Counts what passed and prints a line on the rest."""

    def __init__(self, *args):
        super().__init__(*args)
        self.passed = 0
        self.slowest = []

    def startTest(self, test):
        sys.stdout.flush()  # what was said would be lost with the process
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        self._began = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        self.slowest.append((time.monotonic() - self._began, test.id()))
        super().stopTest(test)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1

    def summary(self):
        failed = self.errors + self.failures
        for test, _ in failed:
            print("FAILED ", test.id())
        for test, reason in self.skipped:
            print("SKIPPED", test.id() + ":", reason)
        num_failed, num_skipped = len(failed), len(self.skipped)
        text = f"{self.passed} passed, {num_failed} failed"
        return text + (f", {num_skipped} skipped" if num_skipped else "")


def main(names):
    folder = pathlib.Path(__file__).parent
    loader = unittest.defaultTestLoader
    suite = (loader.loadTestsFromNames(names) if names else
             loader.discover(str(folder), "*_test.py"))
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=2,
                                     resultclass=Result)
    result = runner.run(suite)
    for seconds, name in sorted(result.slowest, reverse=True)[:5]:
        print(f"{seconds:6.1f} s  {name}")
    print(result.summary())
    return 0 if result.passed and result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
