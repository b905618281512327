"""The processes of one system of the benchmark: started, asked, ended."""

import json
import os
import pathlib
import re
import selectors
import subprocess
import tempfile
import time
import urllib.request

from deploy import bench_systems as systems
from deploy import quickstart_chaos as chaos
from deploy import quickstart_job as job

# What is asked for is on this host: never through a proxy of the environment.
_LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))

ANSWER_SECONDS = 300
METRICS_SECONDS = 10
TENSORS = 8
GLOO_WORKER = pathlib.Path(__file__).resolve().parent / "bench_gloo.py"
_PHASE = re.compile(
    r'^aggserver_round_duration_seconds_(sum|count)\{.*phase="(\w+)".*\} (\S+)',
    re.MULTILINE)
_PLANNED = re.compile(
    r"^aggserver_memory_planned_bytes(?:\{.*\})? (\S+)", re.MULTILINE)


def cpu_seconds(pid):
    """Used by the process so far, in user and kernel mode."""
    text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    fields = text.rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_bytes(pid):
    """The most physical memory that the process had."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"^VmHWM:\s+(\d+) kB", text, re.M).group(1))


class Team:
    """The processes of one system; the workers do rounds when they are asked.

    A context manager: ends them.
    """

    def __init__(self, system):
        self.system = system
        self._folder = tempfile.TemporaryDirectory(prefix="agg_bench_")
        self.folder = pathlib.Path(self._folder.name)
        self.processes = job.Processes(self.folder)
        self.workers = []
        self.servers = []
        self.metrics = []  # addresses, by shard
        self._rest = {}    # by worker: what was read behind the last line

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for worker in self.workers:
            worker.stdin.close()
        self.processes.stop()
        self._folder.cleanup()

    def start_worker(self, command):
        worker = self.processes.start(
            f"worker_{len(self.workers)}", command, stdout=subprocess.PIPE,
            stdin=subprocess.PIPE)
        self.workers.append(worker)
        self._rest[worker] = b""

    def start_servers(self, bin_folder):
        """Starts all shards; returns the coordinator's address."""
        addresses = [f"127.0.0.1:{port}"
                     for port in chaos.free_ports(self.system.shards)]
        config = self.folder / "job.textproto"
        config.write_text(systems.config_text(self.system, addresses))
        for ordinal in range(self.system.shards):
            self.servers.append(self.processes.start(f"shard_{ordinal}", [
                bin_folder / "server" / "agg_server", f"--config={config}",
                f"--shard={ordinal}", "--metrics_port=0", "--metrics_port_file="
                f"{self.folder / f'metrics_port_{ordinal}'}"]))
        self.metrics = [
            job.read_address(self.processes, ordinal, "metrics_port")
            for ordinal in range(self.system.shards)]
        return addresses[0]

    def wait_until_ready(self):
        for worker in self.workers:
            self._read(worker, 1)

    def ask(self, rounds, num_lines=None):
        """Lets the workers do so many rounds.

        Returns what they print: per worker a list of `num_lines` (default: a
        line for each round) dictionaries.
        """
        try:
            for worker in self.workers:
                # Unbuffered: what a dead worker does not take is gone.
                os.write(worker.stdin.fileno(), b"%d\n" % rounds)
        except BrokenPipeError:
            self._ended(worker)
        return [self._read(worker, num_lines or rounds)
                for worker in self.workers]

    def _read(self, worker, num_lines):
        """Of one worker. Raises RunError for any process that has failed."""
        deadline = time.monotonic() + ANSWER_SECONDS
        lines = []
        with selectors.DefaultSelector() as selector:
            selector.register(worker.stdout, selectors.EVENT_READ)
            while len(lines) < num_lines:
                if not selector.select(timeout=0.5):
                    self.processes.check()
                    if time.monotonic() > deadline:
                        raise job.RunError(
                            f"{self.system.name}: no answer of a worker "
                            f"within {ANSWER_SECONDS} s")
                    continue
                piece = os.read(worker.stdout.fileno(), 1 << 16)
                if not piece:
                    self._ended(worker)
                *new, self._rest[worker] = (
                    self._rest[worker] + piece).split(b"\n")
                lines += map(json.loads, new)
        return lines

    def _ended(self, worker):
        """Raises RunError with the reason."""
        worker.wait()
        self.processes.check()
        raise job.RunError(f"{self.system.name}: a worker ended")

    def cpu_seconds(self):
        """(servers', workers')."""
        return tuple(sum(cpu_seconds(process.pid) for process in group)
                     for group in (self.servers, self.workers))

    def peak_bytes(self):
        """Of all servers together; so is planned_bytes()."""
        return sum(peak_bytes(server.pid) for server in self.servers)

    def _metrics_text(self, address):
        with _LOCAL.open(f"http://{address}/metrics",
                         timeout=METRICS_SECONDS) as reply:
            return reply.read().decode()

    def planned_bytes(self):
        return sum(float(_PLANNED.search(self._metrics_text(address)).group(1))
                   for address in self.metrics)

    def phase_seconds(self, num_rounds):
        """By phase, of all rounds so far.

        Waits until the coordinator has counted num_rounds of them, which it
        does behind their end.
        """
        deadline = time.monotonic() + METRICS_SECONDS
        while True:
            found = {(phase, what): float(value) for what, phase, value in
                     _PHASE.findall(self._metrics_text(self.metrics[0]))}
            if found.get(("update", "count"), 0) >= num_rounds:
                return {phase: value for (phase, what), value in found.items()
                        if what == "sum"}
            if time.monotonic() > deadline:
                raise job.RunError(f"{self.system.name}: the coordinator does "
                                   f"not count {num_rounds} rounds")
            time.sleep(0.005)


