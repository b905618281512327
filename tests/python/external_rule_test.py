"""Rules of one's own (agg.serve_rule) in live jobs."""

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy as np

from tests.python.job_case import PACKAGE, ROOT, WAIT, JobCase, agg

GRADIENTS = {0: np.array([1, 0, 2], np.float32),
             1: np.array([0, 4, 0], np.float32)}


def first_row(gram, info):
    """As if the worker of the lowest rank were alone."""
    weights = np.zeros(len(gram))
    weights[np.argmin(info.ranks)] = 1
    return weights


def serve_first_row(address):
    agg.serve_rule(first_row, address)


class ExternalRuleTest(JobCase):

    def job(self, shards=1, name="external", timeout=WAIT, config=None,
            combination=None, **options):
        """Of two workers with a rate of 1, which an external rule combines."""
        return self.serve(
            workers=2, shards=shards, lr=1.0, config={
                "combination": {
                    "rule": "external",
                    "external": {"name": name, "timeout_seconds": timeout},
                    **(combination or {})}, **(config or {})}, **options)

    def begin(self, decide, server, **options):
        """serve_rule in a thread; the list gets what it raises."""
        stop, raised = threading.Event(), []

        def run():
            try:
                agg.serve_rule(decide, server.address, stop=stop, **options)
            except agg.Error as error:
                raised.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def end():
            stop.set()
            thread.join(WAIT)
            self.assertFalse(thread.is_alive(), "serve_rule hangs")

        self.addCleanup(end)
        return raised, thread, end

    def train(self, server, rounds=1, between=lambda round: None, **info):
        """(parameters, outcomes of rank 0) after rounds with GRADIENTS."""
        def run(rank):
            x = {"w": np.zeros(3, np.float32)}
            outcomes = []
            with agg.Client(x, server.address, rank) as client:
                for r in range(rounds):
                    if rank == 0:
                        between(r)
                    outcomes.append(client.step(
                        {"w": GRADIENTS[rank]}, examples=rank + 1,
                        loss=rank + 0.5, **info))
            return x["w"], outcomes
        (x, outcomes), _ = self.team(2, run)
        return x, outcomes

    def assert_fell_back(self, outcome, why):
        self.assertRegex(outcome.message,
                         f"its fallback was applied: .*{why}")
        self.assertTrue(outcome.included)

    def test_a_function_decides_each_round(self):
        for shards in (1, 2):
            with self.subTest(shards):
                server, seen = self.job(shards), []

                def decide(gram, info, seen=seen):
                    seen.append((gram, info))
                    return [1.0, -2.0]

                self.begin(decide, server)
                x, outcomes = self.train(server, 2)
                np.testing.assert_array_equal(
                    x, -2 * (GRADIENTS[0] - 2 * GRADIENTS[1]))
                self.assertEqual([o.message for o in outcomes], ["", ""])
                self.assertEqual([info.round for _, info in seen], [0, 1])
                gram, info = seen[0]
                np.testing.assert_array_equal(gram, [[5, 0], [0, 16]])
                self.assertEqual(info.ranks.tolist(), [0, 1])
                self.assertEqual(info.examples.tolist(), [1, 2])
                self.assertEqual(info.accumulation.tolist(), [1, 1])
                self.assertEqual(info.losses.tolist(), [0.5, 1.5])
                self.assertEqual((info.tensor, info.shadow, info.state),
                                 ("", False, b""))

    def test_it_may_scale_the_step_and_keep_a_state(self):
        server = self.job()
        states = []

        def decide(_, info):
            states.append(info.state)
            return agg.RuleDecision([1, 0], step_scale=0.25,
                                    state=info.state + b"\0x")

        self.begin(decide, server)
        x, outcomes = self.train(server, 3)
        np.testing.assert_array_equal(x, -0.75 * GRADIENTS[0])
        self.assertEqual([o.learning_rate for o in outcomes], [0.25] * 3)
        self.assertEqual(states, [b"", b"\0x", b"\0x\0x"])

    def test_for_each_tensor(self):
        server = self.serve(workers=1, lr=1.0, config={"combination": {
            "rule": "external", "scope": "per_tensor",
            "external": {"timeout_seconds": WAIT}}})
        seen = []

        def decide(gram, info):
            seen.append((info.tensor, float(gram[0, 0]), info.state))
            return agg.RuleDecision([1.0 if info.tensor == "a" else 2.0],
                                    state=info.tensor.encode())

        self.begin(decide, server)
        x = {"a": np.zeros(1, np.float32), "b": np.zeros(2, np.float32)}
        with agg.Client(x, server.address, 0) as client:
            for _ in range(2):
                client.step({"a": np.ones(1, np.float32),
                             "b": np.ones(2, np.float32)})
        self.assertEqual((x["a"].tolist(), x["b"].tolist()),
                         ([-2.0], [-4.0, -4.0]))
        self.assertEqual(seen, [("a", 1.0, b""), ("b", 2.0, b""),
                                ("a", 1.0, b"a"), ("b", 2.0, b"b")])

    def test_what_goes_wrong_is_said_and_the_fallback_is_applied(self):
        server = self.job(combination={"external": {
            "timeout_seconds": WAIT, "fallback": "sum"}})
        answers = [ValueError("no idea"), [1.0], [1.0, np.nan],
                   agg.RuleDecision([1, 1], step_scale=-1.0),
                   agg.RuleDecision([1, 1], step_scale=0),
                   agg.RuleDecision([1, 1], state=b"x" * 70000), [0.0, 0.0]]

        def decide(_, info):
            answer = answers[info.round]
            if isinstance(answer, Exception):
                raise answer
            return answer

        with self.assertLogs("agg_server", logging.ERROR) as logged:
            self.begin(decide, server)
            x, outcomes = self.train(server, len(answers))
        for outcome, why in zip(outcomes, (
                "its function failed: ValueError: no idea",
                r"ValueError: weights have the shape \(1,\)",
                r"weights\[1\] is nan; allowed: finite",
                r"ValueError: step_scale is -1\.0; allowed: finite, > 0",
                r"ValueError: step_scale is 0\.0; allowed: finite, > 0",
                "its answer is refused: state is 70000 bytes; allowed: ")):
            self.assert_fell_back(outcome, why)
        self.assertEqual(outcomes[-1].message, "")
        np.testing.assert_array_equal(
            x, -6 * (GRADIENTS[0] + GRADIENTS[1]))
        self.assertIn("no idea", "".join(logged.output))

    def test_without_a_process_the_job_goes_on(self):
        server = self.job(timeout=0.05)
        x, outcomes = self.train(server, 2)
        np.testing.assert_array_equal(x, -(GRADIENTS[0] + GRADIENTS[1]))
        self.assert_fell_back(outcomes[0], "no process has asked for rounds")
        self.assert_fell_back(outcomes[1], "no process has asked for rounds")

    def test_a_killed_process_costs_a_round_and_the_next_one_takes_over(self):
        server = self.job(timeout=0.5)
        context = multiprocessing.get_context("spawn")
        processes = []

        def start():
            processes.append(context.Process(
                target=serve_first_row, args=(server.address,), daemon=True))
            processes[-1].start()
            self.addCleanup(processes[-1].kill)

        def kill():
            os.kill(processes[-1].pid, signal.SIGKILL)
            processes[-1].join(WAIT)

        def run(rank):
            """Both ranks have the same outcomes, and so the same course."""
            x = {"w": np.zeros(3, np.float32)}
            give_up = time.monotonic() + WAIT

            def decided():
                self.assertLess(time.monotonic(), give_up)
                before = x["w"].copy()
                outcome = client.step({"w": GRADIENTS[rank]})
                np.testing.assert_array_equal(
                    before - x["w"],
                    (GRADIENTS[0] + GRADIENTS[1]) / 2 if outcome.message
                    else GRADIENTS[0])
                if outcome.message:
                    self.assert_fell_back(outcome, "process")
                return not outcome.message

            with agg.Client(x, server.address, rank) as client:
                for change in (start, kill, start):
                    if rank == 0:
                        change()
                    if change is kill:
                        self.assertEqual([decided() for _ in range(3)],
                                         [False] * 3)
                        continue
                    while not decided():
                        pass

        self.team(2, run)

    def test_the_example(self):
        server = self.job(config={"max_rounds": 2})
        example = subprocess.Popen(
            [sys.executable, "-B", ROOT / "worker_client/python/examples/own_rule.py",
             server.address],
            env={**os.environ, "PYTHONPATH": str(PACKAGE.resolve())})
        self.addCleanup(example.kill)
        x, outcomes = self.train(server, 2)
        self.assertEqual([o.message for o in outcomes], ["", ""])
        mean = (GRADIENTS[0] / 5 ** 0.5 + 2 * GRADIENTS[1] / 4) / 3
        np.testing.assert_allclose(x, -2 * mean, rtol=1e-6)
        self.assertEqual(example.wait(WAIT), 0)

    def test_the_newest_process_decides(self):
        server = self.serve(workers=1, lr=1.0, config={"combination": {
            "rule": "external", "external": {"timeout_seconds": WAIT}}})
        raised, thread, _ = self.begin(lambda gram, info: [1], server)
        x = {"w": np.zeros(3, np.float32)}
        with agg.Client(x, server.address, 0) as client:
            client.step({"w": GRADIENTS[0]})
            self.begin(lambda gram, info: [-3], server)
            thread.join(WAIT)
            self.assertIsInstance(raised[0], agg.Superseded)
            client.step({"w": GRADIENTS[0]})
        np.testing.assert_array_equal(x["w"], 2 * GRADIENTS[0])

    def test_a_shadow_changes_nothing(self):
        server = self.serve(
            workers=2, lr=1.0, config={
                "combination": {"rule": "sum"},
                "shadow_rules": [{"rule": "external", "external": {
                    "name": "mine", "timeout_seconds": WAIT}}]})
        seen = threading.Event()

        def decide(_, info):
            if info.shadow:
                seen.set()
            return [0, 0]

        self.begin(decide, server, name="mine")
        x, outcomes = self.train(server)
        np.testing.assert_array_equal(x, -(GRADIENTS[0] + GRADIENTS[1]))
        self.assertEqual(outcomes[0].message, "")
        self.assertTrue(seen.wait(WAIT))

    def test_its_state_is_in_checkpoints(self):
        folder = str(self.temporary_folder())
        states = []

        def decide(_, info):
            states.append(info.state)
            return agg.RuleDecision([0.5, 0.5],
                                    state=info.state + bytes([255]))

        def run(rank):
            client = agg.Client({"w": np.zeros(3, np.float32)}, server.address,
                                rank, recovery_window=0, call_timeout=1)
            for _ in range(2):
                client.step({"w": GRADIENTS[rank]})
            return client

        for _ in range(2):
            server = self.job(config={"checkpoint": {
                "path": folder, "every_rounds": 1}}, job="kept")
            _, _, end = self.begin(decide, server)
            clients = self.team(2, run)
            server.close()  # before they leave: the job has not finished
            end()
            for client in clients:
                client.close()
        self.assertEqual(states, [b"\xff" * n for n in range(4)])

    def test_serving_ends_with_the_job(self):
        server = self.job(config={"max_rounds": 1})
        _, thread, _ = self.begin(first_row, server)
        self.train(server)
        thread.join(WAIT)
        self.assertFalse(thread.is_alive())

    def test_a_role_of_its_own(self):
        folder = self.temporary_folder()
        for name in ("worker", "rule", "shard"):
            (folder / name).write_text(f"{name}-token-0123456789\n")
            (folder / name).chmod(0o600)
        server = self.serve(workers=1, lr=1.0, config={
            "combination": {"rule": "external",
                            "external": {"timeout_seconds": WAIT}},
            "security": {
                "identities": [{"name": name, "roles": name,
                                "token_file": str(folder / name)}
                               for name in ("worker", "rule")],
                "shard_token_file": str(folder / "shard")}})
        with self.assertRaises(agg.NotAllowed):
            agg.serve_rule(first_row, server.address,
                           token_file=folder / "worker")
        self.begin(lambda gram, info: [2.0], server,
                   token_file=folder / "rule")
        x = {"w": np.zeros(3, np.float32)}
        with agg.Client(x, server.address, 0,
                        token_file=folder / "worker") as client:
            client.step({"w": np.ones(3, np.float32)})
        self.assertEqual(x["w"].tolist(), [-2.0] * 3)

    def test_arguments_are_checked(self):
        for coordinator, options, said in (
                ("nowhere", {}, "coordinator is \"nowhere\""),
                ("127.0.0.1:9", {"tls_ca": "/missing"}, "/missing")):
            with self.subTest(coordinator), self.assertRaisesRegex(
                    agg.ManifestError, said):
                agg.serve_rule(first_row, coordinator, **options)
        with self.assertRaises(agg.ShardLost):
            agg.serve_rule(first_row, "127.0.0.1:9", connect_timeout=0.3)


if __name__ == "__main__":
    unittest.main()
