"""What the drill is made of: time that runs faster, configurations that are
rendered and not copied, a scene for each alert, and a verdict on a scene."""

import re
import unittest

from deploy import quickstart_monitoring as monitoring
from tests.e2e import drill, drill_prometheus, drill_rules, drill_scenes
from tests.e2e.drill_job import DrillError

RULES = (monitoring.CONFIG / "rules.yml").read_text()
# Large numbers in the rules' expressions that are no seconds, or that the drill
# meets as they are: a GiB, a day of certificates, how long a lost job is told.
NO_SECONDS = {"1073741824", "24", "3600", "30", "86400"}
SECONDS = {"aggserver:stall_seconds": ("60",)}
TEXT = """groups:
  - name: g
    rules:
      - record: aggserver:stall_seconds
        expr: >-
          (10 * a{le="60"} > 60)
          or b + 60
      - alert: One
        # Within 15 minutes.
        expr: >-
          max_over_time(x[15m]) > 60 and rate(y[1h30m:15s] offset 2m) > 0
        for: 1m
        keep_firing_for: 5m
        labels:
          severity: critical
        annotations:
          description: for 1m, [15m] and for: 2m
      - alert: Two
        expr: >-
          z > 0
        for: 0m
        labels:
          severity: warning
"""
SCALED = """groups:
  - name: g
    rules:
      - record: aggserver:stall_seconds
        expr: >-
          (10 * a{le="60"} > 2)
          or b + 2
      - alert: One
        # Within 15 minutes.
        expr: >-
          max_over_time(x[30s]) > 60 and rate(y[180s:500ms] offset 4s) > 0
        for: 2s
        keep_firing_for: 10s
        labels:
          severity: critical
        annotations:
          description: for 1m, [30s] and for: 2m
      - alert: Two
        expr: >-
          z > 0
        for: 0s
        labels:
          severity: warning
"""


def milliseconds(durations):
    """"1h30m" and "15s" of a text as numbers."""
    return [sum(int(n) * drill_rules.UNITS[unit] for n, unit in
                re.findall(r"(\d+)(ms|[smhdw])", duration))
            for duration in durations]


def times(text):
    """Every duration of the rules' expressions and of their `for`, in order."""
    found = []
    for name, begin, end in drill_rules.rules(text):
        del name
        body = text[begin:end].split("annotations:")[0]
        found += re.findall(
            r"(?<![\w.])(?<![a-z]:)(?:\d+(?:ms|[smhdw]))+(?![\w.])", body)
    return milliseconds(found)


class ScaledTest(unittest.TestCase):

    def test_a_duration_is_divided(self):
        for duration, factor, expected in (
                ("15m", 60, "15s"), ("1m", 30, "2s"), ("15s", 30, "500ms"),
                ("0m", 30, "0s"), ("1h30m", 60, "90s"), ("1d", 60, "1440s"),
                ("1s", 10000, "1ms"), ("90s", 1, "90s")):
            self.assertEqual(drill_rules.shorter(duration, factor), expected)

    def test_rules_are_scaled_and_else_the_same(self):
        self.assertEqual(drill_rules.scaled_rules(TEXT, 30, SECONDS), SCALED)

    def test_no_time_of_the_rules_is_left_out(self):
        scaled = drill_rules.scaled_rules(RULES, 30)
        before, after = times(RULES), times(scaled)
        self.assertGreater(len(before), 30)
        self.assertEqual([time / 30 for time in before], after)

    def test_seconds_without_a_unit_are_known(self):
        known = {number for numbers in drill_rules.SECONDS.values()
                 for number in numbers}
        for name, expression in drill_rules.expressions(RULES):
            # Without durations, labels' values and names.
            plain = re.sub(r'"[^"]*"|\[[^\]]*\]', "", expression)
            for number in re.findall(r"(?<![\w.:])\d+(?:\.\d+)?(?![\w.:])",
                                     plain):
                if float(number) < 20 or number in NO_SECONDS:
                    continue
                self.assertIn(number, known, name)
                self.assertIn(name, drill_rules.SECONDS)

    def test_seconds_of_a_rule_that_is_gone_are_refused(self):
        with self.assertRaisesRegex(ValueError, "has the rule gone;"):
            drill_rules.scaled_rules(TEXT, 30, {"gone": ("60",)})
        with self.assertRaisesRegex(ValueError, "has 61 of the rule One;"):
            drill_rules.scaled_rules(TEXT, 30, {"One": ("61",)})

    def test_alerts_have_severities(self):
        self.assertEqual(drill_rules.alerts(TEXT),
                         {"One": "critical", "Two": "warning"})

    def test_alertmanager_sends_all_to_the_pager_and_soon(self):
        text = ("route:\n  receiver: a\n  group_wait: 30s\n"
                "  repeat_interval: 4h\nreceivers:\n  # People.\n  - name: a\n"
                "    webhook_configs:\n      - url: https://example.com/\n"
                "  - name: b\ninhibit_rules:\n  - equal: [job]\n")
        self.assertEqual(
            drill_prometheus.alertmanager_text(text, 30, "http://x/"),
            "route:\n  receiver: a\n  group_wait: 1s\n"
            "  repeat_interval: 480s\nreceivers:\n"
            "  - name: a\n    webhook_configs:\n      - url: http://x/\n"
            "        send_resolved: true\n"
            "  - name: b\n    webhook_configs:\n      - url: http://x/\n"
            "        send_resolved: true\n"
            "inhibit_rules:\n  - equal: [job]\n")

    def test_prometheus_looks_more_often_and_knows_an_alertmanager(self):
        text = drill_prometheus.prometheus_text(
            (monitoring.CONFIG / "prometheus.yml").read_text(), 1234, "/ca.pem",
            "/expected.yml")
        self.assertIn(
            f"scrape_interval: {drill_prometheus.SCRAPE_INTERVAL}\n", text)
        self.assertIn(
            f"evaluation_interval: {drill_prometheus.RULE_INTERVAL}\n", text)
        self.assertEqual(text.count("127.0.0.1:1234"), 1)
        self.assertEqual(text.count("\nalerting:"), 1)
        self.assertEqual(text.count("ca_file: /ca.pem"), 1)
        self.assertEqual(text.count("  - /expected.yml\n"), 1)


