"""Tests of the protocol's model: the rules hold, and each one is needed.

Small bounds, some 200,000 states in all. tests/sim/README.md 5 has the larger
runs, which are commands.
"""

import contextlib
import io
import unittest

from tests.sim import protocol_model
from tests.sim import protocol_recovery as recovery
from tests.sim.protocol_model import explore
from tests.sim.protocol_recovery import decide
from tests.sim.protocol_state import (Bounds, Content, Copy, Process, Version,
                                      initial_state)
from tests.sim.protocol_steps import Steps, neighbours_lost

_TWO = Bounds(shards=2)
_KILL = Bounds(shards=2, crashes=1)
_FREEZE = Bounds(shards=2, crashes=0, freezes=1)
_FREEZE_AND_KILL = Bounds(shards=2, crashes=1, freezes=1)
_FACTS = Bounds(shards=2, versions=0, crashes=0, freezes=1, facts=2)

_V0 = Version(1, ())
_NEXT = Content(epoch=1, number=1, life=1)
_V1 = _V0.stepped(_NEXT)


def shard(home, replica, prepared=None, member=1):
    """A process with copies of two versions (None: void)."""
    def copy(version):
        return Copy(version, prepared) if version else None
    return Process(member, 1, member, copy(home), copy(replica), prepared)


class DecideTest(unittest.TestCase):
    """The resolution: two shards, of which each has both parts."""

    def decided(self, *inventory, checkpoint=None):
        return decide(inventory, 5, checkpoint)

    def test_forward_if_all_copies_are_prepared_by_one_epoch(self):
        ready, idle = shard(_V0, _V0, _NEXT), shard(_V0, _V0)
        self.assertEqual(self.decided(ready, ready).target, _V1)
        self.assertEqual(self.decided(ready, Process()).target, _V1)
        self.assertEqual(self.decided(idle, ready).target, _V0)
        self.assertEqual(self.decided(idle, Process()).target, _V0)

    def test_a_copy_that_is_one_behind_steps_by_what_made_the_newest(self):
        behind = shard(_V0, _V0, _NEXT)
        decision = self.decided(shard(_V1, None), behind)
        self.assertEqual(decision.target, _V1)
        self.assertFalse(decision.rewind)
        after = recovery.recovered(behind, 1, decision)
        self.assertEqual((after.home, after.replica), (Copy(_V1), Copy(_V1)))

    def test_copies_of_a_process_that_missed_an_epoch_are_void(self):
        later = Version(1, (Content(2, 1, 2),))
        thawed = shard(_V1, _V1, member=1)
        decision = self.decided(thawed, shard(later, later, member=2))
        self.assertEqual((decision.target, decision.floor), (later, 2))
        after = recovery.recovered(thawed, 0, decision)
        self.assertEqual((after.home, after.replica), (None, None))

    def test_rewinds_where_a_part_has_no_copy(self):
        for checkpoint, contents in ((None, ()), (_V1, _V1.contents)):
            decision = self.decided(shard(_V0, None), Process(),
                                    checkpoint=checkpoint)
            self.assertTrue(decision.rewind)
            self.assertEqual(decision.target, Version(5, contents))

    def test_a_checkpoint_of_just_this_version_is_a_copy_not_prepared(self):
        decision = self.decided(shard(_V0, None, _NEXT), Process(),
                                checkpoint=_V0)
        self.assertEqual((decision.target, decision.rewind, decision.load),
                         (_V0, False, 2))

    def test_waits_for_a_checkpoint_that_it_needs_and_cannot_have(self):
        whole, gone = shard(_V0, _V0), shard(_V0, None, _NEXT)
        for checkpoint in (None, _V0, _V1):
            # Without one: a folder that cannot be listed.
            self.assertIsNone(decide((gone, Process()), 5, checkpoint,
                                     usable=False))
            self.assertIsNone(decide((Process(), Process()), 5, checkpoint,
                                     usable=False))
        self.assertEqual(decide((whole, Process()), 5, _V0,
                                usable=False).target, _V0)
        # It is newer than all copies, so that these are of the past.
        self.assertIsNone(decide((whole, whole), 5, _V1, usable=False))

    def test_a_newer_checkpoint_proves_copies_from_the_past(self):
        decision = self.decided(shard(_V0, _V0), shard(_V0, _V0),
                                checkpoint=_V1)
        self.assertTrue(decision.rewind)


