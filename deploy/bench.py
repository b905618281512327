"""Measures complete rounds of agg_server, of gloo's all_reduce, and the limits
of this machine, in turns. Started by deploy/bench.sh, which builds.

For each number of workers P and each size N there is one table. Its systems
exist at the same time, as far as the memory goes, and take turns, so that what
else the machine does meets all of them alike.
"""

import contextlib
import os
import pathlib
import signal
import sys
from dataclasses import dataclass, field

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

# pylint: disable=wrong-import-position
from deploy import bench_facts
from deploy import bench_numbers as numbers
from deploy import bench_options
from deploy import bench_python
from deploy import bench_report as report
from deploy import bench_systems as systems
from deploy import bench_team
from deploy import quickstart_job as job

# Of the memory that is free; the rest is for what the estimate lacks.
_MEMORY_PART = 0.6
# One message of more says little about rounds, which go in frames.
_MAX_ECHO_BYTES = 1_000_000


@dataclass
class Sample:
    """What was measured of a system."""
    milliseconds: list = field(default_factory=list)
    lines: list = field(default_factory=list)  # raw_limits' own
    cpu_seconds: tuple = (0.0, 0.0)  # servers', workers', of the rounds above
    phase_seconds: dict = field(default_factory=dict)  # of the mean round
    peak_bytes: int = 0
    planned_bytes: float = 0.0


def available_bytes():
    """Memory that this machine, or the container, has left."""
    text = pathlib.Path("/proc/meminfo").read_text()
    free = 1024 * int(text.split("MemAvailable:")[1].split()[0])
    with contextlib.suppress(OSError, ValueError):
        group = pathlib.Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        free = min(free, limit - used)
    return free


class Measurement:
    """The turns of one team that count."""

    def __init__(self, team, sample, per_turn):
        self.team = team
        self.sample = sample
        self.per_turn = per_turn
        self.done = 0
        self._before = None

    def warm_up(self, turns):
        for _ in range(turns):
            self._do()
        self._before = (self.done, self.team.cpu_seconds(), self._phases())

    def _do(self):
        self.done += self.per_turn
        if self.team.system.kind == "raw":
            return self.team.ask(self.per_turn, num_lines=1)[0][0]
        return self.team.ask(self.per_turn)

    def _phases(self):
        if not self.team.servers:
            return {}
        return self.team.phase_seconds(self.done)

    def turn(self):
        answer = self._do()
        if self.team.system.kind == "raw":
            self.sample.lines.append(answer)
            self.sample.milliseconds += answer["socket_ms"]
        else:
            self.sample.milliseconds += numbers.round_milliseconds(answer)

    def finish(self):
        """Adds what is known at the end; again after more turns."""
        done, cpu, phases = self._before
        rounds = self.done - done
        self.sample.cpu_seconds = tuple(
            now - before for now, before in zip(self.team.cpu_seconds(), cpu))
        if self.team.servers:
            self.sample.phase_seconds = {
                phase: (seconds - phases.get(phase, 0.0)) / rounds
                for phase, seconds in self._phases().items()}
            self.sample.peak_bytes = self.team.peak_bytes()
            self.sample.planned_bytes = self.team.planned_bytes()


def base_systems(workers, num_bytes, with_gloo):
    """What takes turns with every group of a table."""
    kinds = [("raw", "-")]
    if num_bytes <= _MAX_ECHO_BYTES:
        kinds.append(("echo", "-"))
    if with_gloo:
        kinds.append(("gloo", "sum"))
    return [systems.System(kind, "tcp", rule, "f32", workers, 0, num_bytes)
            for kind, rule in kinds]


