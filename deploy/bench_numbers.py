"""What the benchmark computes from its times: pure."""

import json
import statistics

KEYS = ("system", "transport", "rule", "dtype", "workers", "shards",
        "bytes_per_worker", "median_ms", "min_ms", "max_ms", "ratio_to_gloo")

# What is known of a run besides its times.
FACTS = ("date", "machine", "pytorch", "commit")

# Servers' phases that have a column of their own; the others are one.
PHASES = ("gram", "update", "publish")


def cell_of(entry):
    """What two entries must share for a ratio of them to mean anything."""
    return entry["workers"], entry["bytes_per_worker"]


def make_entry(system, milliseconds):
    """The JSON object of a system (bench_systems.System); no ratio yet.

    `milliseconds`: of all measured rounds, at least one.
    """
    return {
        "system": system.kind,
        "transport": system.transport,
        "rule": system.rule,
        "dtype": system.dtype,
        "workers": system.workers,
        "shards": system.shards,
        "bytes_per_worker": system.num_bytes,
        "median_ms": round(statistics.median(milliseconds), 4),
        "min_ms": round(min(milliseconds), 4),
        "max_ms": round(max(milliseconds), 4),
        "ratio_to_gloo": None,
    }


def add_ratios(entries):
    """Sets ratio_to_gloo: this median by gloo's of the same workers and bytes.

    None where gloo was not measured.
    """
    gloo = {cell_of(entry): entry["median_ms"] for entry in entries
            if entry["system"] == "gloo"}
    for entry in entries:
        base = gloo.get(cell_of(entry))
        entry["ratio_to_gloo"] = (
            round(entry["median_ms"] / base, 4) if base else None)
    return entries


def to_json(facts, entries):
    """An object: facts of the run (date, machine, pytorch, commit: text) and
    its results, an entry a line."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)},\n"
             for key, value in facts.items()]
    return ("{\n" + "".join(lines) + '"results": [\n'
            + ",\n".join(map(json.dumps, entries)) + "\n]}\n")


def of_json(text):
    """What to_json() wrote. ValueError for anything else."""
    run = json.loads(text)
    if not isinstance(run, dict) or set(run) != {*FACTS, "results"}:
        raise ValueError("the results are no object with "
                         f"{', '.join(FACTS)} and results")
    return run


def round_milliseconds(lines_by_worker):
    """Of each round: from the first worker's begin to the last one's end.

    `lines_by_worker`: per worker a list of {"begin", "end"}, in nanoseconds of
    one clock; all lists have one item per round.
    """
    return [(max(line["end"] for line in lines)
             - min(line["begin"] for line in lines)) * 1e-6
            for lines in zip(*lines_by_worker)]


def rounds_per_turn(num_bytes):
    """Short rounds come in groups, else a turn is mostly a change of turns."""
    if num_bytes >= 16_000_000:
        return 1
    return 3 if num_bytes >= 1_000_000 else 10


def memory_estimate(system):
    """Bytes of all processes of an agg system, roughly and rather too many.

    Servers: a row per worker, and parameters in some copies. Workers: gradient
    and parameters, and what gRPC keeps of messages on both sides.
    """
    return system.num_bytes * (4 * system.workers + 7) + (100 << 20)


def pack(systems, limit):
    """Groups of neighbours that fit into `limit` bytes together; one at least.

    The systems of a group exist at the same time and take turns.
    """
    groups, used = [], 0
    for system in systems:
        needed = memory_estimate(system)
        if not groups or used + needed > limit:
            groups.append([])
            used = 0
        groups[-1].append(system)
        used += needed
    return groups


def shares(phase_seconds, milliseconds):
    """Parts of a mean round: {"wire", "gram", "update", "publish", "other"}.

    `phase_seconds`: by phase, of the mean round, as the coordinator saw them.
    What no phase of the servers accounts for is the wire's: pushes, pulls, and
    the messages between. Grams of slices that were complete before their round
    closed are in it.
    """
    whole = statistics.fmean(milliseconds) * 1e-3
    parts = {phase: phase_seconds.get(phase, 0.0) / whole for phase in PHASES}
    parts["other"] = sum(
        seconds for phase, seconds in phase_seconds.items()
        if phase not in PHASES and phase != "wait") / whole
    return {"wire": max(0.0, 1 - sum(parts.values())), **parts}
