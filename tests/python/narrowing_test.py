"""What narrow types lose on the wire, and rows that are the same, are in the
outcome's message."""

import unittest

import numpy as np

from tests.python.job_case import JobCase, agg


class NarrowingTest(JobCase):

    def test_a_sum_that_does_not_fit_pull_dtype(self):
        for replicated in (1, 2):
            server = self.serve(workers=2, rule="sum", optimizer="none",
                                shards=replicated,
                                config={"pull_dtype": "f16"})

            def work(rank, server=server):
                w, v = np.zeros(4, np.float32), np.zeros(3, np.float32)
                with agg.Client({"v": v, "w": w}, server.address, rank
                                ) as client:
                    small = {"v": np.ones(3), "w": np.ones(4)}
                    quiet = client.step(small)
                    large = dict(small, w=np.array(
                        [160_000.0, 1.0, 1.0, -40_000.0]))
                    outcome = client.step(large)
                    found = w.copy()
                    after = client.step(dict(small, v=np.ones(3) + rank))
                    return quiet, outcome, found, after

            for quiet, outcome, found, after in self.team(2, work):
                self.assertEqual(quiet.message, "")
                self.assertEqual(found.tolist(),
                                 [np.inf, 2.0, 2.0, -np.inf])
                self.assertTrue(outcome.applied)
                self.assertRegex(
                    outcome.message, r'^2 values .* infinite .*tensor "w".*'
                    'allowed: pull_dtype "f32"')
                self.assertEqual(after.message, "")

    def test_gradients_that_vanish_in_pull_dtype(self):
        w = np.zeros(3, np.float32)
        client = self.lone_client({"w": w}, rule="sum", optimizer="none",
                                  config={"pull_dtype": "f16"})
        outcome = client.step({"w": np.array([1e-9, 1.0, 0.0])})
        self.assertIn("1 of 2 values", outcome.message)
        self.assertEqual(w.tolist(), [0.0, 1.0, 0.0])

    def test_a_row_that_does_not_fit_push_dtype(self):
        for shared in (True, False):
            server = self.serve(workers=2, lr=1.0,
                                config={"push_dtype": "f16"})

            def work(rank, server=server, shared=shared):
                w = np.zeros(2, np.float32)
                with agg.Client({"w": w}, server.address, rank,
                                shared_memory=shared) as client:
                    return client.step(
                        {"w": np.array([1e5 if rank else 1.0, 1.0])})

            good, bad = self.team(2, work)
            self.assertEqual(good.excluded_ranks, (1,))
            self.assertNotIn("this worker's row", good.message)
            self.assertFalse(bad.included)
            self.assertRegex(
                bad.message, "this worker's row had 1 finite values that "
                'push_dtype "f16" sends as infinite.*tensor "w"')

    def test_a_seed_that_does_not_fit_is_refused(self):
        server = self.serve(workers=1, lr=1.0, config={"pull_dtype": "f16"})
        w = np.array([1.0, 70_000.0], np.float32)
        with self.assertRaisesRegex(
                agg.ManifestError,
                r'element 1 of tensor "w" is 70000.*pull_dtype "f16"'):
            agg.Client({"w": w}, server.address, 0)

    def test_a_seed_that_workers_step_themselves_comes_whole(self):
        """Of a job whose optimizer is "none" version 0 is not narrowed."""
        server = self.serve(workers=2, optimizer="none",
                            config={"pull_dtype": "f16"})

        def work(rank):
            w = np.array([1e-9, 70_001.0 if rank == 0 else 0.5], np.float32)
            with agg.Client({"w": w}, server.address, rank) as client:
                seeded = w.tolist()
                client.step({"w": np.array([1.0, 2.0])})
                return seeded, w.tolist()

        first, second = self.team(2, work)
        self.assertEqual(first, second)
        self.assertEqual(first[1], [1.0, 2.0])
        self.assertIn(first[0][1], (np.float32(70_001), 0.5))
        self.assertEqual(np.float32(first[0][0]), np.float32(1e-9))

    def test_equal_rows_are_said_once(self):
        server = self.serve(workers=3, lr=0.1)

        def work(rank):
            w = np.zeros(20, np.float32)
            messages = []
            with agg.Client({"w": w}, server.address, rank) as client:
                for i in range(6):
                    seed = 100 * i + (0 if rank == 2 else 1)
                    row = np.random.default_rng(seed).normal(size=20)
                    messages.append(client.step({"w": row}).message)
            return messages

        with self.assertLogs("agg_server", "WARNING") as logs:
            first, *others = self.team(3, work)
        for messages in others:
            self.assertEqual(messages, first)
        self.assertEqual([bool(m) for m in first],
                         [False, False, True, False, False, False])
        self.assertIn("equal, round after round: ranks 0, 1;", first[2])
        self.assertEqual(
            len([line for line in logs.output if "ranks 0, 1" in line]), 3)


if __name__ == "__main__":
    unittest.main()