class ScenesTest(unittest.TestCase):

    def test_each_alert_has_a_scene_or_a_reason(self):
        alerts = drill_rules.alerts(RULES)
        fires = {name for scene in drill_scenes.ALL
                 for name in (*scene.fires, *scene.silent)}
        without = set(drill_scenes.WITHOUT)
        self.assertEqual(fires & without, set())
        self.assertEqual(set(alerts) - fires - without, set())
        self.assertEqual((fires | without) - set(alerts), set())
        for scene in drill_scenes.ALL:
            self.assertEqual(set(scene.may) - set(alerts), set(), scene)
            self.assertTrue(scene.__doc__, scene)

    def test_scenes_have_names_of_their_own(self):
        names = [scene.name() for scene in drill_scenes.ALL]
        self.assertEqual(len(set(names)), len(names))
        self.assertIn("all_shards_killed", names)


class FakeWatch:
    """Of which a test says what has fired and what was told."""

    severities = {"Page": "critical", "Note": "warning", "Other": "critical"}

    def __init__(self, fired=(), told=(), told_wrongly=()):
        self.told_wrongly = told_wrongly
        self.fired, self.pager = set(fired), self
        self.told_names = told

    def ever_fired(self, *_):
        return self.fired

    def told(self, *_):
        return {("pager" if name in self.told_wrongly
                 or self.severities[name] == "critical" else "chat", name)
                for name in self.told_names}


class FakeScene:

    fires, silent, may = ("Page",), ("Other",), ("Note",)

    def selector(self):
        return {"job": "any"}


class VerdictTest(unittest.TestCase):

    def check(self, fired, told, may=("Note",), wrongly=(), released=()):
        play = object.__new__(drill.Play)
        play.watch = FakeWatch(fired, told, wrongly)
        play.scene = FakeScene()
        play.scene.may = may
        play.began = 0
        play.check("now", {"Page", "Other"}, released)

    def test_what_is_expected_passes(self):
        self.check({"Page", "Other"}, {"Page"})
        self.check({"Page", "Other", "Note"}, {"Page", "Note"})

    def test_an_alert_beside_is_found(self):
        with self.assertRaisesRegex(DrillError, "also fired Note"):
            self.check({"Page", "Other", "Note"}, {"Page"}, may=())

    def test_a_page_that_should_have_been_kept_back_is_found(self):
        with self.assertRaisesRegex(DrillError, "Other got through"):
            self.check({"Page", "Other"}, {"Page", "Other"})
        # Also one that may fire.
        with self.assertRaisesRegex(DrillError, "Other got through"):
            self.check({"Page", "Other"}, {"Page", "Other"},
                       may=("Note", "Other"))

    def test_what_is_kept_back_may_be_told_when_it_is_over(self):
        self.check({"Page", "Other"}, {"Page", "Other"}, released=("Other",))

    def test_who_is_woken_by_what_is_read_in_the_morning_is_found(self):
        with self.assertRaisesRegex(DrillError, "Note is warning and went to"):
            self.check({"Page", "Other", "Note"}, {"Page", "Note"},
                       wrongly=("Note",))

    def test_a_wrong_scene_is_named_with_those_that_there_are(self):
        self.assertEqual(drill.main(["--bin=.", "--only=nothing"]), 2)

    def test_a_scene_that_fails_is_said_so_in_the_table(self):
        scene = drill_scenes.ALL[0]
        text = drill.table([drill.Result(scene, 1, "it was not so", "")],
                           {})
        self.assertIn("FAILED: it was not so", text)
        self.assertNotIn("FAILED", drill.table(
            [drill.Result(scene, 1, "", "")], {}))
        self.assertIn("skipped: no way", drill.table(
            [drill.Result(scene, 0, "", "no way")], {}))


if __name__ == "__main__":
    unittest.main()
