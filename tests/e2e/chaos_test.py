"""Jobs of real processes end with the same bytes, whatever their shards suffer.

A few seconds each; chaos.py does the same for as long as one likes.
"""

import pathlib
import unittest

from deploy import quickstart_chaos
from tests.e2e import chaos


class ChaosTest(unittest.TestCase):

    def run_chaos(self, flags, seed):
        """Two runs of a job, the second with events."""
        said = []
        options = chaos.make_parser().parse_args(
            [f"--bin={pathlib.Path.cwd()}", *flags.split()])
        undisturbed = chaos.run(
            options, [], quickstart_chaos.make_random("undisturbed"),
            said.append)
        self.assertEqual(len(set(undisturbed.digests)), 1)
        faults = chaos.compare(options, seed, undisturbed, said.append)
        self.assertEqual(faults, [], "\n".join(said))

    def test_frozen_shards_change_nothing(self):
        self.run_chaos("--replication=none --actions=freeze --events=2 "
                       "--rounds=50", seed=1)

    def test_cut_connections_change_nothing(self):
        self.run_chaos("--replication=none --actions=cut --events=3 "
                       "--rounds=50", seed=1)

    def test_killed_shards_with_second_copies_change_nothing(self):
        self.run_chaos(
            "--replication=buddy --actions=kill,coordinator,pair,recovery "
            "--events=6 --rounds=100 --rule=adacons", seed=1)

    def test_kills_at_the_start_and_in_the_last_moments_change_nothing(self):
        self.run_chaos("--replication=buddy --actions=kill --edges --events=1 "
                       "--rounds=40", seed=1)

    def test_stopped_shards_are_handed_over(self):
        # No checkpoint falls due: each is taken for the shard that stops.
        self.run_chaos("--replication=none --checkpoint_every_rounds=100000 "
                       "--shards=2 --actions=roll --events=2 --rounds=80",
                       seed=1)

    def test_a_rolling_restart_changes_nothing(self):
        self.run_chaos("--replication=buddy --actions=roll --events=1 "
                       "--rounds=40", seed=1)

    def test_an_evicted_session_never_counts_again(self):
        self.run_chaos("--replication=buddy --actions=evict --events=3 "
                       "--rounds=120 --shards=2", seed=1)

    def test_two_shards_are_copies_of_each_other(self):
        self.run_chaos("--replication=buddy --actions=kill --events=2 "
                       "--rounds=40 --shards=2", seed=1)

    def test_a_torn_checkpoint_folder_is_waited_for(self):
        for replication in ("none", "buddy"):
            self.run_chaos(f"--replication={replication} --actions=torn "
                           "--events=2 --rounds=120 --shards=2 "
                           "--checkpoint_every_rounds=5", seed=1)

    def test_without_second_copies_a_job_goes_on_from_its_checkpoint(self):
        self.run_chaos("--replication=none --actions=kill,coordinator,all "
                       "--events=3 --rounds=60 --checkpoint_every_rounds=5",
                       seed=1)

    def test_a_pipelined_job_goes_on_from_its_checkpoint(self):
        # Over TCP, as connections are cut: else rows are in shared memory.
        self.run_chaos("--replication=none --publish=pipelined --wide "
                       "--actions=kill,coordinator,cut --events=4 --shards=2 "
                       "--rounds=40 --checkpoint_every_rounds=5", seed=1)

    def test_so_does_one_that_lost_both_copies_or_its_workers(self):
        self.run_chaos("--replication=buddy --actions=all,everything "
                       "--events=2 --rounds=60 --checkpoint_every_rounds=5",
                       seed=1)

    def test_readers_that_stop_to_read_change_nothing(self):
        self.run_chaos("--replication=buddy --shards=2 --wide "
                       "--actions=freeze_workers,frozen_observers,kill "
                       "--events=6 --rounds=60", seed=1)

    def test_a_change_of_the_result_is_found(self):
        options = chaos.make_parser().parse_args(["--bin=."])
        same = chaos.Result(["a", "a"], 0, 0, [], [7])
        self.assertEqual(chaos.faults(options, same, same), [])
        for other in (same._replace(digests=["a", "b"]),
                      same._replace(digests=["b", "b"]),
                      same._replace(left_out=1), same._replace(rewinds=1),
                      same._replace(histories=[7, 8])):
            self.assertEqual(len(chaos.faults(options, same, other)), 1, other)


if __name__ == "__main__":
    unittest.main()
