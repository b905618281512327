"""Prometheus beside the quickstart's training."""

import json
import os
import pathlib
import shutil
import signal
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from deploy import quickstart_job as job

# What is asked for is on this host: never through a proxy of the environment.
_LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))

CONFIG = job.ROOT / "deploy" / "prometheus"
PORT = 9090
START_SECONDS = 60


def missing():
    """Why there can be no monitoring here; "" if there can."""
    if shutil.which("prometheus"):
        return ""
    return "prometheus is not installed; deploy/setup.sh --monitoring does it"


def usable_port(preferred):
    """The preferred port of loopback if it is free, else one that is."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            # As Prometheus does: a port is free although old connections to
            # it are still being forgotten.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return probe.getsockname()[1]
            except OSError:
                continue
    raise job.RunError("no port of 127.0.0.1 is free")


class Monitoring:
    """A Prometheus on loopback whose data lives as long as it does.

    A context manager. `config` holds prometheus.yml and rules.yml.
    """

    def __init__(self, config=CONFIG, port=PORT):
        self.config = pathlib.Path(config)
        self.port = port
        self.folder = None
        self.processes = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        self.folder = pathlib.Path(
            tempfile.mkdtemp(prefix="agg_quickstart_prometheus_"))
        self.processes = job.Processes(self.folder)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.processes.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self):
        for name in ("prometheus.yml", "rules.yml"):
            shutil.copy(self.config / name, self.folder / name)
        self.watch([])
        self.port = usable_port(self.port)
        self.processes.start("prometheus", [
            "prometheus", f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}"])
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            self.processes.check()
            if time.monotonic() > deadline:
                raise job.RunError(
                    f"prometheus is not ready after {START_SECONDS} s")
            time.sleep(0.05)

    def _is_ready(self):
        try:
            with _LOCAL.open(self.url + "/-/ready", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def watch(self, addresses):
        """Scrapes the addresses ("host:port") from now on, and no others."""
        temporary = self.folder / "new.json"
        temporary.write_text(json.dumps([{"targets": list(addresses)}]))
        # Prometheus watches the folder; it must not see half of a file.
        os.replace(temporary, self.folder / "targets.json")

    def page_url(self, name):
        """The address of a page ("alerts"), or "" where there is none.

        Debian builds Prometheus without its newer pages, whose addresses then
        answer 404; the older ones are under /classic. Others have the newer
        ones alone. So the running Prometheus is asked.
        """
        for folder in ("", "/classic"):
            url = f"{self.url}{folder}/{name}"
            try:
                with _LOCAL.open(url, timeout=5):
                    return url
            except (urllib.error.URLError, OSError):
                continue
        return ""

    def announce(self, stream=sys.stderr):
        alerts, graph = self.page_url("alerts"), self.page_url("graph")
        shown = f"  (alerts: {alerts})" if alerts else ""
        stream.write(f"Prometheus:  {self.url}{shown}\n")
        if graph:
            query = urllib.parse.urlencode(
                {"g0.expr": "aggserver_orthogonality", "g0.tab": "0",
                 "g0.range_input": "15m"})
            stream.write(f"             for example {graph}?{query}\n")
        stream.write("Grafana:     deploy/grafana/README.md\n")
        stream.flush()


def announce_shards(addresses, stream=sys.stderr):
    stream.write(f"Status page: http://{addresses[0]}/\n")
    for ordinal, address in enumerate(addresses):
        stream.write(f"Metrics:     http://{address}/metrics"
                     f"  (shard {ordinal})\n")
    stream.flush()


def stay(what, stream=sys.stderr):
    """Returns at Ctrl-C."""
    stream.write(f"\n{what} until Ctrl-C.\n")
    stream.flush()
    try:
        while True:
            signal.pause()
    except KeyboardInterrupt:
        stream.write("\n")
