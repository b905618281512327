"""The steps of the protocol's model: what can happen next in a state.

Each step is one message carried out (or one fault), at any time that the rules
allow. tests/sim/README.md 2 has the rules, and 3 the faults and what a step
leaves out; section 4 has the invariants, of which Violation names one.
"""

from tests.sim import protocol_recovery as recovery
from tests.sim.protocol_state import (ATTACH, FACTS, FETCH, OPEN, OPENING,
                                      PREPARE, PUBLISH, STEP, Content,
                                      Coordinator, Copy, Frozen, Process)

NOW, OLD = "", "old "  # Whose coordinator: the present one, the frozen one's.


class Violation(Exception):
    """A state or step that an invariant forbids."""


def neighbours_lost(lost, shards):
    """Whether the mask has two shards that are next to each other."""
    return any(lost >> i & 1 and lost >> (i + 1) % shards & 1
               for i in range(shards))


def replaced(items, i, item):
    return items[:i] + (item,) + items[i + 1:]


class Steps:
    """The successors of states; holds no state of its own."""

    def __init__(self, bounds, broken=frozenset(), one_life=True):
        """one_life: whether two lives with one epoch are a violation."""
        self._bounds = bounds
        self._one_life = one_life
        self._broken = broken
        self._all = (1 << bounds.shards) - 1

    def successors(self, state):
        """Yields (label, is a fault, next state); raises Violation."""
        for i, process in enumerate(state.processes):
            stepped = process.step_replica()
            if stepped is not process:
                yield ("step replica at %d" % i, False,
                       self._put(state, NOW, i, stepped))
        if state.coordinator:
            yield from self._coordinate(state, NOW)
        if state.frozen and state.frozen.coordinator:
            yield from self._coordinate(state, OLD)
        yield from self._new_epochs(state)
        if state.torn:
            # Whoever waits for it waits for a person, who does this.
            yield "put back", False, state._replace(torn=False)
        for label, following in self._faults(state):
            yield label, True, following

    # Views: a frozen process 0 that goes on reaches all processes but process
    # 0 by their addresses, and in its place itself.

    @staticmethod
    def _coordinator(state, who):
        return state.coordinator if who == NOW else state.frozen.coordinator

    @staticmethod
    def _process(state, who, i):
        if who == OLD and i == 0:
            return state.frozen.process
        return state.processes[i]

    def _view(self, state, who):
        return [self._process(state, who, i)
                for i in range(self._bounds.shards)]

    @staticmethod
    def _lead(state, who, coordinator):
        if who == NOW:
            return state._replace(coordinator=coordinator)
        return state._replace(
            frozen=state.frozen._replace(coordinator=coordinator))

    @staticmethod
    def _put(state, who, i, process):
        if who == OLD and i == 0:
            return state._replace(frozen=state.frozen._replace(process=process))
        return state._replace(
            processes=replaced(state.processes, i, process))

    def _obeys(self, coordinator, process):
        return process.promise == coordinator.epoch and (
            process.master == coordinator.life or
            recovery.TWO_LIVES in self._broken)

    def _all_obey(self, state, who):
        c = self._coordinator(state, who)
        return all(self._obeys(c, process)
                   for process in self._view(state, who))

    def _answered(self, state, who, i, process, **fields):
        """After shard i has carried out a call and the coordinator knows."""
        c = self._coordinator(state, who)
        fields.setdefault("done", c.done | 1 << i)
        return self._lead(self._put(state, who, i, process), who,
                          c._replace(**fields))

    def _missing(self, state, who):
        """(shard, process) of those that obey and have not answered yet."""
        c = self._coordinator(state, who)
        for i in range(self._bounds.shards):
            process = self._process(state, who, i)
            if not c.done >> i & 1 and self._obeys(c, process):
                yield i, process

    # Coordinators.

    def _coordinate(self, state, who):
        stage = self._coordinator(state, who).stage
        steps = getattr(self, "_" + stage)
        for label, following in steps(state, who):
            yield who + label, False, following

    def _open(self, state, who):
        c = self._coordinator(state, who)
        if c.number < self._bounds.versions:
            yield "round begins", self._lead(
                state, who, c.enter(PREPARE, number=c.number))
        if state.checkpoints < self._bounds.checkpoints:
            home = self._process(state, who, 0).home
            version = home and home.version
            if (self._all_obey(state, who) and
                    (state.checkpoint is None or
                     version.key > state.checkpoint.key)):
                yield "checkpoint", state._replace(
                    checkpoint=version, checkpoints=state.checkpoints + 1,
                    torn=False)

    def _prepare(self, state, who):
        c = self._coordinator(state, who)
        content = Content(c.epoch, c.number + 1, c.life)
        for i, process in self._missing(state, who):
            process = process.step_replica()
            if not process.home or process.home.version.number != c.number:
                raise Violation("order: Prepare of %d finds %s" %
                                (c.number + 1, process.home))
            yield "prepare at %d" % i, self._answered(
                state, who, i, process._replace(
                    home=process.home._replace(combined=content),
                    plan=content))
        yield from self._frames(state, who, content)
        if c.done == c.full == self._all:
            yield "all have prepared", self._lead(
                state, who, c.enter(PUBLISH, number=c.number))

    def _frames(self, state, who, content):
        """The combined gradients go to the buddies."""
        c = self._coordinator(state, who)
        for i in range(self._bounds.shards):
            if not c.done >> i & 1 or c.full >> i & 1:
                continue
            if recovery.EARLY_ACK in self._broken:
                yield "early answer of %d" % i, self._lead(
                    state, who, c._replace(full=c.full | 1 << i))
            if not self._obeys(c, self._process(state, who, i)):
                continue
            buddy = (i + 1) % self._bounds.shards
            process = self._process(state, who, buddy)
            if not self._obeys(c, process):
                continue
            process = process.step_replica()
            if (not process.replica or
                    process.replica.version.number != c.number):
                raise Violation("order: frames of %d find %s" %
                                (c.number + 1, process.replica))
            yield "frames %d to %d" % (i, buddy), self._answered(
                state, who, buddy, process._replace(
                    replica=process.replica._replace(combined=content)),
                done=c.done, full=c.full | 1 << i)

    def _publish(self, state, who):
        c = self._coordinator(state, who)
        content = Content(c.epoch, c.number + 1, c.life)
        for i, process in self._missing(state, who):
            if process.prepared_home() != content:
                raise Violation("order: Publish of %d finds %s" %
                                (c.number + 1, process.home))
            version = process.home.version.stepped(content)
            following = self._answered(state, who, i,
                                       process._replace(home=Copy(version)))
            yield "publish at %d" % i, self._pullable(following, c, version)
        if c.done == self._all:
            yield "outcomes told", self._lead(
                state, who, c.enter(OPEN, number=c.number + 1))

    def _pullable(self, state, coordinator, version):
        """Workers can pull `version` from now on: is it the only one?"""
        known = state.published
        if coordinator.epoch < state.abandoned or known is None:
            return (state if known is not None else
                    state._replace(published=version))
        if version.begins(known):
            return state
        if not known.begins(version):
            raise Violation("one content: %s is published beside %s" %
                            (version, known))
        return state._replace(published=version)

    def _attach(self, state, who):
        c = self._coordinator(state, who)
        for i in range(self._bounds.shards):
            process = self._process(state, who, i)
            free = process.promise < c.epoch or (
                recovery.TWO_LIVES in self._broken and
                process.promise == c.epoch)
            if not c.done >> i & 1 and free:
                process = process._replace(promise=c.epoch, master=c.life)
                yield "attach %d" % i, self._answered(
                    state, who, i, process,
                    inventory=replaced(c.inventory, i, process))
        if c.done != self._all:
            return
        if who == OLD and recovery.ADDRESS_ONCE not in self._broken:
            # Another life answers at its own address, which it asks again now.
            yield "superseded", state._replace(frozen=None)
        elif self._decision(state, who) is not None:
            yield "decide", self._decide(state, who)

    def _decision(self, state, who):
        """None: it waits."""
        c = self._coordinator(state, who)
        return recovery.decide(c.inventory, c.epoch, state.checkpoint,
                               self._broken, usable=not state.torn)

    def _decide(self, state, who):
        c = self._coordinator(state, who)
        if self._one_life and any(
                epoch == c.epoch and life != c.life
                for epoch, life in state.leaders) and not neighbours_lost(
                    state.lost, self._bounds.shards):
            raise Violation("one life: two coordinators have epoch %d" %
                            c.epoch)
        decision = self._decision(state, who)
        if (decision.rewind and state.checkpoint and
                decision.base.contents != state.checkpoint.contents):
            raise Violation("passed over: goes back to %s, saved %s" %
                            (decision.base, state.checkpoint))
        # One that decides late, in an epoch that is over, harms nobody.
        current = self._all_obey(state, who)
        if ((decision.rewind or decision.load) and current and
                not neighbours_lost(state.lost, self._bounds.shards)):
            raise Violation("no loss: a part has no copy left, lost: %s" %
                            bin(state.lost))
        state = state._replace(leaders=state.leaders + ((c.epoch, c.life),))
        return self._lead(state, who, c.enter(STEP, decision=decision))

    def _step(self, state, who):
        c = self._coordinator(state, who)
        for i, process in self._missing(state, who):
            after = recovery.recovered(process, i, c.decision, self._broken)
            full = (self._filled(after) or
                    recovery.OPEN_UNFILLED in self._broken)
            yield "recover %d" % i, self._answered(
                state, who, i, after, full=c.full | full << i)
        if c.done == self._all:
            yield "all are at one version", self._lead(
                state, who, c.enter(FETCH, decision=c.decision, done=c.full))

    @staticmethod
    def _filled(process):
        return process.home is not None and process.replica is not None

    def _fetch(self, state, who):
        c = self._coordinator(state, who)
        for i, process in self._missing(state, who):
            for name, source, sources in (
                    ("home", (i + 1) % self._bounds.shards, "replica"),
                    ("replica", (i - 1) % self._bounds.shards, "home")):
                other = self._process(state, who, source)
                copy = getattr(other, sources)
                if getattr(process, name) or not copy or not self._obeys(
                        c, other):
                    continue
                after = process._replace(**{name: Copy(copy.version)})
                done = c.done | (1 << i if self._filled(after) else 0)
                yield "fetch %s at %d" % (name, i), self._answered(
                    state, who, i, after, done=done)
        if c.done == self._all:
            following = self._filled_up(state, who)
            if following:
                yield "all are filled", following

    def _filled_up(self, state, who):
        """The last barrier of a recovery; here it must have kept the past."""
        c = self._coordinator(state, who)
        target, known = c.decision.target, state.published
        processes = self._view(state, who)
        alone = neighbours_lost(state.lost, self._bounds.shards)
        if self._all_obey(state, who):
            if recovery.OPEN_UNFILLED not in self._broken and any(
                    copy != Copy(target) for process in processes
                    for copy in (process.home, process.replica)):
                raise Violation("both copies: %s opens with %s" %
                                (target, processes))
            if alone:
                # Nothing was promised for this loss; from here on it is.
                state = state._replace(published=target, abandoned=c.epoch)
            elif known is not None and not known.begins(target):
                raise Violation("not taken back: opens at %s, published %s" %
                                (target, known))
        elif alone:
            return None  # This epoch is over, and so is what it would show.
        if c.epoch == max(epoch for epoch, _ in state.leaders):
            # Who obeys has answered, and has kept both copies since. In an
            # epoch that is over they may be of the past.
            state = state._replace(lost=state.lost & sum(
                1 << i for i, process in enumerate(state.processes)
                if not self._obeys(c, process)))
        return self._lead(state, who, c.enter(OPENING, decision=c.decision))

    def _opening(self, state, who):
        c = self._coordinator(state, who)
        for i, process in self._missing(state, who):
            following = self._answered(state, who, i, process)
            if process.home:
                following = self._pullable(following, c, process.home.version)
            yield "open %d" % i, following
        if c.done == self._all:
            yield "all are open", self._lead(
                state, who, c.enter(OPEN, number=c.decision.target.number))

    # Epochs.

    def _new_epochs(self, state):
        if state.epochs == self._bounds.epochs:
            return
        c = state.coordinator
        if c is None:
            yield "new coordinator", False, self._begin(state, state.lives + 1)
        elif self._has_lost(state, c):
            yield "shard lost", False, self._begin(state, c.life)
        elif c.stage in (PREPARE, PUBLISH, FACTS):
            # A call failed or its answer was lost.
            yield "gives up", True, self._begin(state, c.life)

    def _has_lost(self, state, c):
        for i, process in enumerate(state.processes):
            if c.stage != ATTACH or c.done >> i & 1:
                if not self._obeys(c, process):
                    return True
            elif process.promise >= c.epoch and not self._obeys(c, process):
                return True  # Refuses: another one has its promise.
        return False

    def _begin(self, state, life):
        """Chooses the epoch's number by what all processes have promised."""
        own = state.coordinator.epoch if state.coordinator else 0
        known = max([own] + [p.promise for p in state.processes])
        # The wall clock, or random low bits, make it new. They are all that
        # does where everybody has forgotten.
        if recovery.EQUAL_NUMBERS not in self._broken or known == 0:
            known = max(known, state.clock)
        epoch = known + 1
        return state._replace(
            coordinator=Coordinator(
                life, epoch, ATTACH,
                inventory=(None,) * self._bounds.shards),
            epochs=state.epochs + 1, lives=max(state.lives, life),
            clock=max(state.clock, epoch))

    # Faults.

    def _faults(self, state):
        frozen = state.frozen
        for i, process in enumerate(state.processes):
            without = state._replace(
                processes=replaced(state.processes, i, Process()),
                coordinator=state.coordinator if i else None,
                lost=state.lost | 1 << i)
            if process == Process() and (i or state.coordinator is None):
                continue  # There is nothing to lose.
            if state.crashes < self._bounds.crashes:
                yield "kill %d" % i, without._replace(
                    crashes=state.crashes + 1)
            if state.freezes < self._bounds.freezes and frozen is None:
                following = without._replace(
                    freezes=state.freezes + 1,
                    frozen=Frozen(i, process,
                                  state.coordinator if i == 0 else None))
                if recovery.NO_STANDBY in self._broken and i == 0:
                    # Nobody was lost: a second process 0 was started.
                    following = following._replace(lost=state.lost)
                yield "freeze and replace %d" % i, following
        if (state.checkpoint and not state.torn and
                state.tears < self._bounds.tears):
            yield "tear the checkpoint", state._replace(
                torn=True, tears=state.tears + 1)
        if frozen:
            i = frozen.shard
            yield "thaw %d under its name" % i, state._replace(
                processes=replaced(state.processes, i, frozen.process),
                coordinator=(state.coordinator if i else frozen.coordinator),
                frozen=None, lost=state.lost | 1 << i)
