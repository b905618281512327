"""LocalSteps against the same arithmetic by hand."""

import threading
import unittest
import warnings

import torch

from tests.python.job_case import WAIT, agg
from tests.python.torch.torch_case import (TorchCase, batch, copies,
                                           interrupt, loss_of, model)


def local_run(net, inner, rank, first, steps):
    for i in range(first, first + steps):
        inner.zero_grad()
        loss_of(net, batch(rank, i)).backward()
        inner.step()


class LocalStepsTest(TorchCase):

    def run_job(self, optimizer, lr):
        """Two workers, three rounds of four steps."""
        server = self.serve(shards=2, workers=2, optimizer=optimizer, lr=lr)

        def work(rank):
            net = model()
            inner = torch.optim.SGD(net.parameters(), lr=0.05)
            with agg.Worker(net, server.address, rank) as worker:
                with agg.LocalSteps(worker, inner, every=4) as local:
                    local_run(net, inner, rank, 0, 12)
                    self.assertEqual(local.last.version, 3)
                inner.step()  # the hook is gone
                self.assertEqual(worker.version, 3)
                with self.assertRaisesRegex(agg.ManifestError, "LocalSteps"):
                    worker.step()
                worker.pull()
            return copies(net)

        first, second = self.team(2, work)
        self.assert_equal(first, second)
        return first

    def by_hand(self, outer):
        """outer(start, mean change, state) gives the next start."""
        start, state = copies(model()), {}
        for k in range(3):
            changes = []
            for rank in range(2):
                net = model()
                with torch.no_grad():
                    for p, s in zip(net.parameters(), start):
                        p.copy_(s)
                local_run(net, torch.optim.SGD(net.parameters(), lr=0.05),
                          rank, 4 * k, 4)
                changes.append([p - s for p, s in zip(copies(net), start)])
            mean = [(a + b) / 2 for a, b in zip(*changes)]
            start = outer(start, mean, state)
        return start

    def assert_close(self, found, expected):
        for a, b in zip(found, expected):
            # Twelve steps of a few roundings each.
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)

    def test_local_sgd(self):
        self.assert_close(
            self.run_job("add", 1.0),
            self.by_hand(lambda start, mean, _: [
                s + m for s, m in zip(start, mean)]))

    def test_diloco(self):
        def outer(start, mean, state):
            if not state:
                state["p"] = [s.clone().requires_grad_() for s in start]
                state["opt"] = torch.optim.SGD(state["p"], lr=0.7,
                                               momentum=0.9, nesterov=True)
            for p, m in zip(state["p"], mean):
                p.grad = -m
            state["opt"].step()
            return [p.detach().clone() for p in state["p"]]

        self.assert_close(
            self.run_job({"kind": "add", "momentum": 0.9, "nesterov": True},
                         0.7), self.by_hand(outer))

    def test_adasum_of_changes(self):
        """Each worker's own Adam steps, and Adasum combines the changes: what
        Horovod's optimizer for Adasum does."""
        rounds, start = 3, copies(model())
        server = self.serve(shards=2, workers=2, optimizer="add", lr=1.0,
                            rule="adasum")

        def work(rank):
            net = model()
            inner = torch.optim.Adam(net.parameters(), lr=0.01)
            with agg.Worker(net, server.address, rank) as worker:
                with agg.LocalSteps(worker, inner, every=1):
                    local_run(net, inner, rank, 0, rounds)
            return copies(net)

        found = self.team(2, work)
        nets = [model(), model()]
        inners = [torch.optim.Adam(net.parameters(), lr=0.01) for net in nets]
        for i in range(rounds):
            for rank, (net, inner) in enumerate(zip(nets, inners)):
                local_run(net, inner, rank, i, 1)
            changes = [[(p - s).double() for p, s in zip(copies(net), start)]
                       for net in nets]
            start = [s + self.adasum(a, b).float()
                     for s, a, b in zip(start, *changes)]
            with torch.no_grad():
                for net in nets:
                    for p, s in zip(net.parameters(), start):
                        p.copy_(s)
        for tensors in found:
            self.assert_close(tensors, start)

    @staticmethod
    def adasum(a, b):
        """Of two tensors."""
        dot = (a * b).sum()
        return ((1 - dot / (2 * (a * a).sum())) * a +
                (1 - dot / (2 * (b * b).sum())) * b)

    def test_steps_behind_the_last_round_are_said(self):
        p = torch.zeros(2, requires_grad=True)
        worker = self.lone_worker({"p": p}, optimizer="add")
        inner = torch.optim.SGD([p], lr=1.0)

        def steps(number):
            for _ in range(number):
                p.grad = torch.ones(2)
                inner.step()

        with self.assertNoLogs("agg_server", "WARNING"):
            with agg.LocalSteps(worker, inner, every=2):
                steps(4)
            with agg.LocalSteps(worker, inner, every=2) as local:
                steps(3)
                local.exchange()
        with self.assertLogs("agg_server", "WARNING") as logs:
            with agg.LocalSteps(worker, inner, every=2):
                steps(3)
        self.assertIn("ends 1 step(s) behind the last round",
                      logs.output[0])

    def test_the_job_must_add(self):
        net = model()
        inner = torch.optim.SGD(net.parameters(), lr=0.05)
        worker = self.lone_worker(net, lr=1.0)
        with self.assertRaisesRegex(agg.ManifestError, '"add"'):
            agg.LocalSteps(worker, inner, every=4)



