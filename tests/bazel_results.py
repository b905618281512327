#!/usr/bin/python3
"""Counts the test cases of one Bazel run.

  bazel_results.py EVENTS EXIT_CODE

EVENTS is what --build_event_json_file wrote, EXIT_CODE Bazel's own. Prints one
line per failed or skipped case and ends with `N passed, N failed`, followed by
`, N skipped` if there are any. Exits with 1 unless something passed and nothing
failed.

Only the targets of that run count, cached results included. A case is one of
GoogleTest or of unittest; any other test is one case. A target that fails
without a failing case (a crash, a timeout, a build error) is one failed case,
and so is a run that fails without a failing target.
"""

import json
import os
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


class Counts:
    """Passed, failed and skipped cases, with a line on each unusual one."""

    def __init__(self, passed=0, failed=0, skipped=0):
        self.passed = passed
        self.failed = failed
        self.skipped = skipped
        self.lines = []

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.lines += other.lines

    def fail(self, line):
        self.failed += 1
        self.lines.append("FAILED  " + line)

    def __str__(self):
        text = "%d passed, %d failed" % (self.passed, self.failed)
        return text + (", %d skipped" % self.skipped if self.skipped else "")


def first_line(element):
    lines = (element.get("message") or element.text or "").split("\n")
    # GoogleTest puts file:line above the reason.
    return next((line for line in lines[1:] + lines[:1] if line.strip()), "")


def count_cases(label, root):
    """Counts of one test.xml, given as its root element."""
    counts = Counts()
    for case in root.iter("testcase"):
        parts = (case.get("classname"), case.get("name"))
        name = label + " " + ".".join(part for part in parts if part)
        if case.find("failure") is not None or case.find("error") is not None:
            counts.fail(name)
            continue
        skipped = case.find("skipped")
        if skipped is not None or case.get("status") == "notrun":
            reason = "disabled" if skipped is None else first_line(skipped)
            counts.skipped += 1
            counts.lines.append("SKIPPED %s: %s" % (name, reason))
            continue
        counts.passed += 1
    return counts


def count_result(label, result):
    """Counts of one testResult event (a shard of a test, say)."""
    counts = Counts()
    for output in result.get("testActionOutput", []):
        if output.get("name") != "test.xml":
            continue
        path = urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
        try:
            counts = count_cases(label, ElementTree.parse(path).getroot())
        except (OSError, ElementTree.ParseError):
            pass  # A crash may leave half a file; the status below tells.
    status = result.get("status", "NO_STATUS")
    if status != "PASSED" and counts.failed == 0:
        counts.fail("%s %s" % (label, status))
    if status == "PASSED" and not counts.passed + counts.failed + counts.skipped:
        # A GoogleTest without cases is not a test that passed.
        counts.fail("%s ran no case" % label)
    return counts


def count_events(events, exit_code):
    """Counts of a run, given its events (dicts) and Bazel's exit code."""
    attempts = {}  # (label, run, shard) -> the last attempt
    broken = {}
    for event in events:
        event_id = event.get("id", {})
        if "testResult" in event_id and "testResult" in event:
            key = event_id["testResult"]
            place = (key["label"], key.get("run", 0), key.get("shard", 0))
            attempts[place] = event["testResult"]
        elif "targetCompleted" in event_id:
            label = event_id["targetCompleted"]["label"]
            aborted = event.get("aborted", {}).get("reason")
            if aborted and aborted != "SKIPPED":
                broken[label] = aborted
            elif not aborted and not event["completed"].get("success"):
                broken[label] = "does not build"
    total = Counts()
    for (label, _, _), result in sorted(attempts.items(), key=lambda x: x[0]):
        total.add(count_result(label, result))
    tested = {label for label, _, _ in attempts}
    for label in sorted(set(broken) - tested):
        total.fail("%s %s" % (label, broken[label]))
    if exit_code != 0 and total.failed == 0:
        total.fail("bazel ended with exit code %d" % exit_code)
    return total


def main(argv):
    if len(argv) != 3:
        sys.exit(__doc__)
    events = []
    if os.path.exists(argv[1]):  # Bazel may die before it writes.
        with open(argv[1], encoding="utf-8") as lines:
            for line in lines:
                try:
                    events.append(json.loads(line))
                except ValueError:
                    break  # An interrupted run ends in half a line.
    counts = count_events(events, int(argv[2]))
    for line in counts.lines:
        print(line)
    print(counts)
    return 0 if counts.passed and not counts.failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