def start(system, bin_folder, torch_python):
    """The system's team, ready for its first round. Raises RunError."""
    team = Team(system)
    try:
        if system.kind == "raw":
            team.start_worker([
                bin_folder / "tests/bench/raw_limits",
                f"--workers={system.workers}", f"--bytes={system.num_bytes}"])
        elif system.kind == "gloo":
            for rank in range(system.workers):
                team.start_worker([
                    torch_python, GLOO_WORKER, f"--rank={rank}",
                    f"--workers={system.workers}",
                    f"--elements={system.elements}",
                    f"--store={team.folder / 'store'}"])
        elif system.kind == "echo":
            _start_echo(team, bin_folder)
        else:
            _start_job(team, bin_folder)
        team.wait_until_ready()
    except BaseException:
        team.__exit__()
        raise
    return team


def make_barrier(team):
    """The file that the team's workers meet at."""
    path = team.folder / "barrier"
    path.write_bytes(bytes(64))  # BarrierState of process_barrier.h, and more
    return path


def _start_echo(team, bin_folder):
    program = bin_folder / "tests/bench/grpc_echo"
    team.processes.start("server", [
        program, "--serve", f"--port_file={team.folder / 'port_0'}"])
    server = job.read_address(team.processes, 0, "port")
    barrier = make_barrier(team)
    for _ in range(team.system.workers):
        team.start_worker([
            program, f"--server={server}", f"--bytes={team.system.num_bytes}",
            f"--workers={team.system.workers}", f"--barrier={barrier}"])


def _start_job(team, bin_folder):
    system = team.system
    coordinator = team.start_servers(bin_folder)
    barrier = make_barrier(team)
    for rank in range(system.workers):
        team.start_worker([
            bin_folder / "tests/bench/transport_worker",
            f"--coordinator={coordinator}", f"--rank={rank}",
            f"--workers={system.workers}", f"--barrier={barrier}",
            f"--elements={system.elements}", f"--tensors={TENSORS}",
            f"--transport={system.transport}",
            *systems.TRANSPORTS[system.transport].flags])
