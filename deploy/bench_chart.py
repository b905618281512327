"""Draws the results of deploy/bench.sh --json FILE as an SVG.

  /usr/bin/python3 deploy/bench_chart.py FILE deploy/bench.svg [RULE]

A bar is a median in units of gloo's of the same workers and bytes, with a
line from the fastest to the slowest round. One rule is shown, adasum where
there is no other word: rules differ by far less than transports.
"""

import pathlib
import sys
from xml.sax.saxutils import escape

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

# pylint: disable=wrong-import-position
from deploy import bench_numbers as numbers
from deploy import bench_report as report

_ROW = 18        # pixels from bar to bar
_BAR = 12
_LABELS = 230    # to the left of the bars
_BARS = 460
_VALUES = 165    # to the right of them
_MARGIN = 12
_WIDTH = _LABELS + _BARS + _VALUES
# What no bar is longer than: a slow system must not make all others invisible.
_LONGEST = 4.0
_COLORS = {"gloo": "#8a8f98", "tcp": "#1f6feb", "unix": "#1a7f37",
           "shm_copy": "#9a6700", "shm": "#bc4c00"}


def label_of(entry):
    if entry["system"] == "gloo":
        return "gloo all_reduce, f32"
    shards = f", {entry['shards']} shards" if entry["shards"] > 1 else ""
    return f"agg {entry['transport']}, {entry['dtype']}{shards}"


def shown(entries, rule):
    """gloo, and the systems of one rule."""
    return [entry for entry in entries
            if entry["system"] == "gloo" or entry["rule"] == rule]


def groups_of(entries):
    """[((bytes, workers), entries)]: as a reader expects them."""
    keys = sorted({(-entry["bytes_per_worker"], entry["workers"])
                   for entry in entries})
    return [((-size, workers),
             [entry for entry in entries
              if (-entry["bytes_per_worker"], entry["workers"])
              == (size, workers)]) for size, workers in keys]


def _unit(entries):
    """Milliseconds that the bars of a group are measured in: gloo's median."""
    for entry in entries:
        if entry["system"] == "gloo":
            return entry["median_ms"]
    return min(entry["median_ms"] for entry in entries)


def _text(x, y, text, more=""):
    return f'<text x="{x:g}" y="{y:g}"{more}>{escape(text)}</text>'


def _milliseconds(value):
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} ms"


def _bar(entry, unit, top):
    """One system: label, bar, whisker, numbers."""
    scale = _BARS / _LONGEST

    def place(milliseconds):
        return _LABELS + scale * min(milliseconds / unit, _LONGEST)

    color = _COLORS[entry["transport"] if entry["system"] == "agg" else "gloo"]
    middle = top + _BAR / 2
    ratio = entry["ratio_to_gloo"]
    value = _milliseconds(entry["median_ms"])
    if ratio is not None and entry["system"] != "gloo":
        value += f" ({ratio:.2f} x gloo)"
    return [
        _text(_LABELS - 8, top + _BAR - 2, label_of(entry),
              ' text-anchor="end"'),
        f'<rect x="{_LABELS}" y="{top:g}" height="{_BAR}" fill="{color}" '
        f'width="{place(entry["median_ms"]) - _LABELS:.1f}"/>',
        f'<path d="M{place(entry["min_ms"]):.1f} {middle:g}'
        f'H{place(entry["max_ms"]):.1f}" stroke="#24292f"/>',
        _text(_LABELS + _BARS + 8, top + _BAR - 2, value)]


def svg(entries, rule="adasum"):
    """The chart's text. REQUIRES: entries of this rule, or of gloo."""
    parts, y = [], _MARGIN
    for (size, workers), group in groups_of(shown(entries, rule)):
        y += 14
        parts.append(_text(
            _MARGIN, y, f"{report.size_text(size)} of float32 per worker, "
            f"P = {workers}", ' font-weight="bold"'))
        y += 8
        unit = _unit(group)
        line = _LABELS + _BARS / _LONGEST
        parts.append(
            f'<path d="M{line:g} {y - 2}V{y + _ROW * len(group)}" '
            'stroke="#24292f" stroke-dasharray="2 3"/>')
        for entry in group:
            parts += _bar(entry, unit, y)
            y += _ROW
    y += 18
    parts.append(_text(
        _MARGIN, y, f"Rounds of {rule}; bars are medians in units of gloo's "
        "(dashed), lines go from the fastest to the slowest round; cut at "
        f"{_LONGEST:g} x."))
    height = y + _MARGIN
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" '
        f'height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="11" fill="#24292f">',
        '<rect width="100%" height="100%" fill="white"/>', *parts,
        "</svg>"]) + "\n"


def main(arguments):
    if not 2 <= len(arguments) <= 3:
        print("usage: bench_chart.py RESULTS.json CHART.svg [RULE]",
              file=sys.stderr)
        return 2
    entries = numbers.of_json(
        pathlib.Path(arguments[0]).read_text())["results"]
    rule = arguments[2] if len(arguments) > 2 else "adasum"
    if not any(entry["rule"] == rule for entry in entries):
        print(f"{arguments[0]} has no results of rule {rule}", file=sys.stderr)
        return 1
    pathlib.Path(arguments[1]).write_text(svg(entries, rule))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
