"""Real trainings, scraped by a real Prometheus: each query of each dashboard
returns numbers, and alerts fire for what is done to the trainings."""

import io
import json
import math
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest
from unittest import mock
import urllib.parse
import urllib.request

from deploy import quickstart_job as job
from deploy import quickstart_monitoring as monitoring
from tests.deploy import promql

BIN = pathlib.Path.cwd()  # of the runfiles
RULES = monitoring.CONFIG / "rules.yml"
SECONDS = 120  # for anything to happen
PERIOD = 0.2   # of looking
# Families that a training without TLS has no numbers of: NaN.
NAN_WITHOUT_TLS = {"aggserver_certificate_expiry_timestamp_seconds"}
# Without a number in this job: it has neither an external rule, nor lagged
# averages, nor gains per group.
OF_OTHER_JOBS = {"aggserver_rule_answers_total",
                 "aggserver_rule_process_connected",
                 "aggserver_next_gain_ratio", "aggserver_group_gain_ratio"}


def eventually(what, look):
    """The first true value that look() returns; fails after SECONDS."""
    deadline = time.monotonic() + SECONDS
    while True:
        value = look()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {SECONDS} s: {what}")
        time.sleep(PERIOD)


def hasten(folder):
    """Copies of the configuration and rules with short intervals.

    Nothing else is changed: alerts fire at once when their condition holds,
    and a stall begins after 3 s instead of 60.
    """
    config = (monitoring.CONFIG / "prometheus.yml").read_text()
    config, n = re.subn(r"(scrape|evaluation)_interval: \d+s",
                        r"\1_interval: 500ms", config)
    assert n == 2, config
    (folder / "prometheus.yml").write_text(config)
    rules, n = re.subn(r"\bfor: \d+[sm]", "for: 0s", RULES.read_text())
    assert n == rules.count("- alert: "), n
    rules, n = re.subn(r"\b60\)", "3)", rules)
    assert n == 2, n
    (folder / "rules.yml").write_text(rules)


class Training:
    """A run of the quickstart's processes, much longer than any test."""

    def __init__(self, prometheus, **changes):
        self.run = job.Run(rule="adasum", epochs=1000, monitoring=True,
                           **{"workers": 4, **changes})
        self.name = job.job_name(self.run)
        self.prometheus = prometheus
        self.folder = tempfile.TemporaryDirectory(prefix="agg_monitoring_")
        self.processes = job.Processes(pathlib.Path(self.folder.name))

    def __enter__(self):
        try:
            coordinator = job.start_shards(
                self.run, BIN / "server" / "agg_server", self.processes)
            self.addresses = job.metrics_addresses(self.run, self.processes)
            self.prometheus.watch(self.addresses)
            first = job.start_workers(
                self.run, BIN / "worker_client/examples/digits_worker",
                coordinator, self.processes)
            # Its lines are not wanted, and must not hold it up.
            self.drain = subprocess.Popen(
                ["cat"], stdin=first.stdout, stdout=subprocess.DEVNULL)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for _, process in self.processes.running:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        self.processes.stop()
        if hasattr(self, "drain"):
            self.drain.wait()
        self.folder.cleanup()

    def process(self, name):
        return dict(self.processes.running)[name]


class MonitoringTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        reason = monitoring.missing()
        if reason:
            raise unittest.SkipTest(reason)
        cls.config = tempfile.TemporaryDirectory(prefix="agg_monitoring_")
        cls.addClassCleanup(cls.config.cleanup)
        hasten(pathlib.Path(cls.config.name))
        cls.prometheus = monitoring.Monitoring(cls.config.name, port=0)
        cls.prometheus.__enter__()
        cls.addClassCleanup(cls.prometheus.__exit__)

    def get(self, path, **parameters):
        url = f"{self.prometheus.url}/api/v1/{path}?" + urllib.parse.urlencode(
            parameters)
        with urllib.request.urlopen(url, timeout=30) as reply:
            return json.load(reply)["data"]

    def series(self, expr):
        """[(labels, value)]"""
        result = self.get("query", query=expr)["result"]
        return [(s["metric"], float(s["value"][1])) for s in result]

    def query(self, expr):
        """[(labels, value)], without those that are NaN."""
        return [s for s in self.series(expr) if not math.isnan(s[1])]

    def value(self, expr):
        samples = self.query(expr)
        return samples[0][1] if samples else math.nan

    def rounds(self, training):
        return self.value("sum(aggserver_rounds_total"
                          f'{{job="{training.name}"}})')

    def firing(self, training, name):
        """The alert's annotations by its labels, if it fires."""
        alerts = [a for a in self.get("alerts")["alerts"]
                  if a["labels"]["alertname"] == name
                  and a["labels"].get("job") == training.name
                  and a["state"] == "firing"]
        return [(a["labels"], a["annotations"]) for a in alerts]

    def expect(self, training, name, **labels):
        """Waits for the alert, and for ALERTS, which dashboards show."""
        def look():
            return [text for given, text in self.firing(training, name)
                    if labels.items() <= given.items()]
        annotations = eventually(f"{name} {labels}", look)[0]
        for text in annotations.values():
            self.assertNotRegex(text, "<no value>|<error|{{")
        self.assertIn(training.name, annotations["summary"])
        eventually(f"ALERTS {name}", lambda: self.query(
            f'ALERTS{{job="{training.name}",alertstate="firing",'
            f'alertname="{name}"}}'))

    def quiet(self, training, *names):
        eventually(f"none of {names}", lambda: not any(
            self.firing(training, name) for name in names))

    def test_the_links_that_are_announced_exist(self):
        out = io.StringIO()
        self.prometheus.announce(out)
        urls = re.findall(r"http://[^\s)]+", out.getvalue())
        self.assertEqual(len(urls), 3, out.getvalue())
        for url in urls:
            with urllib.request.urlopen(url, timeout=30) as reply:
                self.assertEqual(reply.status, 200, url)

    def test_every_query_of_every_dashboard_returns_numbers(self):
        # As many as an outlier score needs.
        with Training(self.prometheus, seed=1, workers=8) as training:
            waiting = {}
            for file, dashboard in promql.dashboards().items():
                for panel in promql.panels(dashboard):
                    for target in panel["targets"]:
                        expr = promql.substituted(target["expr"],
                                                  training.name, "5s")
                        if promql.metrics_of(expr) <= OF_OTHER_JOBS:
                            continue
                        waiting[expr] = f"{file}, {panel['title']}: {expr}"
            self.assertGreater(len(waiting), 60)

            def look():
                training.processes.check()
                for expr in list(waiting):
                    look_at = (self.series if promql.metrics_of(expr)
                               <= NAN_WITHOUT_TLS else self.query)
                    if look_at(expr):
                        del waiting[expr]
                return not waiting
            try:
                eventually("all queries", look)
            except AssertionError:
                self.fail("no numbers for " + "\n".join(waiting.values()))
            self.variables_have_values(training)
            per_tensor = self.query(
                f'aggserver_orthogonality{{job="{training.name}",'
                'tensor=~".+"}')
            self.assertEqual({s["tensor"] for s, _ in per_tensor},
                             set(job.TENSORS))
            self.quiet(training, "AggShardDown", "AggShardMissing",
                       "AggJobLost", "AggNonFiniteGradients",
                       "AggRecovering", "AggNotReplicated",
                       "AggCheckpointFailed", "AggCheckpointOld")
            self.metrics_are_clean(training)

    def variables_have_values(self, training):
        for dashboard in promql.dashboards().values():
            for variable in dashboard["templating"]["list"]:
                match = re.fullmatch(r"label_values\((.*), (\w+)\)",
                                     variable.get("definition", ""))
                # There are no namespaces here: Grafana offers an empty one.
                if variable["type"] == "datasource" or (
                        variable["name"] == "namespace"):
                    continue
                series = match[1].replace("$job", training.name).replace(
                    "$namespace", "")
                values = self.get(f"label/{match[2]}/values",
                                  **{"match[]": series})
                self.assertTrue(values, variable["name"])

    def metrics_are_clean(self, training):
        for address in training.addresses:
            with urllib.request.urlopen(f"http://{address}/metrics") as reply:
                self.assertTrue(reply.headers["Content-Type"].startswith(
                    "text/plain"), reply.headers["Content-Type"])
                text = reply.read()
            lint = subprocess.run(["promtool", "check", "metrics"],
                                  input=text, capture_output=True, check=False)
            self.assertEqual((lint.returncode, lint.stdout, lint.stderr),
                             (0, b"", b""))

    def test_a_stalled_worker_is_named_and_forgiven(self):
        with Training(self.prometheus, seed=2) as training:
            eventually("rounds", lambda: self.rounds(training) > 10)
            training.process("worker_2").send_signal(signal.SIGSTOP)
            self.expect(training, "AggWorkerStalled", worker="2")
            self.expect(training, "AggRoundStalled")
            # Long enough to outweigh all rounds so far.
            of_job = f'{{job="{training.name}"}}'
            before = self.value(f"aggserver_round_seconds_sum{of_job}")
            eventually("a long wait", lambda: self.value(
                f"aggserver_longest_wait_seconds{of_job}") > 2 * before)
            stalled = self.rounds(training)
            training.process("worker_2").send_signal(signal.SIGCONT)
            # It is late in one round only, so the alert soon ends again.
            eventually("AggStraggler", lambda: self.query(
                'max_over_time(ALERTS{alertname="AggStraggler",worker="2",'
                f'alertstate="firing",job="{training.name}"}}[5m])'))
            eventually("more rounds",
                       lambda: self.rounds(training) > stalled + 10)
            self.quiet(training, "AggWorkerStalled", "AggRoundStalled")

    def test_gradients_that_are_not_finite(self):
        # Diverges within a round or two. The default would end the job after a
        # hundred skipped rounds, which take less time than a scrape.
        def endless(*args):
            return text(*args) + "max_skipped_rounds: 0\n"

        text = job.config_text
        with mock.patch.object(job, "config_text", endless), Training(
                self.prometheus, seed=3, learning_rate=1e30) as training:
            self.expect(training, "AggNonFiniteGradients")
            self.expect(training, "AggRoundsSkipped")

    def test_a_dead_shard_is_named(self):
        with Training(self.prometheus, seed=4) as training:
            eventually("rounds", lambda: self.rounds(training) > 10)
            eventually("shard 1", lambda: self.query(
                f'aggserver_build_info{{job="{training.name}",shard="1"}}'))
            self.assertFalse(self.firing(training, "AggShardDown"))
            training.process("shard_1").kill()
            self.expect(training, "AggShardDown", shard="1")
            self.expect(training, "AggShardMissing")
            self.expect(training, "AggJobLost")


if __name__ == "__main__":
    unittest.main()
