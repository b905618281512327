"""A job of the drill (drill.py): agg_servers, workers that can be told to be
wrong, and what a Prometheus has to know to scrape it."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request

from deploy import quickstart_chaos as chaos
from deploy import quickstart_job as job

WAIT = 120  # seconds; what takes as long has failed
PERIOD = 0.3  # seconds between a worker's rounds: the processors are shared
# What Prometheus gives the targets, as on Kubernetes.
NAMESPACE = "drill"
WORKER = pathlib.Path(__file__).with_name("drill_worker.py")
PACKAGE = job.ROOT / "worker_client" / "python"
# A limit of file sizes is to meet what a scene is about, and not the log.
_LOG_BY_PIPE = ["bash", "-c", 'exec "$@" 2> >(exec cat >&2)', "bash"]


class DrillError(Exception):
    """Something is not as the scene says."""


def eventually(what, look, seconds=WAIT):
    """The first true value that look() returns. Raises DrillError."""
    deadline = time.monotonic() + seconds
    while True:
        value = look()
        if value:
            return value
        if time.monotonic() > deadline:
            raise DrillError(f"not within {seconds} s: {what}")
        time.sleep(0.1)


def replace_text(path, text):
    """At once: who reads the file never sees half of it."""
    temporary = path.with_name("." + path.name)
    temporary.write_text(text)
    os.replace(temporary, path)


class Job:
    """The processes of one scene, and their folder.

    `config`: more of the configuration, where {folder} is the folder. `own`: of
    one shard's, by its ordinal. `server`: the words before the command of a
    shard, by its ordinal. `environment`: of the workers. `piped_log`: what
    limits a shard's files leaves its log alone.
    """

    def __init__(self, name, bin_folder, folder, *, shards=2, workers=2,
                 config="", own=lambda ordinal: "",
                 server=lambda ordinal: (), environment=None,
                 piped_log=False, period=PERIOD):
        self.name = name
        self.bin = pathlib.Path(bin_folder).resolve()
        self.folder = pathlib.Path(folder)
        (self.folder / "checkpoints").mkdir()
        self.config, self.own, self.server = config, own, server
        self.log = _LOG_BY_PIPE if piped_log else []
        self.environment = dict(environment or {})
        self.num_workers, self.period = workers, period
        self.processes = job.Processes(self.folder)
        ports = chaos.free_ports(2 * shards)
        self.ports, self.metrics_ports = ports[:shards], ports[shards:]
        # By which workers and shards know the shards.
        self.known_ports = list(self.ports)
        self.absent = set()  # shards that are not to be started yet
        self.shards = None
        self.workers = {}
        self._lives = 0

    @property
    def coordinator(self):
        return f"127.0.0.1:{self.known_ports[0]}"

    def write_config(self):
        """What shards that start from now on read."""
        lines = [f'job: "{self.name}"']
        lines += [f'shards: "127.0.0.1:{port}"' for port in self.known_ports]
        lines += [f"workers: {self.num_workers}", "compute_threads: 1",
                  self.config]
        if "combination" not in self.config:
            lines.append('combination { rule: "mean" }')
        if "learning_rate" not in self.config:
            lines.append("learning_rate { rate: 0.01 }")
        text = "\n".join(lines).replace("{folder}", str(self.folder)) + "\n"
        for ordinal in range(len(self.ports)):
            (self.folder / f"job_{ordinal}.textproto").write_text(
                text + self.own(ordinal).replace("{folder}", str(self.folder)))

    def start_shards(self):
        self.write_config()
        self.shards = chaos.Shards(self.processes, self._command,
                                   len(self.ports))

    def _command(self, ordinal):
        if ordinal in self.absent:
            return ["sleep", "infinity"]
        return [*self.log, *self.server(ordinal),
                self.bin / "server" / "agg_server",
                f"--config={self.folder / f'job_{ordinal}.textproto'}",
                f"--shard={ordinal}", f"--port={self.ports[ordinal]}",
                f"--metrics_port={self.metrics_ports[ordinal]}"]

    def everybody(self):
        return list(range(len(self.ports)))

    def kill_shards(self, ordinals=None):
        self.shards.kill(self.everybody() if ordinals is None else ordinals)

    def restart_shards(self, ordinals=None):
        for ordinal in self.everybody() if ordinals is None else ordinals:
            self.shards.start(ordinal)

    def stop_shards(self):
        """SIGTERM to all of them, as a person ends a job; waits."""
        for shard in self.shards.running:
            shard.terminate()
        for shard in self.shards.running:
            shard.wait(WAIT)
        self.processes.running = [
            item for item in self.processes.running
            if item[1] not in self.shards.running]

    def tell(self, rank, **mood):
        """What the worker is like from its next round on (drill_worker.py)."""
        replace_text(self.folder / f"mood_{rank}.json", json.dumps(mood))

    def tell_all(self, **mood):
        for rank in range(self.num_workers):
            self.tell(rank, **mood)

    def start_worker(self, rank):
        if not (self.folder / f"mood_{rank}.json").exists():
            self.tell(rank)
        self._lives += 1
        self.workers[rank] = self.processes.start(
            f"worker_{rank}_life_{self._lives}",
            [sys.executable, WORKER, f"--coordinator={self.coordinator}",
             f"--rank={rank}", f"--period={self.period}",
             f"--mood={self.folder / f'mood_{rank}.json'}"],
            more={"AGG_LIBRARY": str(self.bin / "worker_client/c/libagg.so"),
                  "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1",
                  "OPENBLAS_NUM_THREADS": "1", **self.environment})

    def start_workers(self):
        for rank in range(self.num_workers):
            self.start_worker(rank)

    def kill_worker(self, rank):
        ended = self.workers.pop(rank)
        ended.kill()
        ended.wait()
        self.processes.running = [item for item in self.processes.running
                                  if item[1] != ended]

    def kill_workers(self):
        for rank in list(self.workers):
            self.kill_worker(rank)

    def aggctl(self, *words):
        """(exit code, what it prints)"""
        result = subprocess.run(
            [self.bin / "worker_client" / "tools" / "aggctl", *words,
             f"--coordinator={self.coordinator}"],
            capture_output=True, text=True, timeout=WAIT, check=False,
            env=job.environment())
        return result.returncode, result.stdout + result.stderr

    def metric(self, name, ordinal=0):
        """The sum of the series `name` of a shard now; None: it does not
        answer, or has none."""
        try:
            with urllib.request.build_opener(
                    urllib.request.ProxyHandler({})).open(
                        f"http://127.0.0.1:{self.metrics_ports[ordinal]}"
                        "/metrics", timeout=WAIT) as reply:
                text = reply.read().decode()
        except OSError:
            return None
        values = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                  if line.startswith((name + "{", name + " "))]
        return sum(values) if values else None

    def targets(self, scheme="http"):
        """As Prometheus reads them from a file."""
        return [{"targets": [f"127.0.0.1:{port}"],
                 "labels": {"namespace": NAMESPACE, "__scheme__": scheme,
                            "pod": f"{self.name}-{ordinal}"}}
                for ordinal, port in enumerate(self.metrics_ports)]

    def check(self):
        """Raises job.RunError if a process has failed by itself."""
        self.processes.check()

    def stop(self):
        for _, process in self.processes.running:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        self.processes.stop()
