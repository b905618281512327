"""The dashboards as Grafana will read them; no Grafana takes part."""

import re
import shutil
import subprocess
import tempfile
import unittest

from deploy.grafana import generate
from tests.deploy import promql

DASHBOARDS = promql.dashboards()


def targets():
    for name, dashboard in DASHBOARDS.items():
        for panel in promql.panels(dashboard):
            for target in panel["targets"]:
                yield f"{name}, {panel['title']}", panel, target


class DashboardsTest(unittest.TestCase):

    def test_the_files_are_what_the_generator_writes(self):
        for name, text in generate.rendered().items():
            path = promql.GRAFANA / name
            self.assertEqual(path.read_text(encoding="utf-8"), text,
                             f"{name}: run deploy/grafana/generate.py")
        self.assertEqual(set(generate.rendered()), set(DASHBOARDS))

    def test_there_are_five_with_names_of_their_own(self):
        self.assertEqual(len(DASHBOARDS), 5)
        for field in ("uid", "title"):
            values = {d[field] for d in DASHBOARDS.values()}
            self.assertEqual(len(values), 5, field)
        for dashboard in DASHBOARDS.values():
            self.assertLessEqual(len(dashboard["uid"]), 40)  # Grafana's limit
            self.assertEqual(dashboard["schemaVersion"], 37)
            self.assertNotIn("id", dashboard)  # the database's to give

    def test_panels_have_unique_ids_and_places(self):
        for name, dashboard in DASHBOARDS.items():
            ids = [panel["id"] for panel in dashboard["panels"]]
            self.assertEqual(len(ids), len(set(ids)), name)
            taken = set()
            for panel in dashboard["panels"]:
                place = panel["gridPos"]
                self.assertLessEqual(place["x"] + place["w"], 24)
                cells = {(x, y)
                         for x in range(place["x"], place["x"] + place["w"])
                         for y in range(place["y"], place["y"] + place["h"])}
                self.assertFalse(cells & taken, f"{name}, {panel['title']}")
                taken |= cells

    def test_every_source_is_the_variable(self):
        for name, dashboard in DASHBOARDS.items():
            sources = re.findall(r'"uid": "([^"]*datasource[^"]*)"',
                                 generate.rendered()[name])
            self.assertEqual(set(sources), {"${datasource}"})
            first = dashboard["templating"]["list"][0]
            self.assertEqual((first["type"], first["name"], first["query"]),
                             ("datasource", "datasource", "prometheus"))
        for where, panel, target in targets():
            for item in (panel, target):
                self.assertEqual(
                    item["datasource"],
                    {"type": "prometheus", "uid": "${datasource}"}, where)

    def test_only_declared_variables_are_used(self):
        for name, dashboard in DASHBOARDS.items():
            declared = {v["name"] for v in dashboard["templating"]["list"]}
            used = set()
            for panel in promql.panels(dashboard):
                for target in panel["targets"]:
                    used |= set(re.findall(r"\$(\w+)", target["expr"]))
            used -= {"__rate_interval"}
            self.assertEqual(used, declared - {"datasource"}, name)

    def test_panels_say_what_they_show(self):
        for where, panel, target in targets():
            self.assertTrue(panel["title"], where)
            # In every selector: nothing shows two jobs as one.
            for selector in re.findall(r"\b(?:aggserver|process)_\w+({[^}]*}|)",
                                       target["expr"]):
                self.assertTrue(selector.startswith(
                    '{namespace="$namespace",job="$job"'), where)
            for labels in re.findall(r"\bon \((.*?)\)", target["expr"]):
                self.assertEqual(labels, "namespace, job", where)
            for label in re.findall(r"\{\{(\w+)\}\}",
                                    target["legendFormat"]):
                self.assertIn(label, {
                    "tensor", "file", "worker", "shard", "rule", "scope",
                    "step_scale", "outcome", "phase", "kind", "version",
                    "backend", "late_shard", "reason", "method", "code",
                    "transport", "use", "becomes", "name", "answer"}, where)

    def test_queries_name_what_is_documented_and_all_of_it(self):
        shown = set()
        for where, _, target in targets():
            names = promql.metrics_of(target["expr"])
            self.assertTrue(names, where)
            self.assertLessEqual(names, promql.documented(), where)
            shown |= names
        # process_* are other dashboards' names for what has a place here, too.
        self.assertEqual({name for name in promql.documented() - shown
                          if name.startswith("aggserver_")}, set())

    def test_alerts_shown_are_those_of_the_job(self):
        for name, dashboard in DASHBOARDS.items():
            (alerts,) = dashboard["annotations"]["list"]
            self.assertIn('namespace="$namespace",job="$job"', alerts["expr"],
                          name)

    def test_every_query_parses(self):
        if not shutil.which("promtool"):
            self.skipTest("no promtool: deploy/setup.sh --monitoring")
        rules = []
        for where, _, target in targets():
            expr = promql.substituted(target["expr"], "j", "1m")
            rules.append("  - record: query\n    expr: '"
                         + expr.replace("'", "''") + "'\n    labels: {n: '"
                         + f"{len(rules)} {where}".replace("'", "''") + "'}")
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            file.write("groups:\n- name: queries\n  rules:\n"
                       + "\n".join(rules) + "\n")
            file.flush()
            result = subprocess.run(["promtool", "check", "rules", file.name],
                                    capture_output=True, text=True,
                                    check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn(f"{len(rules)} rules found", result.stdout)


if __name__ == "__main__":
    unittest.main()
