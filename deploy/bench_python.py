"""`deploy/bench.sh --python`: what training with the Python package costs.

Two tables. Steps of a model of ResNet-18's size: worker.step() with and without
overlap against DDP over gloo, backward included. Bare rounds: worker.step()
against the C++ client's, on the same tensors. Systems take turns.
"""

import contextlib
import ctypes
import mmap
import pathlib
import statistics
from dataclasses import dataclass, field

from deploy import bench_numbers as numbers
from deploy import bench_report as report
from deploy import bench_systems as systems
from deploy import bench_team
from deploy import quickstart_job as job

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKER = ROOT / "deploy" / "bench_torch.py"
PACKAGE = ROOT / "worker_client" / "python"
KEYS = ("system", "variant", "transport", "workers", "bytes_per_worker",
        "median_ms", "min_ms", "max_ms", "ratio", "backward_ms", "sync_ms",
        "hidden")
# The model of bench_torch.py.
MODEL_BYTES, MODEL_TENSORS = 4 * 11_173_962, 62
SMALL_BYTES, LARGE_BYTES = 4_000, 100_000_000
TRANSPORTS = ("shm_copy", "tcp")
STEPS = 3  # of a turn
# Of a turn of bare rounds, by their bytes and workers.
ROUNDS = {(SMALL_BYTES, 1): 100, (SMALL_BYTES, 4): 100, (LARGE_BYTES, 1): 5}
QUICK_ROUNDS = {(SMALL_BYTES, 1): 5, (SMALL_BYTES, 4): 5, (4_000_000, 1): 5}


@dataclass
class Contender:
    """A system in a variant, and what was measured of it."""
    kind: str  # "ddp", "train", "rounds", "c++"
    variant: str
    system: systems.System
    milliseconds: list = field(default_factory=list)
    backward: list = field(default_factory=list)
    sync: list = field(default_factory=list)

    def add(self, lines_by_worker):
        """The lines of a turn: a step is from the first one's begin to the last
        one's end, divided by their number where they follow each other."""
        if self.kind in ("rounds", "c++"):
            self.milliseconds += numbers.round_milliseconds(lines_by_worker)
            return
        begin = min(lines[0]["begin"] for lines in lines_by_worker)
        end = max(lines[-1]["end"] for lines in lines_by_worker)
        self.milliseconds.append(
            (end - begin) * 1e-6 / len(lines_by_worker[0]))
        for lines in lines_by_worker:
            self.backward += [line["backward"] * 1e-6 for line in lines]
            self.sync += [line["sync"] * 1e-6 for line in lines]


def contender(kind, variant, transport, workers, num_bytes):
    return Contender(kind, variant, systems.System(
        "gloo" if kind == "ddp" else "agg", transport, "mean", "f32", workers,
        0 if kind == "ddp" else 1, num_bytes))


def training(workers):
    """Those of the table of steps; DDP first."""
    return [contender("ddp", "", "tcp", workers, MODEL_BYTES)] + [
        contender("train", variant, transport, workers, MODEL_BYTES)
        for transport in TRANSPORTS
        for variant in ("", "overlap", "zero_copy,overlap")]


def bare(num_bytes, workers):
    """Those of a table of rounds: of each transport the C++ client first."""
    return [contender(kind, variant, transport, workers, num_bytes)
            for transport in TRANSPORTS
            for kind, variant in (("c++", ""), ("rounds", ""),
                                  ("rounds", "zero_copy"))]


def make_barrier(path, parties):
    """A pthread_barrier_t for processes, in a file: its path."""
    path.write_bytes(bytes(64))
    libc, attributes = ctypes.CDLL(None), (ctypes.c_char * 64)()
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        barrier = (ctypes.c_char * 64).from_buffer(memory)
        libc.pthread_barrierattr_init(attributes)
        libc.pthread_barrierattr_setpshared(attributes, 1)
        libc.pthread_barrier_init(barrier, attributes, parties)
        del barrier  # else the memory could not be closed
    return path


def start(each, bin_folder, torch_python):
    """The contender's processes, ready. Raises RunError."""
    system = each.system
    team = bench_team.Team(system)
    try:
        common = [f"--elements={system.elements}",
                  f"--tensors={MODEL_TENSORS}"]
        address = ("" if each.kind == "ddp"
                   else team.start_servers(bin_folder))
        barrier = (bench_team.make_barrier(team) if each.kind == "c++" else
                   make_barrier(team.folder / "barrier", system.workers))
        common.append(f"--workers={system.workers}")
        if each.kind in ("c++", "rounds"):
            common.append(f"--barrier={barrier}")
        for rank in range(system.workers):
            own = [f"--rank={rank}", f"--coordinator={address}",
                   f"--transport={system.transport}", *common]
            team.start_worker(
                [bin_folder / "tests/bench/transport_worker", *own]
                if each.kind == "c++" else
                [torch_python, WORKER, f"--system={each.kind}", *own,
                 f"--store={team.folder / 'store'}", f"--package={PACKAGE}",
                 f"--libagg={bin_folder / 'worker_client/c/libagg.so'}",
                 f"--variant={each.variant}"])
        team.wait_until_ready()
    except BaseException:
        team.__exit__()
        raise
    return team


