"""What a state of the protocol's model is: tests/sim/README.md 1.

All values are immutable and hashable, since the explorer keeps every state that
it has seen. Sets of shards are bit masks: bit i stands for shard i.
"""

from typing import NamedTuple, Optional, Tuple


class Content(NamedTuple):
    """What one Prepare made; stands for the bytes of a version.

    An epoch prepares one plan per round, so epoch and number name the content,
    if an epoch has one coordinator. The rules compare epochs. The life is what
    the invariants look at in addition, to see that this is enough.
    """
    epoch: int
    number: int  # of the version that it leads to
    life: int  # of the coordinator


class Version(NamedTuple):
    """All contents that led to a version, oldest first.

    history: the epoch of the rewind (or first start) that it descends from.
    No contents: unseeded, which is a version too, the oldest one.
    """
    history: int
    contents: Tuple[Content, ...]

    @property
    def number(self):
        return len(self.contents)

    @property
    def made(self):
        """The epoch that made it: of its Prepare, or of the rewind."""
        if self.contents:
            return max(self.history, self.contents[-1].epoch)
        return self.history

    @property
    def key(self):
        """All that the rules know of a version; a higher key is newer."""
        return (self.made, self.number)

    def stepped(self, content):
        return Version(self.history, self.contents + (content,))

    def begins(self, other):
        """Whether `other` is this version or goes on from it."""
        return (self.history == other.history and
                other.contents[:self.number] == self.contents)


class Copy(NamedTuple):
    """A part in the memory of one process; None where it is void."""
    version: Version
    # The combined gradient beside it. At the buddy: what the home has sent.
    combined: Optional[Content] = None


class Fact(NamedTuple):
    """One change between two rounds: protocol_facts.py."""
    epoch: int
    call: int  # of whom; the rules do not look at it


class Process(NamedTuple):
    """One life of a shard: all of its memory that the rules look at."""
    promise: int = 0  # the highest epoch it agreed to, 0: none
    master: int = 0  # the life of the coordinator that it promised that to
    member: int = 0  # the last epoch whose Recover it carried out
    home: Optional[Copy] = None  # the copy of its own part
    replica: Optional[Copy] = None  # the copy of the part before it
    plan: Optional[Content] = None  # its own Prepare that came last
    facts: Tuple[Fact, ...] = ()  # oldest first

    def prepared_home(self):
        return self.home.combined if self.home else None

    def prepared_replica(self):
        """What the replica is prepared by: it takes the frames and the plan."""
        if self.replica and self.replica.combined == self.plan:
            return self.plan
        return None

    def step_replica(self):
        """After the replica's step, if its time has come (else no change)."""
        content = self.prepared_replica()
        if (content is None or self.home is None or
                self.home.version.number != content.number or
                self.replica.version.number != content.number - 1):
            return self
        return self._replace(
            replica=Copy(self.replica.version.stepped(content)))


class Decision(NamedTuple):
    """What a recovery does, as decide() in protocol_recovery.py finds it."""
    base: Version  # what copies must hold, or step to, so as not to be void
    forward: Optional[Content]  # then all step by this
    rewind: bool  # all homes load `base` instead, all replicas are void
    load: int  # mask: homes that load `base` from a checkpoint of just that
    floor: int  # copies of processes with a lower member epoch are void

    @property
    def target(self):
        return self.base.stepped(self.forward) if self.forward else self.base


# Stages of a coordinator.
ATTACH, STEP, FETCH, OPENING, OPEN, PREPARE, PUBLISH, FACTS = (
    "attach", "step", "fetch", "opening", "open", "prepare", "publish", "facts")


class Coordinator(NamedTuple):
    """One life of the coordinator, in the memory of a process 0."""
    life: int
    epoch: int
    stage: str
    number: int = 0  # of the version that is open
    done: int = 0  # mask: who has answered this stage's call
    full: int = 0  # mask: whose buddy has all frames (PREPARE), or who has both
    # copies (STEP)
    inventory: Tuple[Optional[Process], ...] = ()  # ATTACH: the answers
    decision: Optional[Decision] = None  # STEP to OPENING
    facts: Tuple[Fact, ...] = ()  # that hold in this epoch

    def enter(self, stage, **fields):
        fields.setdefault("facts", self.facts)
        return Coordinator(self.life, self.epoch, stage, **fields)


class Frozen(NamedTuple):
    """A process that stood still, was replaced by an empty one, and lives."""
    shard: int
    process: Process
    coordinator: Optional[Coordinator]


class State(NamedTuple):
    """The job at one instant, what it may still suffer, and the bookkeeping."""
    # The job.
    processes: Tuple[Process, ...]  # who answers at each shard's address
    coordinator: Optional[Coordinator]  # of process 0, None: not started yet
    frozen: Optional[Frozen] = None
    checkpoint: Optional[Version] = None  # the newest sealed one
    torn: bool = False  # it cannot be loaded: a part is gone, or a disk is
    # Faults and epochs so far, up to the bounds.
    crashes: int = 0
    freezes: int = 0
    epochs: int = 1
    checkpoints: int = 0
    tears: int = 0
    # For the invariants, and for nothing that a rule does.
    lives: int = 1  # coordinators so far
    clock: int = 1  # the highest epoch so far
    lost: int = 0  # mask: memory lost or replaced since the last full opening
    published: Optional[Version] = None  # the longest that could be pulled
    # Contents of older epochs are of a past that was lost with neighbours.
    abandoned: int = 0
    leaders: Tuple[Tuple[int, int], ...] = ((1, 1),)  # (epoch, life) attached
    facts: int = 0  # calls that changed one
    told: Tuple[Fact, ...] = ()  # the facts that somebody was told of


class Bounds(NamedTuple):
    """How much of the protocol a run explores."""
    shards: int
    versions: int = 1
    crashes: int = 1
    freezes: int = 0
    epochs: int = 3  # the first one included
    checkpoints: int = 0
    facts: int = 0  # changed between rounds
    unseeded: bool = False  # begins with empty processes and no coordinator
    tears: int = 0  # of the checkpoint, which a person puts back


def initial_state(bounds):
    if bounds.unseeded:
        everybody = (1 << bounds.shards) - 1
        return State((Process(),) * bounds.shards, None, epochs=0, lives=0,
                     clock=0, lost=everybody, leaders=())
    copy = Copy(Version(1, ()))
    process = Process(1, 1, 1, copy, copy)
    return State((process,) * bounds.shards, Coordinator(1, 1, OPEN),
                 published=copy.version)
