"""Explores the model of the protocol of survival: tests/sim/README.md.

All states are visited, nearest first: the first violation that it meets has
therefore a shortest trace. It also looks at liveness: from each state that has
an epoch left, an open one must be within reach if nothing fails any more
(tests/sim/README.md 4).

    python3 tests/sim/protocol_model.py --shards=3 --versions=2 --crashes=2

Ends with 0 if no state within the bounds violates an invariant, else it prints
the shortest trace to one that does, and ends with 1.
"""

import argparse
import array
import collections
import os
import resource
import sys
import time
from typing import NamedTuple, Optional, Tuple

if __package__ in (None, ""):  # Run as a script: from the root of the tree.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(
        os.path.abspath(__file__)))))

from tests.sim.protocol_facts import FactSteps  # noqa: E402
from tests.sim.protocol_recovery import RULES  # noqa: E402
from tests.sim.protocol_state import OPEN, Bounds, initial_state  # noqa: E402
from tests.sim.protocol_steps import Violation  # noqa: E402


class Result(NamedTuple):
    """What an exploration found."""
    states: int
    steps: int
    depth: int  # steps to the farthest state
    finished: int  # ends: open, with all versions made
    used_up: int  # other ends: no epoch is left to recover with
    violation: Optional[str] = None
    trace: Tuple[str, ...] = ()  # the steps from the beginning to it


class _Graph:
    """The states by number, how each was reached, and who leads to whom."""

    def __init__(self, start):
        self.numbers = {start: 0}
        self.depths = array.array("i", [0])
        self._parents = array.array("q", [-1])
        self._labels = [None]
        self._names = {}
        # Steps that are no faults, as pairs.
        self.sources = array.array("q")
        self.targets = array.array("q")

    def add(self, state, parent, label):
        """(number, whether it is new) of a state."""
        number = self.numbers.setdefault(state, len(self._labels))
        if number < len(self._labels):
            return number, False
        self._parents.append(parent)
        self.depths.append(self.depths[parent] + 1)
        self._labels.append(self._names.setdefault(label, label))
        return number, True

    def trace(self, number):
        labels = []
        while number:
            labels.append(self._labels[number])
            number = self._parents[number]
        return tuple(reversed(labels))

    def reaching(self, goals):
        """A flag per state: whether a goal is within reach without faults."""
        before = collections.defaultdict(list)
        for source, target in zip(self.sources, self.targets):
            before[target].append(source)
        reached = bytearray(len(self._labels))
        for number in goals:
            reached[number] = 1
        todo = list(goals)
        while todo:
            for source in before.get(todo.pop(), ()):
                if not reached[source]:
                    reached[source] = 1
                    todo.append(source)
        return reached


def is_open(state):
    """Whether workers are served: an epoch is open, and all are in it."""
    c = state.coordinator
    return c is not None and c.stage == OPEN and all(
        process.promise == c.epoch and process.master == c.life
        for process in state.processes)


def explore(bounds, broken=(), liveness=True, one_life=True, steps=FactSteps):
    """Visits all states within `bounds`; `broken`: rules that are left out.

    Without `liveness` it needs half of the memory. Without `one_life` it goes
    on where two coordinators have one epoch, to see what comes of that.
    """
    model = steps(bounds, frozenset(broken), one_life)
    start = initial_state(bounds)
    graph = _Graph(start)
    queue = collections.deque([(0, start)])
    goals, need, num_steps, ends = [], [], 0, [0, 0]

    def result(violation=None, trace=()):
        return Result(len(graph.numbers), num_steps, max(graph.depths),
                      ends[0], ends[1], violation, trace)

    while queue:
        number, state = queue.popleft()
        label = None
        leads_on = False
        try:
            for label, fault, following in model.successors(state):
                num_steps += 1
                target, new = graph.add(following, number, label)
                if new:
                    queue.append((target, following))
                leads_on = leads_on or not fault
                if liveness and not fault:
                    graph.sources.append(number)
                    graph.targets.append(target)
        except Violation as violation:
            return result(str(violation), graph.trace(number))
        if is_open(state):
            goals.append(number)
            if not leads_on:
                ends[0] += 1
        elif state.epochs < bounds.epochs:
            need.append(number)
        elif not leads_on:
            ends[1] += 1
    if liveness:
        reached = graph.reaching(goals)
        for number in need:
            if not reached[number]:
                return result("opens again: no open epoch is within reach",
                              graph.trace(number))
    return result()


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
