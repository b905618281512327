"""LocalSteps against the same arithmetic by hand."""

import unittest

import torch

from tests.python.job_case import JobCase, agg
from tests.python.torch.worker_test import batch, copies, loss_of, model


def local_run(net, inner, rank, first, steps):
    for i in range(first, first + steps):
        inner.zero_grad()
        loss_of(net, batch(rank, i)).backward()
        inner.step()


class LocalStepsTest(JobCase):

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
        for a, b in zip(first, second):
            self.assertTrue(torch.equal(a, b))
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

    def test_the_job_must_add(self):
        server = self.serve(workers=1, lr=1.0)
        net = model()
        inner = torch.optim.SGD(net.parameters(), lr=0.05)
        with agg.Worker(net, server.address, 0) as worker:
            with self.assertRaisesRegex(agg.ManifestError, '"add"'):
                agg.LocalSteps(worker, inner, every=4)


if __name__ == "__main__":
    unittest.main()
