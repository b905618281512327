"""deploy/prometheus/alertmanager.yml, by a real Alertmanager: who is woken by
what, and that one cause is one page."""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

FOLDER = pathlib.Path("deploy/prometheus")
CONFIG = FOLDER / "alertmanager.yml"
ALERTS = dict(re.findall(
    r"- alert: (\w+)\n(?:.*\n)*?          severity: (\w+)\n",
    (FOLDER / "rules.yml").read_text(encoding="utf-8")))
PROGRAM = shutil.which("prometheus-alertmanager") or shutil.which(
    "alertmanager")
SECONDS = 60  # for anything to happen
# What is on this host needs no proxy of the environment.
_LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def inhibitions():
    """[(names that inhibit, names that are inhibited)]."""
    text = CONFIG.read_text(encoding="utf-8")
    rules = text[:text.index("receivers:\n")].split("  - source_matchers:")[1:]
    return [tuple(set("|".join(re.findall(r'alertname =~? "([\w|]+)"',
                                          part)).split("|"))
                  for part in rule.split("target_matchers:"))
            for rule in rules]


class ConfigTest(unittest.TestCase):

    def test_it_names_alerts_that_exist(self):
        named = {name for rule in inhibitions() for names in rule
                 for name in names}
        self.assertGreater(len(named), 10)
        self.assertLessEqual(named, set(ALERTS))

    def test_no_alert_inhibits_itself_in_any_number_of_steps(self):
        after = {}
        for sources, targets in inhibitions():
            for source in sources:
                after.setdefault(source, set()).update(targets)

        def reach(name, seen):
            for target in after.get(name, ()):
                if target not in seen:
                    seen.add(target)
                    reach(target, seen)
            return seen
        for name in after:
            self.assertNotIn(name, reach(name, set()))

    def test_what_inhibits_wakes_somebody(self):
        """A page is silenced by another page alone."""
        for sources, targets in inhibitions():
            critical = {n for n in targets if ALERTS[n] == "critical"}
            if critical:
                self.assertEqual({ALERTS[n] for n in sources}, {"critical"},
                                 (sources, critical))


@unittest.skipUnless(PROGRAM and shutil.which("amtool"),
                     "no Alertmanager: deploy/setup.sh --monitoring")
class AlertmanagerTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="agg_alertmanager_")
        cls.addClassCleanup(folder.cleanup)
        # Nobody is to be told.
        config = pathlib.Path(folder.name) / "alertmanager.yml"
        config.write_text(re.sub(r"https://\S+", "http://127.0.0.1:9/",
                                 CONFIG.read_text(encoding="utf-8")))
        cls.process = subprocess.Popen(
            [PROGRAM, f"--config.file={config}", "--cluster.listen-address=",
             f"--storage.path={folder.name}/data",
             "--web.listen-address=127.0.0.1:0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.process.communicate)
        cls.addClassCleanup(cls.process.kill)
        lines = []
        for line in cls.process.stderr:
            lines.append(line)
            found = re.search(r"(?:address|Listening on.*)=\"?"
                              r"(127\.0\.0\.1:[1-9]\d*)", line)
            if found:
                cls.url = f"http://{found[1]}"
                return
        raise AssertionError("".join(lines))

    def ask(self, path, body=None):
        request = urllib.request.Request(
            f"{self.url}/api/v2/{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"})
        with _LOCAL.open(request, timeout=30) as reply:
            return json.loads(reply.read() or "null")

    def expect(self, job, expected, *alerts):
        """Of these alerts of the job {(receiver, alert)} are told.

        What is inhibited is so a moment after it has come, or after its source.
        """
        labels = [{"alertname": name, "severity": ALERTS[name],
                   "namespace": "a", "job": job, **more}
                  for name, more in alerts]
        self.ask("alerts", [{"labels": one} for one in labels])
        deadline = time.monotonic() + SECONDS
        while True:
            found = self.ask(f"alerts?filter=job%3D%22{job}%22")
            told = {(receiver["name"], one["labels"]["alertname"])
                    for one in found if one["status"]["state"] == "active"
                    for receiver in one["receivers"]}
            # An alert is unprocessed until Alertmanager has dispatched it.
            if len(found) == len(labels) and told == expected and all(
                    one["status"]["state"] != "unprocessed" for one in found):
                return
            self.assertLess(time.monotonic(), deadline,
                            f"{told}, not {expected}: {found}")
            time.sleep(0.05)

    def test_it_is_valid(self):
        check = subprocess.run(["amtool", "check-config", str(CONFIG)],
                               capture_output=True, text=True, check=False)
        self.assertEqual(check.returncode, 0, check.stdout + check.stderr)

    def test_each_severity_has_its_receiver(self):
        expected = {"critical": "pager", "warning": "chat", "info": "chat",
                    "none": "dead-man"}
        for name, severity in ALERTS.items():
            self.expect("of_" + name, {(expected[severity], name)}, (name, {}))

    def test_one_dead_shard_is_one_page(self):
        self.expect(
            "shard", {("pager", "AggShardDown"),
                      ("chat", "AggCertificateExpires")},
            ("AggShardDown", {"shard": "1", "pod": "agg-1"}),
            ("AggShardMissing", {}), ("AggJobLost", {"pod": "agg-0"}),
            ("AggRecovering", {"pod": "agg-0"}),
            ("AggNotReplicated", {"pod": "agg-0"}),
            ("AggRoundStalled", {"pod": "agg-0"}),
            ("AggWorkerStalled", {"pod": "agg-0", "worker": "3"}),
            # Has nothing to do with it.
            ("AggCertificateExpires", {"pod": "agg-0", "shard": "0"}))

    def test_a_shard_that_never_came_is_one_page(self):
        # The first one fires three minutes before the second.
        self.expect("never", {("pager", "AggRecovering")},
                    ("AggRecovering", {"pod": "agg-0"}),
                    ("AggShardMissing", {}))

    def test_a_job_that_is_gone_is_one_page(self):
        self.expect("gone", {("pager", "AggJobDown")}, ("AggJobDown", {}),
                    ("AggJobAbsent", {}), ("AggShardFlapping", {"shard": "0"}))

    def test_a_shard_that_comes_and_goes_is_one_page(self):
        self.expect(
            "flaps", {("pager", "AggShardFlapping")},
            ("AggShardFlapping", {"shard": "1"}),
            ("AggShardDown", {"shard": "1"}), ("AggRecoversOften", {}),
            ("AggJobLost", {}), ("AggNotReplicated", {}))

    def test_another_shard_of_it_and_another_job_are_other_pages(self):
        self.expect("one", {("pager", "AggShardFlapping")},
                    ("AggShardFlapping", {"shard": "1"}),
                    ("AggShardDown", {"shard": "1"}))
        self.expect("two", {("pager", "AggShardFlapping"),
                            ("pager", "AggShardDown")},
                    ("AggShardFlapping", {"shard": "1"}),
                    ("AggShardDown", {"shard": "2"}))
        self.expect("three", {("pager", "AggShardMissing")},
                    ("AggShardMissing", {}))


if __name__ == "__main__":
    unittest.main()
