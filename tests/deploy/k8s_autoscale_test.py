"""deploy/k8s/examples/autoscale: the autoscaler, the workers that it scales, the
job that they join, and the rule that makes the metric known, fit each other."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from tests.deploy import k8s_render as k8s
from tests.deploy import promql
from tests.deploy.k8s_render import only

WHY_NOT = k8s.why_no_render()
WHY_NO_SCHEMAS = k8s.why_no_schemas()
for reason in {WHY_NOT, WHY_NO_SCHEMAS} - {None}:
    print("k8s_autoscale_test skips cases:", reason)

FOLDER = k8s.ROOT / "deploy/k8s/examples/autoscale"
METRIC = "aggserver_useful_workers"


@unittest.skipIf(WHY_NOT, WHY_NOT)
class AutoscaleTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.objects = k8s.render("k8s/examples/autoscale")
        cls.workers = only(cls.objects, "StatefulSet", "digits-worker")
        cls.autoscaler = only(cls.objects, "HorizontalPodAutoscaler")["spec"]
        (config,) = [item for item in cls.objects
                     if item["kind"] == "ConfigMap"]
        cls.job = config["data"]["job.textproto"]

    def field(self, name):
        """A number of the job's configuration."""
        return int(re.search(rf"(?m)^{name}: (\d+)$", self.job).group(1))

    def metric(self):
        """The autoscaler's one metric."""
        (metric,) = self.autoscaler["metrics"]
        self.assertEqual(metric["type"], "External")
        return metric["external"]

    @unittest.skipIf(WHY_NO_SCHEMAS, WHY_NO_SCHEMAS)
    def test_objects_fit_the_schemas(self):
        for version in k8s.VERSIONS:
            errors = k8s.schema_errors(self.objects, version)
            self.assertEqual(len(errors), len(self.objects))
            self.assertEqual(
                [f"{version} {k8s.named(item)} {error}"
                 for item, error in zip(self.objects, errors) if error], [])

    def test_all_are_in_the_namespace(self):
        for item in self.objects:
            if item["kind"] != "Namespace":
                self.assertEqual(item["metadata"]["namespace"], "agg-server",
                                 k8s.named(item))

    def test_the_workers_are_scaled_and_nothing_else(self):
        self.assertEqual(self.autoscaler["scaleTargetRef"], {
            "apiVersion": self.workers["apiVersion"],
            "kind": self.workers["kind"],
            "name": self.workers["metadata"]["name"]})
        # It would undo what the autoscaler did, each time it is applied.
        self.assertNotIn("replicas", self.workers["spec"])
        self.assertEqual(
            only(self.objects, "StatefulSet", "agg")["spec"]["replicas"],
            len(re.findall(r"(?m)^shards: ", self.job)))

    def test_the_job_takes_as_many_workers_as_may_come(self):
        self.assertEqual(self.field("max_workers"),
                         self.autoscaler["maxReplicas"])
        # It begins with the least; a round of one row measures nothing.
        self.assertEqual(self.field("workers"), self.autoscaler["minReplicas"])
        self.assertGreaterEqual(self.autoscaler["minReplicas"], 2)
        self.assertLessEqual(self.field("min_workers"),
                             self.autoscaler["minReplicas"])
        self.assertIn('step_scale { kind: "adascale"', self.job)

    def test_a_pods_rank_is_its_ordinal(self):
        pod = self.workers["spec"]["template"]
        (worker,) = pod["spec"]["containers"]
        (rank,) = worker["env"]
        self.assertEqual(
            rank["valueFrom"]["fieldRef"]["fieldPath"],
            "metadata.labels['apps.kubernetes.io/pod-index']")
        self.assertIn(f"--rank=$({rank['name']})", worker["args"])
        self.assertIn(f"--workers={self.autoscaler['maxReplicas']}",
                      worker["args"])
        address = re.search(r'(?m)^shards: "(.*)"$', self.job).group(1)
        self.assertIn(f"--coordinator={address}", worker["args"])

    def test_pods_are_those_of_the_other_examples(self):
        other = only(k8s.render("k8s/examples/workers"), "Job")["spec"][
            "template"]
        here = self.workers["spec"]["template"]
        self.assertEqual(here["metadata"]["labels"],
                         other["metadata"]["labels"])
        self.assertEqual(here["spec"]["securityContext"],
                         other["spec"]["securityContext"])
        self.assertIs(here["spec"]["automountServiceAccountToken"], False)
        (here,) = here["spec"]["containers"]
        (other,) = other["spec"]["containers"]
        for key in ("image", "command", "securityContext", "resources"):
            self.assertEqual(here[key], other[key])

    def test_the_metric_is_documented_and_asked_of_this_job(self):
        metric = self.metric()["metric"]
        self.assertEqual(metric["name"], METRIC)
        self.assertIn(METRIC, promql.documented())
        name = re.search(r'(?m)^job: "(.*)"$', self.job).group(1)
        self.assertEqual(metric["selector"], {"matchLabels": {"job": name}})
        # The value is a number of pods: an average of 1 for each.
        self.assertEqual(self.metric()["target"],
                         {"type": "AverageValue", "averageValue": "1"})

    def rule(self):
        """prometheus-adapter's."""
        text = (FOLDER / "prometheus_adapter.yaml").read_text(encoding="utf-8")
        (rule,) = k8s.yaml.safe_load(text)["rules"]["external"]
        return rule

    def query(self):
        """As the adapter asks it for the autoscaler."""
        series, name = METRIC, "digits"
        query = self.rule()["metricsQuery"].replace("<<.Series>>", series)
        return query.replace("<<.LabelMatchers>>",
                             f'namespace="agg-server",job="{name}"')

    def test_the_adapters_rule_knows_the_series(self):
        self.assertTrue(self.rule()["seriesQuery"].startswith(METRIC + "{"))
        self.assertNotIn("<<", self.query())

    def test_values_that_are_no_numbers_of_pods(self):
        """NaN is no sample; infinity is more than the autoscaler allows."""
        if not shutil.which("promtool"):
            self.skipTest("no promtool: deploy/setup.sh --monitoring")
        labels = 'namespace="agg-server",job="digits"'
        tests = "".join(f"""
  - interval: 1m
    input_series:
      - series: '{METRIC}{{{labels},shard="0"}}'
        values: '{value}'
      - series: '{METRIC}{{{labels},shard="1"}}'
        values: 'NaN'
    promql_expr_test:
      - expr: '{self.query()}'
        eval_time: 0m
        exp_samples: {expected}
""" for value, expected in (("5.5", "[{value: 5.5}]"), ("NaN", "[]"),
                            ("Inf", "[{value: 1000}]")))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "test.yml"
            path.write_text(f"tests:{tests}", encoding="utf-8")
            done = subprocess.run(["promtool", "test", "rules", str(path)],
                                  capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_guide_applies_it(self):
        guide = k8s.guide()
        for words in ("kubectl apply -k deploy/k8s/examples/autoscale",
                      "deploy/k8s/examples/autoscale/prometheus_adapter.yaml"):
            self.assertTrue(words in guide, words)  # not the whole guide


if __name__ == "__main__":
    unittest.main()