class ModelTest(unittest.TestCase):

    def assert_holds(self, bounds, broken=()):
        result = explore(bounds, broken)
        self.assertIsNone(result.violation, "\n".join(result.trace))
        self.assertGreater(result.finished, 0)
        print("%s %s: %d states" % (bounds, broken, result.states))
        return result

    def assert_refuted(self, broken, invariant, bounds, one_life=True):
        """Prints the shortest trace, which the log of the test keeps."""
        result = explore(bounds, broken, one_life=one_life)
        print("\nWithout %s, %s" % (broken, "\n".join(
            protocol_model.describe(result))))
        self.assertIsNotNone(result.violation, "%s: no violation" % (broken,))
        self.assertEqual(result.violation.split(":")[0], invariant)
        self.assertGreater(len(result.trace), 0)

    def test_the_rules_hold(self):
        self.assert_holds(_KILL._replace(versions=2))
        self.assert_holds(_KILL._replace(crashes=2))
        self.assert_holds(_FREEZE)
        self.assert_holds(Bounds(shards=3, crashes=1, epochs=2))
        self.assert_holds(Bounds(shards=4, crashes=1, epochs=2))

    def test_the_rules_hold_from_an_empty_beginning(self):
        self.assert_holds(_TWO._replace(unseeded=True))

    def test_the_rules_hold_with_checkpoints_in_every_kind_of_recovery(self):
        kinds = set()

        class Recorder(Steps):
            def _decide(self, state, who):
                following = super()._decide(state, who)
                kinds.add(kind(self._coordinator(following, who).decision))
                return following

        def kind(decision):
            if decision.rewind:
                return "rewind to %d" % decision.target.number
            return ("load" if decision.load else
                    "forward" if decision.forward else "back")

        for bounds in (Bounds(shards=2, crashes=2, checkpoints=1),
                       Bounds(shards=3, crashes=2, checkpoints=1, epochs=2)):
            result = explore(bounds, steps=Recorder)
            self.assertIsNone(result.violation, "\n".join(result.trace))
        self.assertEqual(kinds, {"rewind to 0", "rewind to 1", "load",
                                 "forward", "back"})

    def test_a_checkpoint_that_is_torn_and_put_back(self):
        torn = Bounds(shards=2, crashes=2, checkpoints=1, tears=1)
        self.assert_holds(torn)
        self.assert_refuted([recovery.TORN_IS_NONE], "passed over", torn)

    def test_the_rules_hold_for_facts(self):
        self.assert_holds(Bounds(shards=2, crashes=2, facts=1))
        self.assert_holds(_FACTS)

    def test_facts_that_are_compared_by_number(self):
        self.assert_refuted([recovery.FACTS_BY_NUMBER], "facts", _FACTS)

    def test_facts_that_come_after_the_copies(self):
        self.assert_refuted([recovery.FACTS_LAST], "facts",
                            Bounds(shards=2, versions=0, crashes=2, facts=1))

    def test_publish_before_the_buddy_has_it(self):
        self.assert_refuted([recovery.EARLY_ACK], "no loss", _KILL)

    def test_forward_with_one_prepared_copy_of_each_part(self):
        self.assert_refuted([recovery.FORWARD_ONE], "no loss", _KILL)

    def test_never_forward_before_a_step_was_seen(self):
        self.assert_refuted([recovery.NEVER_FORWARD], "not taken back", _KILL)

    def test_no_check_of_who_missed_epochs(self):
        self.assert_refuted([recovery.NO_MEMBER], "not taken back", _FREEZE)

    def test_opening_before_all_copies_are_filled(self):
        self.assert_refuted([recovery.OPEN_UNFILLED], "order", _KILL)

    def test_a_second_process_0_that_does_not_stand_by(self):
        self.assert_refuted([recovery.NO_STANDBY], "no loss", _FREEZE_AND_KILL)

    def test_own_address_is_asked_before_the_promises_only(self):
        self.assert_refuted([recovery.ADDRESS_ONCE], "not taken back",
                            _FREEZE_AND_KILL)

    def test_one_number_for_two_lives(self):
        """Either lock alone keeps the data; with neither they are taken back.

        The locks: numbers that are new, and promises that are to a life.
        """
        self.assert_refuted([recovery.EQUAL_NUMBERS], "one life",
                            _FREEZE_AND_KILL)
        both = [recovery.EQUAL_NUMBERS, recovery.TWO_LIVES]
        self.assert_refuted(both, "one life", _FREEZE)
        self.assert_refuted(both, "not taken back", _FREEZE, one_life=False)
        self.assert_holds(_FREEZE, [recovery.TWO_LIVES])
        self.assert_holds(_FREEZE, [recovery.EQUAL_NUMBERS])

    def test_no_check_of_what_made_a_copy_changes_nothing(self):
        """Not needed: a second lock behind the one of member epochs.

        An epoch prepares only after all have carried out its Recover, which
        drops what others had prepared. Who missed that has a lower member
        epoch than what is prepared then, so its copies are void. Hence what
        is left was prepared by one epoch, and the exploration is the same one,
        state by state. A larger run is in tests/sim/README.md 5.
        """
        for bounds in (_FREEZE, _KILL._replace(crashes=2)):
            self.assertEqual(explore(bounds, [recovery.NO_MADE]),
                             explore(bounds))


class ExplorerTest(unittest.TestCase):

    def test_finds_states_that_never_open_again(self):
        """With nobody to begin a new epoch, a kill would be the end."""
        class Stuck(Steps):
            def _new_epochs(self, state):
                return iter(())
        result = explore(_KILL, steps=Stuck)
        self.assertEqual(result.violation.split(":")[0], "opens again")
        self.assertEqual(result.trace, ("kill 0",))

    def test_neighbours(self):
        self.assertTrue(neighbours_lost(0b1001, 4))
        self.assertFalse(neighbours_lost(0b0101, 4))
        self.assertTrue(neighbours_lost(0b11, 2))
        self.assertFalse(neighbours_lost(0b10, 2))

    def test_the_beginning(self):
        self.assertEqual(len(set(initial_state(_TWO).processes)), 1)
        self.assertEqual(initial_state(_TWO._replace(unseeded=True)).processes,
                         (Process(), Process()))


class CommandLineTest(unittest.TestCase):

    def run_it(self, *arguments):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            status = protocol_model.main(arguments)
        return status, output.getvalue()

    def test_says_what_it_found(self):
        status, output = self.run_it("--crashes=0")
        self.assertEqual(status, 0)
        self.assertIn("no violation\n", output)
        status, output = self.run_it("--broken=early-ack")
        self.assertEqual(status, 1)
        self.assertIn("VIOLATION of no loss", output)
        self.assertIn("   1  round begins\n", output)

    def test_refuses_one_shard(self):
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            with self.assertRaises(SystemExit):
                protocol_model.main(["--shards=1"])
        self.assertIn("shards is 1; allowed: 2 or more", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