class AnchorTest(TorchCase):
    """A change is what moved since the version that the worker has."""

    def serve_add(self, workers=1, **options):
        return self.serve(workers=workers, optimizer="add", lr=1.0, **options)

    @staticmethod
    def step(inner, p):
        """Adds 1."""
        p.grad = torch.full_like(p, -1.0)
        inner.step()

    def begin(self, server, every=1, rank=0, **options):
        p = torch.zeros(1, requires_grad=True)
        worker = agg.Worker({"p": p}, server.address, rank, **options)
        self.addCleanup(worker.close)
        inner = torch.optim.SGD([p], lr=1.0)
        return p, worker, inner, agg.LocalSteps(worker, inner, every)

    def test_a_round_that_was_left_and_a_pull(self):
        p, worker, inner, local = self.begin(self.serve_add())
        with local:
            self.step(inner, p)
            interrupt(worker)
            with self.assertRaises(KeyboardInterrupt):
                self.step(inner, p)
            worker.pull()
            self.assertEqual(p.tolist(), [2.0])
            self.step(inner, p)
            self.assertEqual((p.tolist(), worker.version), ([3.0], 3))

    def test_a_round_that_was_left_and_more_steps(self):
        for every in (1, 3):
            with self.subTest(every):
                p, worker, inner, local = self.begin(self.serve_add(), every)
                with local:
                    for _ in range(every - 1):
                        self.step(inner, p)
                    interrupt(worker)
                    with self.assertRaises(KeyboardInterrupt):
                        self.step(inner, p)
                    self.assertEqual(p.tolist(), [every])
                    for done in range(every + 1, 2 * every + 1):
                        self.step(inner, p)
                        self.assertEqual(p.tolist(), [done])
                    self.assertEqual(worker.version, 2)
                    worker.pull()
                    self.assertEqual(p.tolist(), [2.0 * every])

    def test_others_changes_come_once_too(self):
        server = self.serve_add(workers=2)

        def run(rank):
            p, worker, inner, local = self.begin(server, rank=rank)
            with local:
                self.step(inner, p)
                if rank:
                    interrupt(worker)
                    with self.assertRaises(KeyboardInterrupt):
                        self.step(inner, p)
                else:
                    self.step(inner, p)
                for _ in range(2):
                    self.step(inner, p)
                self.assertEqual(worker.last.differing_ranks, ())
            return p.tolist(), worker.version

        self.assertEqual(self.team(2, run), [([4.0], 4)] * 2)

    def test_an_exception_behind_the_round(self):
        p, worker, inner, local = self.begin(self.serve_add())
        tell = worker._tell

        def interrupted(outcome):
            worker._tell = tell
            raise KeyboardInterrupt

        with local:
            worker._tell = interrupted
            with self.assertRaises(KeyboardInterrupt):
                self.step(inner, p)
            self.step(inner, p)
            self.step(inner, p)
            self.assertEqual((p.tolist(), worker.version), ([3.0], 3))

    def test_a_pull_gives_up_what_changed(self):
        p, worker, inner, local = self.begin(self.serve_add(), every=3)
        with local:
            for _ in range(3):
                self.step(inner, p)
            self.step(inner, p)
            worker.pull()
            self.assertEqual(p.tolist(), [3.0])
            for _ in range(3):
                self.step(inner, p)
            self.assertEqual((p.tolist(), worker.version), ([6.0], 2))

    def test_a_round_that_was_skipped(self):
        p, worker, inner, local = self.begin(self.serve_add())
        with local:
            self.step(inner, p)
            with torch.no_grad():
                p.fill_(float("nan"))
            local.exchange()
            self.assertEqual(local.last.kind, "skipped")
            self.assertEqual(p.tolist(), [1.0])
            self.step(inner, p)
            self.assertEqual(p.tolist(), [2.0])

    def test_a_call_that_failed_is_made_again(self):
        server = self.serve_add(workers=2)
        failed = threading.Event()

        def run(rank):
            options = {} if rank else {"round_timeout": 0.2}
            p, worker, inner, local = self.begin(server, rank=rank, **options)
            with local:
                if rank:
                    self.assertTrue(failed.wait(WAIT))
                    self.step(inner, p)
                else:
                    with self.assertRaises(agg.Timeout):
                        self.step(inner, p)
                    failed.set()
                    while worker.version == 0:
                        try:
                            local.exchange()
                        except agg.Timeout:
                            pass
                return p.tolist(), worker.version

        self.assertEqual(self.team(2, run), [([1.0], 1)] * 2)

    def test_starts_that_differ_are_named(self):
        server = self.serve_add(workers=2)
        barrier = threading.Barrier(2)

        def run(rank):
            p, worker, inner, local = self.begin(server, rank=rank)
            with local:
                self.step(inner, p)
                barrier.wait(WAIT)
                if rank:
                    local._start["p"] += 1.0  # what no call does
                self.step(inner, p)
                return worker.last.differing_ranks

        with self.assertLogs("agg_server", "WARNING"):
            self.assertEqual(self.team(2, run), [(0, 1)] * 2)

    def test_what_others_write_is_said_once(self):
        p, worker, inner, local = self.begin(self.serve_add(), every=2)
        with local:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for _ in range(4):
                    self.step(inner, p)
                    inner.zero_grad()
                worker.pull()
                self.step(inner, p)
                self.step(inner, p)
            with torch.no_grad():
                p.fill_(100.0)
            with self.assertWarnsRegex(UserWarning, '"p" was written between'):
                self.step(inner, p)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with torch.no_grad():
                    p.add_(1.0)
                self.step(inner, p)
            self.assertEqual(p.tolist(), [103.0])

    def test_types_of_less_digits_are_no_difference(self):
        """One rank has pulled, the other one goes on from its exchange."""
        server = self.serve_add(workers=2)

        def run(rank):
            p = torch.zeros(3, dtype=torch.bfloat16, requires_grad=True)
            with agg.Worker({"p": p}, server.address, rank) as worker:
                inner = torch.optim.SGD([p], lr=0.3 + 0.1 * rank)
                with agg.LocalSteps(worker, inner, every=2):
                    for i in range(6):
                        self.step(inner, p)
                        if rank and i == 3:
                            worker.pull()
                    return worker.last.differing_ranks

        self.assertEqual(self.team(2, run), [()] * 2)



if __name__ == "__main__":
    unittest.main()
