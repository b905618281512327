"""The Prometheus, the Alertmanager and the pager of the drill (drill.py)."""

import collections
import http.server
import json
import pathlib
import re
import shutil
import threading
import time
import urllib.parse
import urllib.request

from deploy import quickstart_chaos as chaos
from deploy import quickstart_job as job
from deploy import quickstart_monitoring as monitoring
from tests.e2e import drill_rules
from tests.e2e.drill_job import NAMESPACE, replace_text

# A scrape may take as long as the time to the next one, on a busy machine.
SCRAPE_INTERVAL, RULE_INTERVAL = "1s", "500ms"
ALERTMANAGER = "prometheus-alertmanager"
_LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Pager(http.server.ThreadingHTTPServer):
    """Takes what Alertmanager sends to its receivers, all of them."""

    daemon_threads = True

    def __init__(self):
        self.lock = threading.Lock()
        self.calls = []  # (receiver, status, labels) in the order they came
        super().__init__(("127.0.0.1", 0), _PagerHandler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/"

    def told(self, selector):
        """The alerts with these labels that have got through, and to which
        receivers: {(receiver, name)}."""
        with self.lock:
            return {(receiver, labels["alertname"])
                    for receiver, status, labels in self.calls
                    if status == "firing"
                    and selector.items() <= labels.items()}


class _PagerHandler(http.server.BaseHTTPRequestHandler):

    def do_POST(self):  # pylint: disable=invalid-name
        size = int(self.headers["Content-Length"])
        message = json.loads(self.rfile.read(size))
        with self.server.lock:
            self.server.calls += [
                (message["receiver"], alert["status"], alert["labels"])
                for alert in message["alerts"]]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def expected_text(jobs):
    """As expected_jobs.yml: of the namespace of the drill."""
    rules = "".join(
        "      - record: aggserver:job_expected\n        expr: vector(1)\n"
        f"        labels:\n          job: {job}\n"
        f"          namespace: {NAMESPACE}\n" for job in jobs)
    return ("groups:\n  - name: agg_server_expected_jobs\n    rules:\n"
            + rules)


def prometheus_text(text, alertmanager_port, ca, expected):
    """prometheus.yml with short intervals, an Alertmanager, a CA for the
    targets whose label __scheme__ is https, and the file of expected jobs."""
    for name, interval in (("scrape", SCRAPE_INTERVAL),
                           ("evaluation", RULE_INTERVAL)):
        text, count = re.subn(rf"\b{name}_interval: \d+s",
                              f"{name}_interval: {interval}", text)
        if count != 1:
            raise ValueError(f"prometheus.yml has {count} of {name}_interval; "
                             "allowed: 1")
    text, count = re.subn(r"^( +)file_sd_configs:",
                          rf"\1tls_config:\n\1  ca_file: {ca}\n\g<0>", text,
                          flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"prometheus.yml has {count} file_sd_configs; "
                         "allowed: 1")
    text, count = re.subn(r"^( +- )expected_jobs\S*$", rf"\1{expected}", text,
                          flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"prometheus.yml has {count} files of expected jobs; "
                         "allowed: 1")
    return text + ("\nalerting:\n  alertmanagers:\n    - static_configs:\n"
                   f"        - targets: [\"127.0.0.1:{alertmanager_port}\"]\n")


def alertmanager_text(text, factor, url):
    """alertmanager.yml with short times, whose receivers all send to `url`."""
    text = drill_rules.scaled_times(text, factor)
    block = re.search(r"^receivers:\n((?: .*\n|-.*\n|#.*\n|\n)*)", text,
                      re.MULTILINE)
    if not block:
        raise ValueError("alertmanager.yml has no receivers; allowed: some")
    names = re.findall(r"^ *- name: *(\S+)$", block[1], re.MULTILINE)
    receivers = "".join(
        f"  - name: {name}\n    webhook_configs:\n      - url: {url}\n"
        "        send_resolved: true\n" for name in names)
    return (text[:block.start()] + "receivers:\n" + receivers +
            text[block.end():])


class Watch:
    """A Prometheus and an Alertmanager on loopback. A context manager."""

    def __init__(self, folder, factor, ca, expected):
        self.ca = ca
        self.folder = pathlib.Path(folder)
        self.factor = factor
        self.pager = Pager()
        self.processes = job.Processes(self.folder)
        self.rules = (monitoring.CONFIG / "rules.yml").read_text()
        self.severities = drill_rules.alerts(self.rules)
        port, = chaos.free_ports(1)
        config = self.folder / "config"
        config.mkdir()
        (config / "rules.yml").write_text(
            drill_rules.scaled_rules(self.rules, factor))
        (config / "prometheus.yml").write_text(prometheus_text(
            (monitoring.CONFIG / "prometheus.yml").read_text(), port,
            ca / "ca.pem", config / "expected_jobs.yml"))
        (config / "expected_jobs.yml").write_text(expected_text(expected))
        (config / "alertmanager.yml").write_text(alertmanager_text(
            (monitoring.CONFIG / "alertmanager.yml").read_text(), factor,
            self.pager.url))
        self.config, self.port = config, port
        self.prometheus = monitoring.Monitoring(config, port=0)

    def __enter__(self):
        try:
            self.processes.start("alertmanager", [
                ALERTMANAGER, f"--config.file={self.config}/alertmanager.yml",
                f"--storage.path={self.folder}/alertmanager",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--cluster.listen-address="])
            self.prometheus.__enter__()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.prometheus.processes:
            self.prometheus.__exit__()
        self.processes.stop()
        self.pager.shutdown()
        self.pager.server_close()

    def check(self):
        self.processes.check()
        self.prometheus.processes.check()

    def watch(self, name, targets):
        """Scrapes them from now on, besides those of other names."""
        path = self.prometheus.folder / f"targets_{name}.json"
        replace_text(path, json.dumps(targets))

    def _get(self, path, **parameters):
        url = (f"{self.prometheus.url}/api/v1/{path}?"
               + urllib.parse.urlencode(parameters))
        with _LOCAL.open(url, timeout=60) as reply:
            return json.load(reply)["data"]

    def query(self, expr):
        """[(labels, value)]"""
        return [(series["metric"], float(series["value"][1]))
                for series in self._get("query", query=expr)["result"]]

    def firing(self, selector):
        """The alerts with these labels that fire now: name -> [texts]."""
        found = collections.defaultdict(list)
        for alert in self._get("alerts")["alerts"]:
            labels = alert["labels"]
            if (alert["state"] == "firing"
                    and selector.items() <= labels.items()):
                found[labels["alertname"]].append(alert["annotations"])
        return dict(found)

    def ever_fired(self, selector, since):
        """Names of the alerts with these labels that have fired since
        time.time() `since`, each moment included."""
        window = max(1, int(time.time() - since) + 1)
        labels = "".join(f',{name}="{value}"'
                         for name, value in selector.items())
        return {labels["alertname"] for labels, _ in self.query(
            f'max_over_time(ALERTS{{alertstate="firing"{labels}}}'
            f"[{window}s])")}


def missing():
    """Why there can be no drill here; "" if there can."""
    if monitoring.missing():
        return monitoring.missing()
    if not shutil.which(ALERTMANAGER):
        return (f"{ALERTMANAGER} is not installed; deploy/setup.sh "
                "--monitoring does it")
    return ""
