"""What a call that was ended by Ctrl-C, or by a signal's handler, leaves behind:
the round may go on, with memory that nobody else may write or free."""

import unittest

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tests.python.job_case import agg
from tests.python.torch.torch_case import TorchCase, interrupt


class Alarm(Exception):
    """What the handler of a signal raises."""


def left_row(worker):
    """What the round that was left pushes."""
    return worker._session._left_behind[0]._keep[0][0]


def leaf(count=2):
    return torch.zeros(count, requires_grad=True)


class InterruptTest(TorchCase):

    def test_an_exchange_keeps_the_row_of_the_one_before(self):
        """Its copy: float64 is no dtype of the wire."""
        server = self.serve(workers=2, lr=1.0, optimizer="add")
        x = torch.zeros(4, dtype=torch.float64)
        seen = []

        def first(worker):
            interrupt(worker)
            with self.assertRaises(KeyboardInterrupt):
                worker.exchange({"x": torch.ones_like(x)})
            row, session = left_row(worker), worker._session
            settle = session._settle

            def look_and_settle():
                seen.append(row.tolist())
                settle()

            session._settle = look_and_settle
            return worker.exchange({"x": torch.full_like(x, 7.0)})

        def second(worker):
            worker.exchange({"x": torch.zeros_like(x)})
            return worker.exchange({"x": torch.zeros_like(x)})

        def run(rank):
            with agg.Worker({"x": x}, server.address, rank) as worker:
                outcome, pulled = (second if rank else first)(worker)
                return outcome.version, pulled["x"].tolist()

        self.assertEqual(self.team(2, run), [(2, [4.0] * 4)] * 2)
        self.assertEqual(seen[0], [1.0] * 4)

    def test_a_step_that_was_left_keeps_its_gradients(self):
        for error in (KeyboardInterrupt, SystemExit, Alarm):
            with self.subTest(error):
                server = self.serve(workers=2, lr=1.0)
                x = leaf()
                with agg.Worker({"x": x}, server.address, 0) as worker:
                    x.sum().backward()
                    interrupt(worker, error)
                    with self.assertRaises(error):
                        worker.step()
                    self.assertIsNone(x.grad)
                    (5 * x).sum().backward()
                    self.assertEqual(left_row(worker).tolist(), [1.0, 1.0])

    def test_a_step_that_was_refused_leaves_the_gradients(self):
        x = leaf()
        worker = self.lone_worker({"x": x}, lr=1.0)
        x.sum().backward()
        with self.assertRaisesRegex(ValueError, "examples is 0"):
            worker.step(examples=0)
        self.assertEqual(x.grad.tolist(), [1.0, 1.0])

    def test_before_a_round_begins_its_row_is_dropped(self):
        for error in (KeyboardInterrupt, SystemExit):
            with self.subTest(error):
                x, y = leaf(), leaf()
                worker = self.lone_worker({"x": x, "y": y}, lr=1.0,
                                          overlap=True, find_unused=True)
                session = worker._session
                makes_round = session.round

                def interrupted(*_):
                    session.round = makes_round
                    raise error

                session.round = interrupted
                x.sum().backward()
                with self.assertRaises(error):
                    worker.step()
                x.grad = None
                for version in (1, 2):
                    (3 * x).sum().backward()
                    self.assertEqual(worker.step().version, version)
                self.assertEqual((x.tolist(), y.tolist()),
                                 ([-6.0, -6.0], [0.0, 0.0]))

    def test_no_row_while_a_step_that_was_left_goes_on(self):
        """Another row would take the place of the one that is committed."""
        server = self.serve(workers=2, lr=1.0)
        tensor = leaf()
        with agg.Worker({"x": tensor}, server.address, 0, overlap=True
                        ) as worker:
            (1.0 * tensor).sum().backward()
            interrupt(worker)
            with self.assertRaises(KeyboardInterrupt):
                worker.step()
            (5.0 * tensor).sum().backward()
            self.assertIsNone(worker._overlap._operation)

            def other(_):
                x = leaf()
                with agg.Worker({"x": x}, server.address, 1) as second:
                    x.sum().backward()
                    outcome = second.step()
                    self.assertEqual(outcome.ranks, (0, 1))
                    self.assertEqual(x.tolist(), [-1.0, -1.0])
                    x.sum().backward()
                    second.step()
                    self.assertEqual(x.tolist(), [-4.0, -4.0])

            self.team(2, lambda r: worker.step() if r == 0 else other(r))
            self.assertEqual(tensor.tolist(), [-4.0, -4.0])

    def test_the_memory_of_a_step_that_was_left_stays(self):
        for overlap in (False, True):
            with self.subTest(overlap=overlap):
                server = self.serve(workers=2, lr=1.0)
                net = torch.nn.Linear(2, 1)
                with agg.Worker(net, server.address, 0, zero_copy=True,
                                overlap=overlap) as worker:
                    net(torch.ones(1, 2)).sum().backward()
                    grad = net.weight.grad
                    used = [StorageWeakRef(t.untyped_storage())
                            for t in (net.weight, grad)]
                    interrupt(worker)
                    with self.assertRaises(KeyboardInterrupt):
                        worker.step()
                    net.double()  # other storage
                    grad.data = torch.zeros(1)
                    self.assertTrue(worker._session.busy)
                    self.assertEqual([ref.expired() for ref in used],
                                     [False, False])


if __name__ == "__main__":
    unittest.main()