class Bench:
    """A run of the benchmark; collects the entries."""

    def __init__(self, options, say):
        self.options = options
        self.bin = pathlib.Path(options.bin).resolve()
        self.say = say
        self.entries = []
        built = systems.built_transports(self.bin)
        self.transports = [name for name in systems.TRANSPORTS
                           if name in options.transports and name in built]
        for name in options.transports:
            if name not in built:
                say(f"transport {name}: left out, the worker of this build "
                    "has none of it")
        self._refused = {}  # reason by what of a system decides about it

    def agg_systems(self, workers, num_bytes):
        """Those of a table that this build can do, rules side by side."""
        options = self.options
        all_systems = [
            systems.System("agg", transport, rule, dtype, workers, shards,
                           num_bytes)
            for shards in options.shards for transport in self.transports
            for dtype in options.dtypes
            if systems.TRANSPORTS[transport].takes(dtype)
            for rule in options.rules]
        return [system for system in all_systems if not self._refusal(system)]

    def _refusal(self, system):
        """Asks once for each combination, and says what is left out."""
        key = (system.transport, system.rule, system.dtype, system.shards)
        if key not in self._refused:
            self._refused[key] = systems.refusal(system, self.bin)
            if self._refused[key]:
                self.say(f"{system.name}: left out, the server refuses it: "
                         f"{self._refused[key]}")
        return self._refused[key]

    def _start(self, system):
        return bench_team.start(system, self.bin, self.options.torch_python)

    def _group(self, group, base, samples):
        """The turns of one group of systems, with the base's between."""
        per_turn = numbers.rounds_per_turn(group[0].num_bytes)
        with contextlib.ExitStack() as stack:
            measurements = list(base)
            for system in group:
                team = stack.enter_context(self._start(system))
                measurement = Measurement(team, samples[system], per_turn)
                measurement.warm_up(self.options.warmups)
                measurements.append(measurement)
            for turn in range(self.options.rounds):
                # Back and forth: nobody is always behind the same one.
                for measurement in measurements[::-1 if turn % 2 else 1]:
                    measurement.turn()
            for measurement in measurements:
                measurement.finish()

    def cell(self, workers, num_bytes):
        """One table: measures, prints, keeps the entries."""
        per_turn = numbers.rounds_per_turn(num_bytes)
        aggs = self.agg_systems(workers, num_bytes)
        if not aggs:
            raise job.RunError("nothing is left to measure")
        samples = {}
        with contextlib.ExitStack() as stack:
            base = []
            for system in base_systems(workers, num_bytes,
                                       bool(self.options.torch_python)):
                samples[system] = Sample()
                team = stack.enter_context(self._start(system))
                base.append(Measurement(team, samples[system], per_turn))
                base[-1].warm_up(self.options.warmups)
            for group in numbers.pack(aggs, _MEMORY_PART * available_bytes()):
                samples.update((system, Sample()) for system in group)
                self._group(group, base, samples)
        self._keep(samples)

    def _keep(self, samples):
        floors = {system.kind: sample for system, sample in samples.items()
                  if system.kind in report.FLOORS}
        measured = {system: sample for system, sample in samples.items()
                    if system.kind not in report.FLOORS}
        entries = numbers.add_ratios([
            numbers.make_entry(system, sample.milliseconds)
            for system, sample in measured.items()])
        self.entries += entries
        self.say(report.cell_table(entries, measured.values(), floors) + "\n")


def run(options, say):
    """Measures everything; returns the entries. Raises job.RunError."""
    bench = Bench(options, say)
    if not options.torch_python:
        say("gloo: left out, there is no PyTorch (deploy/bench.sh without "
            "--quick installs it)")
    say(f"{os.cpu_count()} CPUs, {options.warmups} turns to warm up, "
        f"{options.rounds} that count\n")
    for num_bytes in options.sizes:
        for workers in options.workers:
            bench.cell(workers, num_bytes)
    say(report.LEGEND)
    return bench.entries


def main(arguments):
    options = bench_options.parse(arguments)
    if options.check:
        return 0
    # These, too, must end what was started.
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    try:
        measure = bench_python.run if options.python else run
        entries = measure(options, lambda text: print(text, flush=True))
        if options.json:
            pathlib.Path(options.json).write_text(numbers.to_json(
                bench_facts.facts(options.torch_python), entries))
    except (job.RunError, OSError) as error:
        print(f"deploy/bench.sh: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
