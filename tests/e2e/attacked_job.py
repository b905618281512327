"""A job of four workers on a server that knows who calls, for attacks.py."""

import hashlib
import http.client
import pathlib
import re
import subprocess
import threading
import time

from deploy import quickstart_chaos as chaos
from deploy import quickstart_job as job

WORKERS = 4
WAIT = 120  # what takes as long has failed
HOST = "127.0.0.1"
GUEST = "guest-token-0123456789"
# What the guest may take, so that an attack meets its limits at once.
GUEST_LIMITS = ("max_streams: 64 max_bytes_in_flight: 67108864 "
                "joins_per_second: 20")
MAX_CONNECTIONS = 600

CONFIG = """job: "attacked"
shards: "{host}:{port}"
workers: {workers}
combination {{ rule: "mean" }}
learning_rate {{ rate: 0.01 }}
compute_threads: 1
unix_socket: "off"
shared_memory: "off"
security {{
  identities {{ name: "trainer" token_file: "{folder}/trainer" roles: "worker" }}
  identities {{ name: "guest" token_file: "{folder}/guest" roles: "worker"
               limits {{ {guest_limits} }} }}
  identities {{ name: "operator" token_file: "{folder}/operator" roles: "admin" }}
  shard_token_file: "{folder}/shard"
  limits {{ max_connections: {max_connections} }}
}}
"""


class Job:
    """A server with its identities; four honest workers once they start."""

    def __init__(self, bin_folder, folder, rounds, rows=0):
        self.bin = pathlib.Path(bin_folder).resolve()
        self.folder = pathlib.Path(folder)
        self.rounds = rounds
        self.rows = rows  # of the first tensor; 0: few
        for name in ("trainer", "operator", "shard"):
            self._write_token(name, f"{name}-token-0123456789")
        self._write_token("guest", GUEST)
        self.processes = job.Processes(self.folder)
        port, metrics = chaos.free_ports(2)
        self.address, self.metrics = (HOST, port), (HOST, metrics)
        config = self.folder / "job.textproto"
        config.write_text(CONFIG.format(
            host=HOST, port=port, workers=WORKERS, folder=self.folder,
            guest_limits=GUEST_LIMITS, max_connections=MAX_CONNECTIONS))
        self.server = self.processes.start("server", [
            self.bin / "server" / "agg_server", f"--config={config}",
            f"--port={port}", f"--metrics_port={metrics}"])
        self.workers = []
        # Until it listens.
        self.page()

    def start_workers(self):
        self.workers = [self._start_worker(rank) for rank in range(WORKERS)]

    def _write_token(self, name, token):
        path = self.folder / name
        path.write_text(token)
        path.chmod(0o600)

    def _start_worker(self, rank):
        return self.processes.start(
            f"worker_{rank}",
            [self.bin / "tests" / "e2e" / "chaos_worker",
             f"--coordinator={HOST}:{self.address[1]}", f"--rank={rank}",
             f"--rounds={self.rounds}", f"--rows={self.rows}",
             f"--save={self.folder / f'parameters_{rank}'}"],
            stdout=subprocess.PIPE if rank == 0 else None,
            more={"AGG_TOKEN_FILE": str(self.folder / "trainer")})

    def lines(self):
        """What rank 0 says of each round."""
        for line in self.workers[0].stdout:
            yield line.decode()
        self.workers[0].stdout.close()

    def digests(self):
        for worker in self.workers:
            worker.wait(WAIT)
        self.processes.check()
        return {hashlib.sha256(
            (self.folder / f"parameters_{rank}").read_bytes()).hexdigest()
            for rank in range(WORKERS)}

    def peak_bytes(self):
        """The server's largest resident memory."""
        text = pathlib.Path(f"/proc/{self.server.pid}/status").read_text()
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", text)[1])

    def page(self):
        """What the server says to Prometheus, as soon as it answers."""
        deadline = time.monotonic() + WAIT
        while True:
            connection = http.client.HTTPConnection(*self.metrics, timeout=WAIT)
            try:
                connection.request("GET", "/metrics", headers={
                    "Authorization": "Bearer operator-token-0123456789"})
                return connection.getresponse().read().decode()
            except (OSError, http.client.HTTPException):
                self.processes.check()
                if time.monotonic() > deadline:
                    raise
            finally:
                connection.close()

    def aggctl(self, *words):
        """As the operator; what it prints, as soon as it gets through."""
        deadline = time.monotonic() + WAIT
        while True:
            result = subprocess.run(
                [self.bin / "worker_client" / "tools" / "aggctl",
                 f"--coordinator={HOST}:{self.address[1]}",
                 f"--token-file={self.folder / 'operator'}", *words],
                capture_output=True, text=True, timeout=WAIT, check=False,
                env=job.environment())
            if result.returncode == 0:
                return result.stdout
            if time.monotonic() > deadline:
                raise job.RunError(f"aggctl {words}: {result.stderr}")

    def stop(self):
        self.processes.stop()


def watchdog(process, seconds):
    """Ends a job that hangs, so that what reads from it ends."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    return timer
