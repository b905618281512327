"""The steps that change facts, beside those of rounds and recoveries.

Facts are what changes between two rounds: a rule override, the job's end. All
processes keep the list of them; tests/sim/README.md 2.6 has the rule.
"""

from tests.sim import protocol_recovery as recovery
from tests.sim.protocol_state import FACTS, OPEN, Fact
from tests.sim.protocol_steps import Steps, Violation, neighbours_lost


class FactSteps(Steps):
    """All steps of the model."""

    def _newest(self, inventory):
        """The facts that a recovery goes on with."""
        def key(facts):
            if recovery.FACTS_BY_NUMBER in self._broken:
                return len(facts)  # The first one wins where two are equal.
            return (facts[-1].epoch if facts else 0, len(facts))
        return max((process.facts for process in inventory), key=key)

    def _decide(self, state, who):
        inventory = self._coordinator(state, who).inventory
        following = super()._decide(state, who)
        return self._lead(following, who,
                          self._coordinator(following, who)._replace(
                              facts=self._newest(inventory)))

    def _open(self, state, who):
        yield from super()._open(state, who)
        c = self._coordinator(state, who)
        if state.facts < self._bounds.facts:
            fact = Fact(c.epoch, state.facts + 1)
            yield "a fact changes", self._lead(
                state._replace(facts=state.facts + 1), who,
                c.enter(FACTS, number=c.number, facts=c.facts + (fact,)))

    def _facts(self, state, who):
        c = self._coordinator(state, who)
        for i, process in self._missing(state, who):
            yield "facts to %d" % i, self._answered(
                state, who, i, process._replace(facts=c.facts))
        if c.done == self._all:
            following = self._lead(state, who, c.enter(OPEN, number=c.number))
            yield "fact told", self._told(following, c)

    @staticmethod
    def _told(state, c):
        """After somebody learned of the facts, which all processes have had."""
        if (c.epoch >= state.abandoned and
                c.facts[:len(state.told)] == state.told):
            return state._replace(told=c.facts)
        return state  # By one whose epoch is over.

    def _step(self, state, who):
        steps = super()._step(state, who)
        if recovery.FACTS_LAST not in self._broken:
            steps = self._giving(state, who, "recover ", steps)
        yield from steps

    def _opening(self, state, who):
        c = self._coordinator(state, who)
        steps = super()._opening(state, who)
        if recovery.FACTS_LAST in self._broken:
            steps = self._giving(state, who, "open ", steps)
        for label, following in steps:
            if label == "all are open":
                following = self._told(following, c)
            yield label, following

    def _giving(self, state, who, call, steps):
        """`steps`, of which those that are such a call bring the facts, too."""
        c = self._coordinator(state, who)
        for label, following in steps:
            if label.startswith(call):
                i = int(label[len(call):])
                process = self._process(following, who, i)
                following = self._put(following, who, i,
                                      process._replace(facts=c.facts))
            yield label, following

    def _filled_up(self, state, who):
        """Facts that were told are kept, like versions."""
        c = self._coordinator(state, who)
        following = super()._filled_up(state, who)
        if following is None or not self._all_obey(state, who):
            return following
        if neighbours_lost(state.lost, self._bounds.shards):
            return following._replace(told=())
        if c.facts[:len(state.told)] != state.told:
            raise Violation("facts: goes on with %s, told %s" %
                            (c.facts, state.told))
        return following
