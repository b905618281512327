#!/usr/bin/python3
"""Prints how large files are and how rooms hang together. `units.py [ROOT]`

A unit is a header with its source. An arrow leads from a unit to one whose
header it includes, both in the four large rooms. These are measures for people;
lint.py checks what must hold.
"""

import os
import re
import statistics
import sys

_CODE = (".h", ".cc", ".cu", ".cuh", ".proto", ".py", ".sh")
_CPP = (".h", ".cc", ".cu", ".cuh")
_ROOMS = ("server/coordinator", "server/rpc", "server/shard", "worker_client")
_INCLUDE = re.compile(r'^#include "([^"]+)"')


def _unit(path):
    return os.path.splitext(path)[0]


def arrows(files, rooms=_ROOMS):
    """(units, {(unit, unit that it includes)}) of the rooms' folders."""
    units, found = set(), set()
    for path, lines in files.items():
        if not path.endswith(_CPP) or os.path.dirname(path) not in rooms:
            continue
        units.add(_unit(path))
        for line in lines:
            match = _INCLUDE.match(line)
            if match and os.path.dirname(match.group(1)) in rooms:
                found.add((_unit(path), _unit(match.group(1))))
    return units, {pair for pair in found if pair[0] != pair[1]}


def circles(pairs):
    """Sets of units each of which leads to the others."""
    after = {}
    for begin, end in pairs:
        after.setdefault(begin, set()).add(end)

    def reached(begin):
        seen, left = set(), [begin]
        while left:
            for unit in after.get(left.pop(), ()):
                if unit not in seen:
                    seen.add(unit)
                    left.append(unit)
        return seen

    reach = {unit: reached(unit) for unit in after}
    return {frozenset(other for other in seen if unit in reach.get(other, ()))
            for unit, seen in reach.items() if unit in seen}


def main(argv):
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import lint  # Here alone: only main() reads a tree.
    files = lint.tracked_files(argv[1] if len(argv) > 1 else os.getcwd())
    sizes = [len(lines) for path, lines in files.items()
             if path.endswith(_CODE) and not path.startswith("tests/")]
    print("code without tests: %d files, median %d lines, mean %d, %d in all" %
          (len(sizes), statistics.median(sizes), statistics.mean(sizes),
           sum(sizes)))
    units, pairs = arrows(files)
    print("%s: %d units, %d arrows" % (", ".join(_ROOMS), len(units),
                                       len(pairs)))
    for circle in sorted(circles(pairs), key=sorted):
        print("circle: " + ", ".join(sorted(circle)))
    build = [lines for path, lines in files.items()
             if os.path.basename(path) == "BUILD"]
    print("BUILD files: %d lines, %d C++ tests" % (
        sum(map(len, build)),
        sum(line.startswith("agg_cc_test(") for lines in build
            for line in lines)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
