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
TESTS = sorted(FOLDER.glob("rules_*test.yml"))
# A sample that is expected, a query whose samples are listed.
_EXPECTATION = re.compile(
    r"expr: 'ALERTS{([^}]*)}'\n"
    r"        eval_time: .*\n"
    r"        exp_samples:(?: \[\])?\n"
    r"((?:          - labels: .*\n            value: .*\n)*)")


def promtool(*arguments):
    result = subprocess.run(["promtool", *map(str, arguments)],
                            capture_output=True, text=True, check=False)
    return result.returncode, result.stdout + result.stderr


class RulesTest(unittest.TestCase):

    @unittest.skipUnless(shutil.which("promtool"),
                         "no promtool: deploy/setup.sh --monitoring")
    def test_promtool_passes_its_unit_tests(self):
        for path in TESTS:
            code, output = promtool("test", "rules", path)
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
        """Fires: a sample that is expected. Does not: a query that asks for
        it by its name, and gets no sample of it."""
        fired, quiet = set(), set()
        for path in TESTS:
            text = path.read_text(encoding="utf-8")
            expectations = _EXPECTATION.findall(text)
            self.assertEqual(len(expectations), text.count("expr: 'ALERTS{"),
                             path)
            for asked, samples in expectations:
                if 'alertstate="firing"' not in asked:
                    continue
                fires = set(re.findall(r'alertname="(\w+)"', samples))
                fired |= fires
                named = re.search(r'alertname=~?"([\w|]+)"', asked)
                if named:
                    quiet |= set(named[1].split("|")) - fires
        self.assertEqual(fired, set(ALERTS))
        # It always fires.
        self.assertEqual(quiet, set(ALERTS) - {"AggWatchdog"})

    def test_each_alert_says_what_to_do(self):
        blocks = RULES.split("- alert: ")[1:]
        self.assertEqual(len(blocks), len(ALERTS))
        for block in blocks:
            for part in ("severity: ", "summary: ", "description: ",
                         "runbook: |\n            1. "):
                self.assertIn(part, block)

    def test_no_rule_mixes_jobs(self):
        """Every aggregation, and every join, keeps the namespace and the job."""
        exprs = "".join(re.findall(r"(?m)^ +expr: .*(?:\n {10,}.*)*", RULES))
        aggregations = re.findall(
            r"\b(?:sum|min|max|avg|count|quantile|topk)\b *(by|without)? *"
            r"(\([^)]*\))", exprs)
        self.assertGreater(len(aggregations), 20)
        for kind, labels in aggregations:
            self.assertEqual(kind, "by", labels)
            self.assertIn("namespace", labels)
            self.assertIn("job", labels)
        for labels in re.findall(r"\bon (\([^)]*\))", exprs):
            self.assertIn("namespace, ", labels)
            self.assertIn("job", labels)
        self.assertNotIn("ignoring", exprs)

    def test_alerts_keep_the_pod(self):
        # What is not there has none.
        without = {"AggJobAbsent", "AggJobDown", "AggShardMissing",
                   "AggShardUnread"}
        for block in RULES.split("- alert: ")[1:]:
            name, expr = block.split()[0], block.split("        for: ")[0]
            by = re.findall(r"\bby (\([^)]*\))", expr)
            for labels in by:
                self.assertEqual("pod" in labels, name not in without,
                                 f"{name}: {labels}")

    def test_the_commands_that_steps_name_exist(self):
        tools = pathlib.Path("worker_client/tools/README.md").read_text(
            encoding="utf-8")
        commands = set(re.findall(r"(?m)^\| `([a-z-]+)", tools))
        named = set(re.findall(r"`aggctl\s+([a-z-]+)", RULES))
        self.assertGreater(len(named), 5)
        self.assertLessEqual(named, commands)

    def test_each_alert_links_to_its_steps(self):
        for block in RULES.split("- alert: ")[1:]:
            (page, anchor), = re.findall(
                r"runbook_url: '{{ or \$externalLabels\.agg_runbooks "
                r"\"(\S+)\" }}#(\w+)'", block)
            readme = pathlib.Path(page).read_text(encoding="utf-8")
            # A heading's anchor, as GitHub and GitLab make it.
            headings = {re.sub(r"[^a-z0-9 _-]", "", line.lower())
                        .replace(" ", "-"): line
                        for line in re.findall(r"(?m)^#+ (.*)$", readme)}
            self.assertIn(anchor, headings)
            section = readme.split(f"# {headings[anchor]}\n")[1].split("\n#")[0]
            self.assertIn("\n1. ", section, anchor)

    def test_the_list_of_expected_jobs_can_be_filled_in(self):
        """As its comment and the README say."""
        text = (FOLDER / "expected_jobs.yml").read_text(encoding="utf-8")
        filled, n = re.subn(r"(?m)^( +)# (- | {2,})", r"\1\2",
                            text.replace("rules: []", "rules:"))
        self.assertEqual(n, 4)
        with tempfile.TemporaryDirectory(prefix="agg_prometheus_") as scratch:
            path = pathlib.Path(scratch) / "expected_jobs.yml"
            path.write_text(filled)
            if shutil.which("promtool"):
                code, output = promtool("check", "rules", path)
                self.assertEqual(code, 0, output)
                self.assertIn("1 rules found", output)
        readme = (FOLDER / "README.md").read_text(encoding="utf-8")
        self.assertIn("      - record: aggserver:job_expected\n"
                      "        expr: vector(1)\n", readme)
        self.assertIn("record: aggserver:job_expected", filled)

    def test_each_alert_is_in_the_readme(self):
        readme = (FOLDER / "README.md").read_text(encoding="utf-8")
        self.assertEqual(sorted(re.findall(r"^\| `(Agg\w+)`", readme, re.M)),
                         sorted(ALERTS))

    def test_rules_are_about_series_that_exist(self):
        # Annotations may name series, too.
        self.assertLessEqual(promql.metrics_of(RULES), promql.documented())


if __name__ == "__main__":
    unittest.main()
