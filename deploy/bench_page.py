"""Writes the tables of a run of deploy/bench.sh into a page.

  /usr/bin/python3 deploy/bench_page.py deploy/bench.json \\
      deploy/docs/performance.md

Replaces what stands between the two comments that name this program. A number
is a median in milliseconds; in brackets it is in units of gloo's of the same
workers and bytes. Rows are transports, and one shard serves them.
"""

import pathlib
import sys

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

# pylint: disable=wrong-import-position
from deploy import bench_numbers as numbers

_BEGIN = "<!-- of deploy/bench_page.py: begin -->\n"
_END = "<!-- of deploy/bench_page.py: end -->\n"
_RULE = "adasum"
_LARGE, _MIDDLE, _SMALL = 100_000_000, 4_000_000, 4_000
_TRANSPORTS = {"tcp": "TCP", "unix": "Unix socket",
               "shm_copy": "shared memory, own buffers",
               "shm": "shared memory, in place"}


def _digits(milliseconds):
    """Three digits that count."""
    places = 2 if milliseconds < 10 else 1 if milliseconds < 100 else 0
    return f"{milliseconds:.{places}f}"


def _table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


class _Results:
    """The entries of a run, by what a table asks for."""

    def __init__(self, entries):
        self._entries = entries

    def workers(self):
        return sorted({entry["workers"] for entry in self._entries})

    def _find(self, **wanted):
        return next((entry for entry in self._entries if all(
            entry[key] == value for key, value in wanted.items())), None)

    def gloo(self, workers, size):
        found = self._find(system="gloo", workers=workers,
                           bytes_per_worker=size)
        return _digits(found["median_ms"]) if found else ""

    def round(self, **wanted):
        """A cell; empty where nothing was measured."""
        found = self._find(system="agg", shards=1, **wanted)
        if not found:
            return ""
        ratio = found["ratio_to_gloo"]
        return _digits(found["median_ms"]) + (
            "" if ratio is None else f" ({ratio:.2f})")


def _large(results):
    dtypes = ("f32", "bf16", "int8")
    rows = []
    for workers in results.workers():
        for transport, name in _TRANSPORTS.items():
            rows.append([name, str(workers), results.gloo(workers, _LARGE)] + [
                results.round(transport=transport, rule=_RULE, dtype=dtype,
                              workers=workers, bytes_per_worker=_LARGE)
                for dtype in dtypes])
    return _table(["100 MB of float32 per worker", "workers", "gloo", *dtypes],
                  rows)


def _small(results):
    rows = []
    for size, text in ((_MIDDLE, "4 MB"), (_SMALL, "4 KB")):
        for workers in results.workers():
            rows.append([text, str(workers), results.gloo(workers, size)] + [
                results.round(transport=transport, rule=_RULE, dtype="f32",
                              workers=workers, bytes_per_worker=size)
                for transport in _TRANSPORTS])
    return _table(["per worker", "workers", "gloo", *_TRANSPORTS.values()],
                  rows)


def _rules(results):
    rules = ("mean", "adasum", "adacons")
    return _table(["100 MB of float32, 4 workers", *rules], [
        [name] + [results.round(transport=transport, rule=rule, dtype="f32",
                                workers=4, bytes_per_worker=_LARGE)
                  for rule in rules]
        for transport, name in _TRANSPORTS.items()])


def section(run):
    """The generated part of the page, of what deploy/bench.sh --json wrote."""
    results = _Results(run["results"])
    return (f"Date: {run['date']}. Machine: {run['machine']}. PyTorch (gloo): "
            f"{run['pytorch']}. Commit: {run['commit']}.\n\n"
            "### Large rounds: transports and types\n\n"
            f"{_large(results)}\n"
            "### Small rounds\n\n"
            f"{_small(results)}\n"
            "### Rules\n\n"
            f"{_rules(results)}")


def replaced(page, run):
    """The page with the tables of this run. ValueError without the comments."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page lacks {_BEGIN.strip()} or {_END.strip()}")
    return f"{before}{begin}\n{section(run)}\n{end}{after}"


def main(arguments):
    if len(arguments) != 2:
        print("usage: bench_page.py RESULTS.json PAGE", file=sys.stderr)
        return 2
    page = pathlib.Path(arguments[1])
    try:
        run = numbers.of_json(pathlib.Path(arguments[0]).read_text())
        page.write_text(replaced(page.read_text(), run))
    except ValueError as error:
        print(f"{arguments[1]}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
