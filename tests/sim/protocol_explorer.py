"""Visits all states of the protocol's model, nearest first.

The first violation that it meets has therefore a shortest trace. It also looks
at liveness: from each state that has an epoch left, an open one must be within
reach if nothing fails any more (tests/sim/README.md 4).
"""

import array
import collections
from typing import NamedTuple, Optional, Tuple

from tests.sim.protocol_facts import FactSteps
from tests.sim.protocol_state import OPEN, initial_state
from tests.sim.protocol_steps import Violation


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
