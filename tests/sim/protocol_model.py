"""Explores the model of the protocol of survival: tests/sim/README.md.

    python3 tests/sim/protocol_model.py --shards=3 --versions=2 --crashes=2

Ends with 0 if no state within the bounds violates an invariant, else it prints
the shortest trace to one that does, and ends with 1.
"""

import argparse
import os
import resource
import sys
import time

if __package__ in (None, ""):  # Run as a script: from the root of the tree.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(
        os.path.abspath(__file__)))))

from tests.sim.protocol_explorer import explore  # noqa: E402
from tests.sim.protocol_recovery import RULES  # noqa: E402
from tests.sim.protocol_state import Bounds  # noqa: E402


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default, text in (
            ("shards", 2, "processes on the ring, 2 or more"),
            ("versions", 1, "to be made"),
            ("crashes", 1, "processes killed and started again, empty"),
            ("freezes", 0, "processes frozen and replaced, which go on"),
            ("epochs", 3, "the first one included"),
            ("checkpoints", 0, "taken"),
            ("facts", 0, "changed between rounds"),
            ("tears", 0, "of the checkpoint, which is put back")):
        parser.add_argument("--" + name, type=int, default=default, help=text)
    parser.add_argument("--unseeded", action="store_true",
                        help="begin with empty processes")
    parser.add_argument("--broken", action="append", default=[], choices=RULES,
                        help="a rule to leave out (repeatable)")
    parser.add_argument("--no-liveness", action="store_true",
                        help="do not look for stuck states: half the memory")
    parser.add_argument("--two-lives-go-on", action="store_true",
                        help="do not stop where two lives have one epoch")
    flags = parser.parse_args(arguments)
    if flags.shards < 2:
        parser.error("shards is %d; allowed: 2 or more" % flags.shards)
    return flags


def describe(result):
    """The lines that tell a Result."""
    lines = ["%d states, %d steps, depth %d, ends: %d finished, %d without an "
             "epoch left" % (result.states, result.steps, result.depth,
                             result.finished, result.used_up)]
    if result.violation is None:
        return lines + ["no violation"]
    return lines + ["VIOLATION of " + result.violation] + [
        "%4d  %s" % (number, label)
        for number, label in enumerate(result.trace, 1)]


def main(arguments):
    flags = parse(arguments)
    bounds = Bounds(flags.shards, flags.versions, flags.crashes, flags.freezes,
                    flags.epochs, flags.checkpoints, flags.facts,
                    flags.unseeded, flags.tears)
    begun = time.monotonic()
    result = explore(bounds, flags.broken, not flags.no_liveness,
                     not flags.two_lives_go_on)
    print("\n".join(describe(result)))
    print("%.1f s, %d MiB" % (time.monotonic() - begun, resource.getrusage(
        resource.RUSAGE_SELF).ru_maxrss // 1024))
    return 1 if result.violation else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