def measure(contenders, per_turn, options, start_one=start):
    """Turns of all of them, back and forth."""
    with contextlib.ExitStack() as stack:
        teams = []
        for each in contenders:
            team = stack.enter_context(start_one(
                each, pathlib.Path(options.bin).resolve(),
                options.torch_python))
            for _ in range(options.warmups):
                team.ask(per_turn)
            teams.append((each, team))
        for turn in range(options.rounds):
            for each, team in teams[::-1 if turn % 2 else 1]:
                each.add(team.ask(per_turn))


def entries_of(contenders):
    """The JSON rows; ratios are to DDP, or to the C++ client of the transport.

    hidden: the part of the synchronization that overlap has taken away: 1 - its
    sync_ms by that of the same transport without overlap.
    """
    entries = []
    for each in contenders:
        entry = numbers.make_entry(each.system, each.milliseconds)
        entry = {key: entry.get(key) for key in KEYS}
        entry.update(
            system={"c++": "c++", "ddp": "ddp"}.get(each.kind, "python"),
            variant=each.variant,
            backward_ms=_median(each.backward), sync_ms=_median(each.sync))
        entries.append(entry)
    for entry in entries:
        base = [other for other in entries if other["system"] == "ddp" or
                (other["system"], other["transport"]) ==
                ("c++", entry["transport"])]
        if base:
            entry["ratio"] = round(
                entry["median_ms"] / base[0]["median_ms"], 4)
        plain = [other for other in entries if not other["variant"] and
                 (other["system"], other["transport"]) ==
                 ("python", entry["transport"])]
        if plain and "overlap" in entry["variant"]:
            entry["hidden"] = round(
                1 - entry["sync_ms"] / plain[0]["sync_ms"], 3)
    return entries


def _median(values):
    return round(statistics.median(values), 4) if values else None


def _cell(value, text="{:.2f}"):
    return "-" if value is None else text.format(value)


def steps_table(entries):
    """Of training."""
    rows = [["system", "variant", "transport", "", "step ms", "min", "max",
             "/ddp", "backward ms", "sync ms", "hidden"]]
    for entry in entries:
        rows.append([
            entry["system"], entry["variant"] or "-", entry["transport"], "",
            *(_cell(entry[key]) for key in ("median_ms", "min_ms", "max_ms",
                                            "ratio", "backward_ms",
                                            "sync_ms")),
            "-" if entry["hidden"] is None
            else f"{100 * entry['hidden']:.0f}%"])
    return (f"P = {entries[0]['workers']}, steps of a model with "
            f"{report.size_text(entries[0]['bytes_per_worker'])} of "
            f"gradients\n{report.table(rows)}")


def rounds_table(entries):
    """Of bare rounds: what Python adds."""
    rows = [["client", "variant", "transport", "", "median us", "min", "max",
             "/c++", "more us"]]
    for entry in entries:
        base = entry["median_ms"] / entry["ratio"]
        rows.append([
            entry["system"], entry["variant"] or "-", entry["transport"], "",
            *(_cell(1e3 * entry[key], "{:.0f}")
              for key in ("median_ms", "min_ms", "max_ms")),
            _cell(entry["ratio"], "{:.3f}"),
            _cell(1e3 * (entry["median_ms"] - base), "{:.0f}")])
    return (f"P = {entries[0]['workers']}, bare rounds of {MODEL_TENSORS} "
            "tensors, "
            f"{report.size_text(entries[0]['bytes_per_worker'])} together\n"
            f"{report.table(rows)}")


LEGEND = """\
step: forward, backward and what synchronizes (DDP: its optimizer's step, since
backward waits for its all_reduce), of all workers; sync: worker.step() of one.
hidden: the part of sync that overlap has taken away, by the same transport
without it. more: the median over the C++ client's PushPull."""


def run(options, say):
    """Measures and prints; returns the entries. Raises job.RunError."""
    if not options.torch_python:
        raise job.RunError("--python needs PyTorch, which deploy/bench.sh "
                           "installs without --quick")
    entries = []
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    for (num_bytes, workers), per_turn in rounds.items():
        contenders = bare(num_bytes, workers)
        measure(contenders, per_turn, options)
        found = entries_of(contenders)
        say(rounds_table(found) + "\n")
        entries += found
    for workers in options.workers:
        contenders = training(workers)
        measure(contenders, 1 if options.quick else STEPS, options)
        found = entries_of(contenders)
        say(steps_table(found) + "\n")
        entries += found
    say(LEGEND)
    return entries
