"""The resolution after a loss: what all copies become. tests/sim/README.md 2.2

A pure function of the inventories of all processes and of the newest complete
checkpoint, and the action that each process does by it.
"""

from tests.sim.protocol_state import Copy, Decision, Version

# Rules that a run may leave out, to see what they are needed for.
EARLY_ACK = "early-ack"  # Prepare is acknowledged before the buddy has it
FORWARD_ONE = "forward-one"  # forward with one prepared copy of each part
NEVER_FORWARD = "never-forward"  # back, unless one was seen to have stepped
NO_MADE = "no-made"  # nobody looks at which epoch prepared or made something
NO_MEMBER = "no-member"  # copies of processes that missed epochs count
EQUAL_NUMBERS = "equal-numbers"  # an epoch's number follows from promises alone
TWO_LIVES = "two-lives"  # a promise is to a number, not to a life
ADDRESS_ONCE = "address-once"  # nobody asks its own address after the promises
NO_STANDBY = "no-standby"  # a second process 0 takes over from a living one
OPEN_UNFILLED = "open-unfilled"  # a round opens before void copies are filled
FACTS_BY_NUMBER = "facts-by-number"  # the longest list of facts holds
FACTS_LAST = "facts-last"  # facts come when all copies are filled
TORN_IS_NONE = "torn-is-none"  # what cannot be loaded counts as not there
RULES = (EARLY_ACK, FORWARD_ONE, NEVER_FORWARD, NO_MADE, NO_MEMBER,
         EQUAL_NUMBERS, TWO_LIVES, ADDRESS_ONCE, NO_STANDBY, OPEN_UNFILLED,
         FACTS_BY_NUMBER, FACTS_LAST, TORN_IS_NONE)


def _floor(inventory):
    """The highest epoch that made or prepared anything, in part or wholly."""
    epochs = [0]
    for process in inventory:
        for copy in (process.home, process.replica):
            if copy:
                epochs.append(copy.version.made)
                if copy.combined:
                    epochs.append(copy.combined.epoch)
    return max(epochs)


def _copies(inventory, floor):
    """[(part, version, prepared by)] of all copies that are not void."""
    copies = []
    for shard, process in enumerate(inventory):
        if process.member < floor:
            continue
        if process.home:
            copies.append((shard, process.home.version,
                           process.prepared_home()))
        if process.replica:
            copies.append(((shard - 1) % len(inventory),
                           process.replica.version,
                           process.prepared_replica()))
    return copies


def _at(base, version, prepared, broken):
    """(version, prepared) of a copy that is brought to `base`; None: void."""
    if version.key == base.key or (NO_MADE in broken and
                                   version.number == base.number):
        return version, prepared
    if version.number == base.number - 1 and prepared and (
            prepared.epoch == base.made or NO_MADE in broken):
        return version.stepped(prepared), None
    return None


def _forward(live, parts, broken):
    """The content that all copies step by, or None: back."""
    prepared = {content for _, _, content in live}
    if NEVER_FORWARD in broken:
        return None
    if FORWARD_ONE in broken:
        ready = {part for part, _, content in live if content}
        contents = prepared - {None}
        return max(contents) if ready == parts else None
    epochs = {content.epoch if content else None for content in prepared}
    if None in epochs or (len(epochs) > 1 and NO_MADE not in broken):
        return None
    return max(prepared)


def decide(inventory, epoch, checkpoint, broken=frozenset(), usable=True):
    """What epoch `epoch` does with the copies that its inventories name.

    None: it waits, since it needs a checkpoint that it cannot have.

    Args:
      inventory: a Process of each shard, as it was when it promised.
      epoch: the new epoch, which becomes the history if it rewinds.
      checkpoint: the newest sealed one, or None.
      broken: names of rules that are left out.
      usable: whether the checkpoint can be loaded and, without one, whether
        all folders could be listed.
    """
    if TORN_IS_NONE in broken and not usable:
        checkpoint, usable = None, True
    floor = _floor(inventory) if NO_MEMBER not in broken else 0
    copies = _copies(inventory, floor)
    rewound = Decision(
        Version(epoch, checkpoint.contents if checkpoint else ()), None, True,
        0, floor)
    if not usable:
        rewound = None
    if not copies:
        return rewound
    base = max((version for _, version, _ in copies), key=lambda v: v.key)
    if checkpoint and checkpoint.key > base.key:
        return rewound  # The copies are of a past that came back.
    live = []
    for part, version, prepared in copies:
        state = _at(base, version, prepared, broken)
        if state:
            live.append((part,) + state)
    parts = set(range(len(inventory)))
    gone = parts - {part for part, _, _ in live}
    if not gone:
        return Decision(base, _forward(live, parts, broken), False, 0, floor)
    if checkpoint and checkpoint.key == base.key and usable:
        # Counts as a copy that is not prepared.
        return Decision(base, None, False, sum(1 << part for part in gone),
                        floor)
    return rewound


def _resolve(copy, prepared, decision, broken):
    """A copy after the recovery's first half; None: void."""
    state = _at(decision.base, copy.version, prepared, broken)
    if state is None:
        # Was brought here before, by this call or another way.
        return (Copy(copy.version)
                if copy.version.key == decision.target.key else None)
    version, prepared = state
    if decision.forward is None:
        return Copy(version)
    if prepared is None or (prepared.epoch != decision.forward.epoch and
                            NO_MADE not in broken):
        return None
    return Copy(version.stepped(prepared))


def recovered(process, shard, decision, broken=frozenset()):
    """`process` after Recover: its copies are at the target, or void."""
    home = replica = None
    if decision.rewind:
        home = Copy(decision.base)
    elif process.member >= decision.floor:
        if process.home:
            home = _resolve(process.home, process.prepared_home(), decision,
                            broken)
        if process.replica:
            replica = _resolve(process.replica, process.prepared_replica(),
                               decision, broken)
    if home is None and decision.load >> shard & 1:
        home = Copy(decision.base)
    return process._replace(member=process.promise, home=home,
                            replica=replica, plan=None)
