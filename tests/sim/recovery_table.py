"""Writes what the model's resolution decides, for the server's to be compared.

    python3 -m tests.sim.recovery_table OUTPUT     (from the root of the tree)

Runs the model, and writes each set of inventories that a recovery in it meets,
each with one change more (a copy void, without what it was prepared by, or one
version behind; a process that missed an epoch), with what decide() makes of it.
tests/server/coordinator/recovery_oracle_test.cc reads it. One line each:

    shards epoch checkpoint process.. -> kind target action..

    checkpoint, target   MADE.VERSION, or - for none; behind it ! if it cannot be
                         loaded, or, without one, a folder cannot be listed
    process              MEMBER_EPOCH/HOME/REPLICA
    HOME, REPLICA        MADE.VERSION, behind it +EPOCH if it is prepared, or
                         ~EPOCH if it is in part; - if it is void
    kind                 copies, load, rewind, nothing, wait
    action               what becomes of HOME/REPLICA: keep, step, load, void

The model calls the version before the seed 0, and knows copies of it; in the
server it is an ordinary version, which changes nothing in the rule. Where the
model rewinds to it for lack of a checkpoint, the server has `nothing` to go on
from.
"""

import sys

from tests.sim.protocol_model import explore
from tests.sim.protocol_recovery import decide, recovered
from tests.sim.protocol_state import Bounds, Copy, Version
from tests.sim.protocol_steps import Steps

# Small, so that this takes seconds; each kind of decision is met in some.
_RUNS = (Bounds(shards=2, versions=2, crashes=2),
         Bounds(shards=2, crashes=0, freezes=1),
         Bounds(shards=2, crashes=2, checkpoints=1),
         Bounds(shards=2, unseeded=True),
         Bounds(shards=3, crashes=2, epochs=2),
         Bounds(shards=3, crashes=2, checkpoints=1, epochs=2),
         Bounds(shards=4, crashes=1, epochs=2))


def reached(bounds):
    """{(inventories, epoch, checkpoint)} of all recoveries within `bounds`."""
    met = set()

    class Recorder(Steps):
        def _decide(self, state, who):
            c = self._coordinator(state, who)
            met.add((c.inventory, c.epoch, state.checkpoint))
            return super()._decide(state, who)

    explore(bounds, steps=Recorder, liveness=False)
    return met


def _changed(copy):
    """A copy with one change more: what it becomes, None where it is void."""
    if copy is None:
        return
    yield None
    if copy.combined:
        yield copy._replace(combined=None)
    version = copy.version
    if version.contents:
        yield Copy(Version(version.history, version.contents[:-1]),
                   version.contents[-1])
        yield Copy(Version(version.history, version.contents[:-1]))


def variants(inventory):
    """`inventory` itself, and each with one change more."""
    yield inventory
    for i, process in enumerate(inventory):
        others = [process._replace(home=copy)
                  for copy in _changed(process.home)]
        others += [process._replace(replica=copy)
                   for copy in _changed(process.replica)]
        others.append(process._replace(plan=None))
        others.append(process._replace(member=max(process.member - 1, 0)))
        for other in others:
            yield inventory[:i] + (other,) + inventory[i + 1:]


def _id(version):
    return "%d.%d" % version.key if version else "-"


def _copy_text(copy, prepared):
    if copy is None:
        return "-"
    if copy.combined is None:
        return _id(copy.version)
    return "%s%s%d" % (_id(copy.version), "+" if prepared else "~",
                       copy.combined.epoch)


def _process_text(process):
    return "%d/%s/%s" % (
        process.member, _copy_text(process.home, process.prepared_home()),
        _copy_text(process.replica, process.prepared_replica()))


def _action(before, after):
    if after is None:
        return "void"
    if before is None:
        return "load"
    return "keep" if before.version == after.version else "step"


def _outcome(inventory, decision, checkpoint):
    """The line's part behind the arrow."""
    if decision is None:
        return "wait -" + " void/void" * len(inventory)
    if decision.rewind and checkpoint is None:
        return "nothing -" + " void/void" * len(inventory)
    actions = []
    for i, process in enumerate(inventory):
        if decision.rewind:
            actions.append("load/void")
            continue
        after = recovered(process, i, decision)
        home = ("load" if decision.load >> i & 1 else
                _action(process.home, after.home))
        actions.append(home + "/" + _action(process.replica, after.replica))
    kind = ("rewind" if decision.rewind else
            "load" if decision.load else "copies")
    return " ".join([kind, _id(decision.target)] + actions)


def lines():
    """All lines, without repeats, in an order that follows from them alone."""
    found = set()
    for bounds in _RUNS:
        for inventory, epoch, checkpoint in reached(bounds):
            for variant in variants(inventory):
                for usable in (True, False):
                    decision = decide(variant, epoch, checkpoint,
                                      usable=usable)
                    found.add("%d %d %s%s %s -> %s" % (
                        len(variant), epoch, _id(checkpoint),
                        "" if usable else "!",
                        " ".join(map(_process_text, variant)),
                        _outcome(variant, decision, checkpoint)))
    return sorted(found)


def main(arguments):
    text = "\n".join(lines()) + "\n"
    with open(arguments[0], "w", encoding="ascii") as output:
        output.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
