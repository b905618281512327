"""The benchmark's tables: pure."""

import statistics

from deploy import bench_numbers as numbers

_NAMES = 4  # columns before the numbers
_SHARES = ("wire", *numbers.PHASES, "other")
# A tick of the CPU clocks is 10 ms: too much to say of less.
_CPU_BYTES = 1_000_000
# What is under any system of this kind, and in the tables alone.
FLOORS = {"raw": "raw sockets", "echo": "gRPC echo"}
HEADER = ["system", "transport", "rule", "dtype", "median ms", "min", "max",
          "/gloo", *_SHARES, "RSS MB", "plan MB", "/plan", "CPU s/GB",
          "servers"]


def size_text(num_bytes):
    """4000 -> "4 KB"."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if num_bytes >= size:
            return f"{num_bytes / size:g} {unit}"
    return f"{num_bytes} B"


def table(rows):
    """Text in columns: names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(
        cell.ljust(width) if column < _NAMES else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths))).rstrip()
        for row in rows)


def limits_line(lines):
    """Of what raw_limits printed in the turns that count: medians."""
    texts = []
    for what in ("memcpy", "read"):
        one, two = (statistics.median(line[f"{what}_{threads}"]
                                      for line in lines) for threads in (1, 2))
        texts.append(f"{what} {one:.1f} GB/s with a thread, {two:.1f} with two")
    return "limits: " + "; ".join(texts)


def _row(system, transport, rule, dtype, times, rest=()):
    cells = [system, transport, rule, dtype]
    cells += [f"{times[key]:.2f}" for key in ("median_ms", "min_ms", "max_ms")]
    ratio = times.get("ratio_to_gloo")
    cells.append("-" if ratio is None else f"{ratio:.2f}")
    cells += rest
    return cells + ["-"] * (len(HEADER) - len(cells))


def _details(entry, sample):
    """The columns behind the ratio."""
    if entry["system"] == "agg":
        parts = numbers.shares(sample.phase_seconds, sample.milliseconds)
        cells = [f"{100 * parts[name]:.0f}%" for name in _SHARES]
        cells += [f"{sample.peak_bytes * 1e-6:.0f}",
                  f"{sample.planned_bytes * 1e-6:.0f}",
                  f"{sample.peak_bytes / sample.planned_bytes:.2f}"]
    else:
        cells = ["-"] * (len(_SHARES) + 3)
    if entry["bytes_per_worker"] < _CPU_BYTES:
        return cells + ["-", "-"]
    # Given and gotten by all workers, whatever the way between.
    gigabytes = (2e-9 * entry["workers"] * entry["bytes_per_worker"]
                 * len(sample.milliseconds))
    servers, workers = sample.cpu_seconds
    return cells + [f"{(servers + workers) / gigabytes:.2f}",
                    f"{servers / gigabytes:.2f}"]


def _floor_row(kind, milliseconds):
    return _row(FLOORS[kind], "tcp", "-", "-", {
        "median_ms": statistics.median(milliseconds),
        "min_ms": min(milliseconds), "max_ms": max(milliseconds)})


def cell_table(entries, samples, floors):
    """The table of one number of workers and one size.

    `entries` with ratios, at least one; `samples` (bench.Sample) beside them;
    `floors`: samples by a key of FLOORS, "raw" among them.
    """
    rows = [HEADER] + [_floor_row(kind, sample.milliseconds)
                       for kind, sample in floors.items()]
    for entry, sample in zip(entries, samples):
        name = entry["system"]
        if entry["shards"] > 1:
            name += f", {entry['shards']} shards"
        rows.append(_row(name, entry["transport"], entry["rule"],
                         entry["dtype"], entry, _details(entry, sample)))
    return (f"P = {entries[0]['workers']}, "
            f"{size_text(entries[0]['bytes_per_worker'])} of float32 per "
            f"worker\n{limits_line(floors['raw'].lines)}\n{table(rows)}")


LEGEND = """\
Times: of complete rounds, from the first byte pushed to the last worker's
having its parameters; /gloo: the median by gloo's. wire: the part of the mean
round in no phase of the servers (pushes, pulls, messages); gram, update,
publish, other: the part that the servers spent there. RSS: the servers' peak
(VmHWM); plan: aggserver_memory_planned_bytes. CPU s/GB: of servers and workers
per GB that workers give and get (2 P N a round), and the servers' part of it.
raw sockets: each worker's bytes there, and as many back, by bare connections.
gRPC echo: the same by a bare unary call of each worker."""
