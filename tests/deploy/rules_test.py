"""The alerts: unit-tested by promtool, documented, and about real series."""

import pathlib
import re
import shutil
import subprocess
import unittest

from tests.deploy import promql

FOLDER = pathlib.Path("deploy/prometheus")
RULES = (FOLDER / "rules.yml").read_text(encoding="utf-8")
ALERTS = re.findall(r"- alert: (\w+)", RULES)


def promtool(*arguments):
    result = subprocess.run(["promtool", *map(str, arguments)],
                            capture_output=True, text=True, check=False)
    return result.returncode, result.stdout + result.stderr


class RulesTest(unittest.TestCase):

    @unittest.skipUnless(shutil.which("promtool"),
                         "no promtool: deploy/setup.sh --monitoring")
    def test_promtool_passes_its_unit_tests(self):
        code, output = promtool("test", "rules", FOLDER / "rules_test.yml")
        self.assertEqual(code, 0, output)
        code, output = promtool("check", "config", FOLDER / "prometheus.yml")
        self.assertEqual(code, 0, output)

    def test_each_alert_is_seen_firing_and_not_firing(self):
        tests = (FOLDER / "rules_test.yml").read_text(encoding="utf-8")
        expectations = re.findall(
            r"alertname=\"(\w+)\",alertstate=\"firing\"}'\n"
            r"        eval_time: .*\n"
            r"        exp_samples:( \[\])?", tests)
        fired = {name for name, empty in expectations if not empty}
        quiet = {name for name, empty in expectations if empty}
        self.assertEqual(fired, set(ALERTS))
        # Those whose test has another shard or job that must stay quiet.
        by_sample = {"AggFallbackRate", "AggMemoryNearBudget",
                     "AggDeviceMemoryNearBudget", "AggChecksumErrors"}
        self.assertEqual(fired - quiet, by_sample)

    def test_each_alert_says_what_to_do(self):
        blocks = RULES.split("- alert: ")[1:]
        self.assertEqual(len(blocks), len(ALERTS))
        for block in blocks:
            for part in ("severity: ", "summary: ", "description: ",
                         "runbook: |\n            1. "):
                self.assertIn(part, block)

    def test_each_alert_is_in_the_readme(self):
        readme = (FOLDER / "README.md").read_text(encoding="utf-8")
        self.assertEqual(sorted(re.findall(r"^\| `(Agg\w+)`", readme, re.M)),
                         sorted(ALERTS))

    def test_rules_are_about_series_that_exist(self):
        # Annotations may name series, too.
        self.assertLessEqual(promql.metrics_of(RULES), promql.documented())


if __name__ == "__main__":
    unittest.main()
