"""Tests of bazel_results.py."""

import os
import tempfile
import unittest

from tests import bazel_results

_GTEST = """<testsuites><testsuite name="S">
  <testcase name="Passes" status="run" result="completed" classname="S" />
  <testcase name="Skips" status="run" result="skipped" classname="S">
    <skipped message="s_test.cc:3&#x0A;no device" />
  </testcase>
  <testcase name="DISABLED_Old" status="notrun" result="suppressed"
      classname="S" />
  %s
</testsuite></testsuites>"""
_FAILURE = '<testcase name="F" classname="S"><failure message="x"/></testcase>'
_PLAIN = '<testsuites><testsuite name="p"><testcase name="p">%s</testcase>' \
    "</testsuite></testsuites>"


def built(label, success=True):
    event = {"id": {"targetCompleted": {"label": label}}, "completed": {}}
    if success:
        event["completed"]["success"] = True
    return event


class BazelResultsTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="with space ")
        self.addCleanup(self.folder.cleanup)

    def result(self, label, status="PASSED", xml=None, attempt=1, shard=1):
        outputs = [{"name": "test.log", "uri": "file:///nowhere"}]
        if xml is not None:
            name = "%s_%d_%d.xml" % (label.strip("/:"), attempt, shard)
            path = os.path.join(self.folder.name, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(xml)
            uri = "file://" + path.replace(" ", "%20")
            outputs.append({"name": "test.xml", "uri": uri})
        key = {"label": label, "run": 1, "shard": shard, "attempt": attempt}
        return {
            "id": {"testResult": key},
            "testResult": {"status": status, "testActionOutput": outputs},
        }

    def count(self, events, exit_code=0):
        return bazel_results.count_events(events, exit_code)

    def test_counts_cases_and_gives_the_reason_of_a_skip(self):
        counts = self.count([self.result("//:a", xml=_GTEST % "")])
        self.assertEqual(str(counts), "1 passed, 0 failed, 2 skipped")
        self.assertIn("SKIPPED //:a S.Skips: no device", counts.lines)

    def test_counts_a_failing_case_once(self):
        result = self.result("//:a", "FAILED", _GTEST % _FAILURE)
        counts = self.count([result], 3)
        self.assertEqual(str(counts), "1 passed, 1 failed, 2 skipped")
        self.assertIn("FAILED  //:a S.F", counts.lines)

    def test_a_plain_test_is_one_case(self):
        events = [
            self.result("//:p", xml=_PLAIN % ""),
            self.result("//:q", "FAILED", _PLAIN % '<error message="exit"/>'),
        ]
        self.assertEqual(str(self.count(events, 3)), "1 passed, 1 failed")

    def test_a_crash_counts_with_or_without_half_a_file(self):
        events = [
            self.result("//:a", "FAILED"),
            self.result("//:b", "TIMEOUT", "<testsuites><test"),
            self.result("//:c", "FAILED", _GTEST % ""),
        ]
        counts = self.count(events, 3)
        self.assertEqual(str(counts), "1 passed, 3 failed, 2 skipped")

    def test_only_the_last_attempt_counts_but_every_shard(self):
        events = [
            self.result("//:a", "FAILED", _GTEST % _FAILURE),
            self.result("//:a", "PASSED", _PLAIN % "", attempt=2),
            self.result("//:a", "PASSED", _PLAIN % "", shard=2),
        ]
        self.assertEqual(str(self.count(events)), "2 passed, 0 failed")

    def test_build_errors_count(self):
        aborted = {
            "id": {"targetCompleted": {"label": "//:b"}},
            "aborted": {"reason": "ANALYSIS_FAILURE"},
        }
        events = [
            built("//:ok"), built("//:lib", False), aborted,
            built("//:p"), self.result("//:p", xml=_PLAIN % ""),
        ]
        self.assertEqual(str(self.count(events, 1)), "1 passed, 2 failed")

    def test_a_failed_run_without_events_is_a_failure(self):
        self.assertEqual(str(self.count([], 1)), "0 passed, 1 failed")

    def test_a_test_without_cases_fails(self):
        result = self.result("//:a", xml="<testsuites></testsuites>")
        self.assertEqual(str(self.count([result])), "0 passed, 1 failed")


if __name__ == "__main__":
    unittest.main()
