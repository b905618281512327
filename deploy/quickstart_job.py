"""One training run: shards and workers as processes on loopback."""

import hashlib
import json
import math
import os
import pathlib
import selectors
import subprocess
import tempfile
import time
import zipfile
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "deploy" / "data" / "digits.csv.gz"
TENSORS = ("hidden/weights", "hidden/bias", "output/weights", "output/bias")
START_SECONDS = 30
STOP_SECONDS = 10
TAIL_LINES = 15

# What a person's own job has in the environment (worker_client/client_types.h).
OWN_JOB = ("AGG_COORDINATOR", "AGG_TLS_CA", "AGG_TLS_CERTIFICATE",
           "AGG_TLS_KEY", "AGG_TLS_SERVER_NAME", "AGG_TOKEN_FILE")

# Rows alone can be int8.
PULL_DTYPES = {"int8": "bf16"}


class RunError(Exception):
    """A process failed: what, and the end of its log."""


@dataclass
class Run:
    """What is to be trained."""
    rule: str = "mean"
    scope: str = None
    step_scale: str = "none"
    optimizer: str = "sgd"
    shards: int = 2
    workers: int = 32
    batch: int = 2
    learning_rate: float = 0.05
    epochs: int = 2
    seed: int = 0
    wire_dtype: str = "f32"
    backend: str = "cpu"
    monitoring: bool = False  # metrics ports, shadow rules, a job name each
    replication: str = ""  # the configuration's default
    rule_options: str = ""  # more of `combination`, in text format
    more: str = ""  # more of the configuration
    # By rank: another program than the digits' worker, with flags of its own.
    programs: dict = field(default_factory=dict)

    def rounds(self):
        return self.epochs * (1440 // (self.workers * self.batch))


def environment(more=None):
    """Of a local job's processes: this one's, without what belongs to a job of
    the person's own, and with `more`."""
    kept = {name: value for name, value in os.environ.items()
            if name not in OWN_JOB}
    return {**kept, **(more or {})}


def job_name(run):
    """Monitored runs have names of their own to tell their series apart."""
    if not run.monitoring:
        return "quickstart"
    scale = "" if run.step_scale == "none" else f"-{run.step_scale}"
    single = "-single" if run.workers == 1 else ""
    return f"quickstart-{run.rule}{scale}{single}-seed{run.seed}"


def config_text(run, addresses):
    """The job's configuration (proto/config.proto) in protobuf text format."""
    lines = [f'job: "{job_name(run)}"']
    lines += [f'shards: "{address}"' for address in addresses]
    lines += [f"workers: {run.workers}", "combination {",
              f'  rule: "{run.rule}"']
    if run.scope:
        lines.append(f'  scope: "{run.scope}"')
    if run.rule == "adacons":
        # Updates of the mean's size, so that rules share a learning rate.
        lines.append('  adacons { rescale: "mean_norm" }')
    lines += [run.rule_options, "}", run.more]
    if run.monitoring:
        lines += [f'shadow_rules {{ rule: "{rule}" }}'
                  for rule in ("mean", "adasum", "adacons")]
    if run.replication:
        lines.append(f'replication: "{run.replication}"')
    lines += [f'step_scale {{ kind: "{run.step_scale}" }}',
              f'optimizer {{ kind: "{run.optimizer}" }}']
    if run.optimizer != "none":
        lines.append("learning_rate { rate: %.17g }" % run.learning_rate)
    lines += [f'push_dtype: "{run.wire_dtype}"',
              f'pull_dtype: "{PULL_DTYPES.get(run.wire_dtype, run.wire_dtype)}"',
              f'backend: "{run.backend}"',
              # The model is small; a thread per shard leaves CPUs to workers.
              "compute_threads: 1"]
    return "\n".join(filter(None, lines)) + "\n"


def parameters_sha256(path):
    """Of the float32 values in manifest order, little endian."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(path) as archive:
        for name in TENSORS:
            npy = archive.read(name + ".npy")
            if npy[:8] != b"\x93NUMPY\x01\x00" or b"'<f4'" not in npy[:128]:
                raise RunError(f"{path}: {name} is not a float32 array")
            header_bytes = int.from_bytes(npy[8:10], "little")
            digest.update(npy[10 + header_bytes:])
    return digest.hexdigest()


def first_last_mean(values):
    """Of the values that are defined (not None)."""
    defined = [v for v in values if v is not None]
    if not defined:
        return {"first": None, "last": None, "mean": None}
    return {"first": defined[0], "last": defined[-1],
            "mean": math.fsum(defined) / len(defined)}


def summarize(run, rounds, final, sha256, seconds):
    """The JSON entry of a run from the lines that rank 0 printed."""
    return {
        "rule": final["rule"],
        "scope": final["scope"],
        "step_scale": run.step_scale,
        "optimizer": run.optimizer,
        "shards": run.shards,
        "workers": run.workers,
        "batch_per_worker": run.batch,
        "learning_rate": run.learning_rate,
        "epochs": run.epochs,
        "seed": run.seed,
        "rounds": final["rounds"],
        "train_loss": final["train_loss"],
        "test_accuracy": final["test_accuracy"],
        "orthogonality": first_last_mean(
            [line["orthogonality"] for line in rounds]),
        "gain": first_last_mean([line["gain"] for line in rounds]),
        "tau": rounds[-1]["tau"] if rounds else None,
        "parameters_sha256": sha256,
        "seconds": round(seconds, 3),
    }


class Processes:
    """The processes of one run, with their logs in one folder."""

    def __init__(self, folder):
        self.folder = folder
        self.running = []  # (name, Popen)

    def start(self, name, command, stdout=None, stdin=subprocess.DEVNULL,
              more=None):
        """more: of its environment, beside what environment() leaves."""
        log = open(self.folder / f"{name}.log", "wb")
        try:
            process = subprocess.Popen(
                [str(word) for word in command], stdin=stdin,
                stdout=stdout or log, stderr=log, cwd=self.folder,
                env=environment(more))
        finally:
            log.close()
        self.running.append((name, process))
        return process

    def check(self):
        """Raises RunError with the log of a process that has failed."""
        failed = [(name, process) for name, process in self.running
                  if process.poll() not in (None, 0)]
        if not failed:
            return
        # A shard's failure makes workers fail, too: the cause comes first.
        failed.sort(key=lambda item: item[0].startswith("worker"))
        name, process = failed[0]
        log = (self.folder / f"{name}.log").read_text(errors="replace")
        tail = "\n  ".join(log.splitlines()[-TAIL_LINES:])
        raise RunError(f"{name} (process {process.pid}) ended with "
                       f"{process.returncode}; the end of its log:\n  {tail}")

    def stop(self):
        """Ends what is left: asks first, then insists."""
        for _, process in self.running:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for _, process in self.running:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()


def read_address(processes, ordinal, port_name):
    """Waits for the shard to write the file of this port."""
    path = processes.folder / f"{port_name}_{ordinal}"
    deadline = time.monotonic() + START_SECONDS
    while not (path.exists() and path.read_text().strip()):
        processes.check()
        if time.monotonic() > deadline:
            raise RunError(f"shard_{ordinal} does not listen after "
                           f"{START_SECONDS} s")
        time.sleep(0.005)
    return "127.0.0.1:" + path.read_text().strip()


def metrics_addresses(run, processes):
    """Of the shards of a monitored run, by ordinal."""
    return [read_address(processes, ordinal, "metrics_port")
            for ordinal in range(run.shards)]


def start_shards(run, server, processes):
    """Starts all shards, shard 0 last; returns its address.

    Monitored shards write their metrics ports beside: metrics_addresses().
    """
    folder = processes.folder
    # A port is known once its shard listens; until then any text will do,
    # since the addresses are only shard 0's to use.
    addresses = [f"127.0.0.1:{1 + i}" for i in range(run.shards)]
    (folder / "shard.textproto").write_text(config_text(run, addresses))

    def start(ordinal, config):
        processes.start(f"shard_{ordinal}", [
            server, f"--config={folder / config}", f"--shard={ordinal}",
            "--port=0", f"--port_file={folder / f'port_{ordinal}'}"] + ([
                "--metrics_port=0",
                f"--metrics_port_file={folder / f'metrics_port_{ordinal}'}"]
                if run.monitoring else []))

    def address(ordinal):
        return read_address(processes, ordinal, "port")

    for ordinal in range(1, run.shards):
        start(ordinal, "shard.textproto")
    for ordinal in range(1, run.shards):
        addresses[ordinal] = address(ordinal)
    (folder / "coordinator.textproto").write_text(config_text(run, addresses))
    start(0, "coordinator.textproto")
    return address(0)


def start_workers(run, worker, coordinator, processes):
    """Starts all workers; returns rank 0's process, whose stdout is a pipe."""
    first = None
    for rank in range(run.workers):
        command = [*run.programs.get(rank, [worker]),
                   f"--coordinator={coordinator}", f"--rank={rank}",
                   f"--workers={run.workers}", f"--batch={run.batch}",
                   f"--epochs={run.epochs}", f"--seed={run.seed}",
                   f"--data={DATA}"]
        if rank > 0:
            processes.start(f"worker_{rank}", command)
            continue
        command += [f"--save={processes.folder / 'parameters.npz'}",
                    f"--accuracy_every={max(1, run.rounds() // 20)}"]
        first = processes.start("worker_0", command, stdout=subprocess.PIPE)
    return first


def read_lines(process, processes, on_round):
    """Rank 0's round lines and its final line."""
    rounds, final, rest = [], None, b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while final is None:
            if not selector.select(timeout=0.5):
                processes.check()
                continue
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                process.wait()
                processes.check()
                raise RunError("worker_0 ended without a result")
            *lines, rest = (rest + piece).split(b"\n")
            for line in map(json.loads, lines):
                if line.get("final"):
                    final = line
                else:
                    rounds.append(line)
                    on_round(line)
    return rounds, final


def train(run, bin_folder, on_round=lambda line: None, on_shards=None,
          at_end=lambda entry: None, start=start_shards):
    """Does one run; returns its JSON entry. Raises RunError.

    on_shards gets the metrics addresses once a monitored run's shards are up;
    at_end gets the entry while they still are. `start` is for shards that are
    started otherwise.
    """
    bin_folder = pathlib.Path(bin_folder)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="agg_quickstart_") as folder:
        processes = Processes(pathlib.Path(folder))
        try:
            coordinator = start(
                run, bin_folder / "server" / "agg_server", processes)
            if on_shards:
                on_shards(metrics_addresses(run, processes))
            first = start_workers(
                run, bin_folder / "worker_client/examples/digits_worker",
                coordinator, processes)
            rounds, final = read_lines(first, processes, on_round)
            seconds = time.monotonic() - started
            for name, process in processes.running:
                if name.startswith("worker"):
                    process.wait(STOP_SECONDS)
            processes.check()
            sha256 = parameters_sha256(processes.folder / "parameters.npz")
            entry = summarize(run, rounds, final, sha256, seconds)
            at_end(entry)
        except subprocess.TimeoutExpired as error:
            raise RunError(f"a worker does not end: {error}") from error
        finally:
            processes.stop()
    return entry
