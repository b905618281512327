"""The alerts: unit-tested by promtool, documented, and about real series."""

import pathlib
import re
import shutil
import subprocess
import tempfile
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
        for name in ("rules_test.yml", "rules_jobs_test.yml"):
            code, output = promtool("test", "rules", FOLDER / name)
            self.assertEqual(code, 0, output)
        with tempfile.TemporaryDirectory(prefix="agg_prometheus_") as scratch:
            folder = pathlib.Path(scratch)
            for path in FOLDER.glob("*.yml"):
                shutil.copy(path, folder)
            # It wants to see them, and nothing of what is in them.
            for name in ("ca.pem", "token"):
                (folder / name).touch()
            for name in ("prometheus.yml", "prometheus_tls.yml"):
                code, output = promtool("check", "config", folder / name)
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

    def test_no_rule_mixes_jobs(self):
        """Every aggregation, and every join, keeps the namespace and the job."""
        aggregations = re.findall(
            r"\b(?:sum|min|max|avg|count|quantile|topk)\b *(by|without)? *"
            r"(\([^)]*\))", RULES)
        self.assertGreater(len(aggregations), 20)
        for kind, labels in aggregations:
            self.assertEqual(kind, "by", labels)
            self.assertIn("namespace", labels)
            self.assertIn("job", labels)
        for labels in re.findall(r"\bon (\([^)]*\))", RULES):
            self.assertIn("namespace, ", labels)
            self.assertIn("job", labels)
        self.assertNotIn("ignoring", RULES)

    def test_alerts_keep_the_pod(self):
        # A missing shard has none.
        for block in RULES.split("- alert: ")[1:]:
            name, expr = block.split()[0], block.split("        for: ")[0]
            for labels in re.findall(r"\bby (\([^)]*\))", expr):
                self.assertEqual("pod" in labels, name != "AggShardMissing",
                                 f"{name}: {labels}")

    def test_each_alert_links_to_its_steps(self):
        for block in RULES.split("- alert: ")[1:]:
            (url,) = re.findall(r"runbook_url: (\S+)", block)
            path, _, anchor = url.partition("#")
            readme = pathlib.Path(path).read_text(encoding="utf-8")
            # A heading's anchor, as GitHub and GitLab make it.
            headings = {re.sub(r"[^a-z0-9 _-]", "", line.lower())
                        .replace(" ", "-"): line
                        for line in re.findall(r"(?m)^#+ (.*)$", readme)}
            self.assertIn(anchor, headings)
            section = readme.split(f"# {headings[anchor]}\n")[1].split("\n#")[0]
            self.assertIn("\n1. ", section, anchor)

    def test_each_alert_is_in_the_readme(self):
        readme = (FOLDER / "README.md").read_text(encoding="utf-8")
        self.assertEqual(sorted(re.findall(r"^\| `(Agg\w+)`", readme, re.M)),
                         sorted(ALERTS))

    def test_rules_are_about_series_that_exist(self):
        # Annotations may name series, too.
        self.assertLessEqual(promql.metrics_of(RULES), promql.documented())


if __name__ == "__main__":
    unittest.main()
