"""deploy/k8s/overlays/monitoring: one for all jobs, whatever their namespaces,
and the same as deploy/prometheus and deploy/grafana, from which it is made."""

import re
import unittest

from deploy.k8s import generate
from tests.deploy import k8s_render as k8s
from tests.deploy.k8s_render import matches, only

WHY_NOT = k8s.why_no_render()
if WHY_NOT:
    print("k8s_monitoring_test skips cases:", WHY_NOT)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class MonitoringTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.objects = k8s.render(f"k8s/overlays/{k8s.MONITORING}")
        cls.jobs = [k8s.render(f"k8s/overlays/{name}") for name in k8s.PLAIN]

    def test_generated_files_are_up_to_date(self):
        for path, text in generate.generated().items():
            self.assertEqual(path.read_text(), text,
                             "deploy/k8s/generate.py makes it")

    def test_the_rule_object_has_the_rules(self):
        groups = generate.rule_groups()
        rule = only(self.objects, "PrometheusRule")
        self.assertGreater(len(groups), 0)
        self.assertEqual(rule["spec"], {"groups": groups})
        for group in groups:
            for item in group["rules"]:
                # Prometheus' own names of the fields, which the operator's
                # object shares.
                self.assertLessEqual(set(item), {
                    "alert", "record", "expr", "for", "labels", "annotations",
                    "keep_firing_for"})
                self.assertEqual(("alert" in item) + ("record" in item), 1)

    def test_a_job_says_that_it_is_expected(self):
        objects = k8s.render(f"k8s/overlays/{k8s.EXPECTED_JOB}")
        rule = only(objects, "PrometheusRule")
        (group,) = rule["spec"]["groups"]
        (item,) = group["rules"]
        (job,) = re.findall(r'(?m)^job: "(.*)"', only(
            self.jobs[0], "ConfigMap")["data"]["job.textproto"])
        self.assertEqual(item, {
            "record": "aggserver:job_expected", "expr": "vector(1)",
            "labels": {"namespace": rule["metadata"]["namespace"],
                       "job": job}})
        self.assertEqual(
            rule["metadata"]["namespace"],
            only(self.jobs[0], "StatefulSet")["metadata"]["namespace"])

    def test_another_job_says_so_as_the_readme_shows(self):
        if k8s.minor_version() < 21:
            print("k8s_monitoring_test skips the README's overlay: needs "
                  "kubectl 1.21")
            self.skipTest("needs kubectl 1.21")
        readme = (k8s.ROOT / "deploy/prometheus/README.md").read_text()
        (example,) = re.findall(
            r"(?s)```yaml\n# my-expected-job/kustomization.yaml\n(.*?)```",
            readme)
        path = "../agg_server/deploy/k8s/overlays/expected_job"
        self.assertIn(path, example)

        def edit(deploy):
            folder = deploy / "k8s/my-expected-job"
            folder.mkdir()
            (folder / "kustomization.yaml").write_text(
                example.replace(path, "../overlays/expected_job"))

        rule = only(k8s.render("k8s/my-expected-job", edit), "PrometheusRule")
        self.assertEqual(rule["metadata"]["namespace"], "vision")
        self.assertEqual(rule["spec"]["groups"][0]["rules"], [{
            "record": "aggserver:job_expected", "expr": "vector(1)",
            "labels": {"namespace": "vision", "job": "cats"}}])

    def test_every_dashboard_is_a_config_map(self):
        maps = [item for item in self.objects if item["kind"] == "ConfigMap"
                and item["metadata"].get("labels", {}).get(
                    "grafana_dashboard") == "1"]
        data = {}
        for item in maps:
            self.assertLess(len(str(item["data"])), 1 << 20)
            self.assertEqual(item["metadata"]["annotations"],
                             {"grafana_folder": "agg_server"})
            data.update(item["data"])
        self.assertEqual(data, {path.name: path.read_text()
                                for path in generate.dashboards()})
        self.assertGreater(len(data), 0)

    def test_the_monitor_scrapes_each_shard_once(self):
        monitor = only(self.objects, "ServiceMonitor")["spec"]
        (endpoint,) = monitor["endpoints"]
        self.assertEqual((endpoint["honorLabels"],
                          endpoint["metricRelabelings"]), k8s.scraping())
        # Of every job, in whatever namespace.
        self.assertEqual(monitor["namespaceSelector"], {"any": True})
        for objects in self.jobs:
            services = [item for item in objects if item["kind"] == "Service"
                        and matches(monitor["selector"],
                                    item["metadata"]["labels"])]
            self.assertEqual([k8s.named(item) for item in services],
                             ["Service/agg"])
            self.assertIn(endpoint["port"], {
                port["name"] for port in services[0]["spec"]["ports"]})

    def test_it_is_there_once_for_all_jobs(self):
        self.assertEqual({item["kind"] for item in self.objects},
                         {"ConfigMap", "PrometheusRule", "ServiceMonitor"})
        for item in self.objects:
            self.assertEqual(item["metadata"]["namespace"], "monitoring",
                             k8s.named(item))
        # Prometheus may come from there.
        for objects in self.jobs:
            policy = only(objects, "NetworkPolicy")["spec"]
            self.assertIn(
                {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
                [peer["namespaceSelector"] for rule in policy["ingress"]
                 for peer in rule["from"] if "namespaceSelector" in peer])


if __name__ == "__main__":
    unittest.main()
