"""torchft's own LocalSGD, DiLoCo and Optimizer over agg_server.torchft."""

import copy
import importlib.util
import unittest
from unittest import mock

import torch

from tests.python.example_case import ExampleCase, toy
from tests.python.job_case import agg
from tests.python.torch.torch_case import batch, copies, loss_of, model

if importlib.util.find_spec("torchft"):
    from torchft import local_sgd, optim
    from torchft.ddp import PureDistributedDataParallel
    from agg_server.torchft import Manager

NESTEROV = {"kind": "add", "momentum": 0.9, "nesterov": True}


def local_steps(net, inner, rank, steps=12, first=0):
    for i in range(first, first + steps):
        inner.zero_grad()
        loss_of(net, batch(rank, i)).backward()
        inner.step()


def outer_of(net):
    return torch.optim.SGD(net.parameters(), lr=0.7, momentum=0.9,
                           nesterov=True)


@unittest.skipUnless(importlib.util.find_spec("torchft"),
                     "torchft is not installed")
class TorchftTest(ExampleCase):

    def run_ranks(self, work, rule="mean", **options):
        """What work(net, inner, manager, rank) makes of the parameters, by
        rank."""
        server = self.serve(shards=2, workers=2, rule=rule, optimizer="none")

        def one(rank):
            net = model()
            inner = torch.optim.SGD(net.parameters(), lr=0.05)
            with agg.Worker(net, server.address, rank, mode="combine",
                            **options) as worker:
                manager = Manager(worker)
                work(net, inner, manager, rank)
                return copies(net)

        return self.team(2, one)

    def run_manager(self, work, rule="mean"):
        """The same for work that ends with a round: of all ranks."""
        first, second = self.run_ranks(work, rule)
        self.assert_equal(first, second)
        return first

    def run_server(self, rule):
        """DiLoCo whose outer optimizer is the server's."""
        server = self.serve(workers=2, rule=rule, optimizer=NESTEROV, lr=0.7)

        def one(rank):
            net = model()
            inner = torch.optim.SGD(net.parameters(), lr=0.05)
            with agg.Worker(net, server.address, rank) as worker:
                with agg.LocalSteps(worker, inner, every=4):
                    local_steps(net, inner, rank)
            return copies(net)

        return self.team(2, one)[0]

    def assert_same(self, found, expected, bound=1e-6):
        """Relative, of all parameters as one vector."""
        a, b = (torch.cat([t.flatten().double() for t in tensors])
                for tensors in (found, expected))
        self.assertLess((a - b).norm() / b.norm(), bound)

    def test_diloco_is_the_servers(self):
        for rule in ("mean", "adasum"):
            for bucketized in (False, True):
                def work(net, inner, manager, rank, bucketized=bucketized):
                    with local_sgd.DiLoCo(
                            manager, [net], inner, outer_of(net), sync_every=4,
                            use_bucketization=bucketized):
                        local_steps(net, inner, rank)
                    self.assertEqual(manager.current_step(), 3)
                    self.assertEqual(manager.num_participants(), 2)

                with self.subTest(rule=rule, bucketized=bucketized):
                    self.assert_same(self.run_manager(work, rule),
                                     self.run_server(rule))

    def test_the_example(self):
        server = self.serve(workers=2, rule="adasum", optimizer=NESTEROV,
                            lr=0.7)

        start = toy.model()  # torch's generator is one for all threads

        def one(rank):
            net = copy.deepcopy(start)
            inner = torch.optim.SGD(net.parameters(), lr=0.1)
            with agg.Worker(net, server.address, rank) as worker, \
                    agg.LocalSteps(worker, inner, every=5):
                for x, y in toy.batches(rank, 20):
                    inner.zero_grad()
                    toy.loss_fn(net(x), y).backward()
                    inner.step()
            return copies(net)

        expected = self.team(2, one)[0]
        _, versions, saved = self.run_example("torchft_diloco")
        self.assertEqual(versions, {0: "4", 1: "4"})
        self.assert_same(saved[0].values(), expected)

    def test_fragments_go_one_by_one(self):
        def work(net, inner, manager, rank):
            fragments = [net[0], net[2]]
            with local_sgd.DiLoCo(
                    manager, fragments, inner,
                    [outer_of(fragment) for fragment in fragments],
                    sync_every=4):
                local_steps(net, inner, rank)
            self.assertEqual(manager.current_step(), 6)

        found = self.run_ranks(work, find_unused=True)
        # The same by hand: after every two steps, a fragment in turn.
        whole, nets = model(), [model(), model()]
        outers = [outer_of(whole[0]), outer_of(whole[2])]
        for turn in range(6):
            for rank, net in enumerate(nets):
                inner = torch.optim.SGD(net.parameters(), lr=0.05)
                local_steps(net, inner, rank, 2, 2 * turn)
            k = 2 * (turn % 2)
            for p, a, b in zip(*(n[k].parameters() for n in [whole, *nets])):
                p.grad = p.detach() - (a.detach() + b.detach()) / 2
            outers[turn % 2].step()
            for net in nets:
                net[k].load_state_dict(whole[k].state_dict())
        for rank, net in enumerate(nets):
            self.assert_same(found[rank], copies(net))

    def test_local_sgd_averages_the_parameters(self):
        def work(net, inner, manager, rank):
            with local_sgd.LocalSGD(manager, net, inner, sync_every=4):
                local_steps(net, inner, rank)

        found = self.run_manager(work)
        nets = [model(), model()]
        for first in range(0, 12, 4):
            for rank, net in enumerate(nets):
                inner = torch.optim.SGD(net.parameters(), lr=0.05)
                local_steps(net, inner, rank, 4, first)
            with torch.no_grad():
                for a, b in zip(*(net.parameters() for net in nets)):
                    a.copy_((a + b) / 2)
                    b.copy_(a)
        self.assert_same(found, copies(nets[0]))

    def test_the_optimizer_wrapper_and_hooks_of_parameters(self):
        def work(net, inner, manager, rank):
            replica = PureDistributedDataParallel(manager, net)
            opt = optim.OptimizerWrapper(manager, inner)
            for i in range(5):
                opt.zero_grad()
                loss_of(replica, batch(rank, i)).backward()
                opt.step()

        found = self.run_manager(work)
        net = model()
        sgd = torch.optim.SGD(net.parameters(), lr=0.05)
        for i in range(5):
            sgd.zero_grad()
            (sum(loss_of(net, batch(r, i)) for r in range(2)) / 2).backward()
            sgd.step()
        self.assert_same(found, copies(net))

    def test_a_round_without_a_result_goes_back(self):
        def work(net, inner, manager, rank):
            before = copies(net)
            with local_sgd.DiLoCo(manager, [net], inner, outer_of(net),
                                  sync_every=1):
                for p in net.parameters():
                    p.grad = torch.full_like(p, float("nan"))
                inner.step()
            self.assertFalse(manager.should_commit())
            self.assert_equal(copies(net), before)

        self.run_manager(work)

    def test_work_whose_round_failed_is_not_done(self):
        worker = self.lone_worker({"x": torch.zeros(2)}, mode="combine")
        manager = Manager(worker)
        tensor = torch.ones(2)
        self.assertTrue(manager.allreduce(tensor).wait())
        failed = manager.allreduce(tensor)
        with mock.patch.object(worker, "exchange",
                               side_effect=agg.Timeout("late")):
            with self.assertRaises(agg.Timeout):
                failed.wait()
        with self.assertRaisesRegex(agg.Error, "call allreduce again"):
            failed.wait()
        self.assertFalse(manager.should_commit())
        dropped = manager.allreduce(tensor)
        manager.start_quorum()
        work = manager.allreduce(tensor)
        with self.assertRaisesRegex(agg.Error, "call allreduce again"):
            dropped.wait()
        self.assertEqual(worker.version, 1)
        self.assertTrue(work.wait() and work.wait())
        self.assertEqual(worker.version, 2)

    def test_a_bucket_is_not_a_vector_of_its_length(self):
        tensors = {"a": torch.zeros(2), "b": torch.zeros(3),
                   "c": torch.zeros(5)}
        worker = self.lone_worker(tensors, mode="combine")
        manager = Manager(worker)
        rows = {}
        exchange = worker.exchange

        def recorded(given):
            rows.update({name: t.tolist() for name, t in given.items()})
            return exchange(given)

        with mock.patch.object(worker, "exchange", recorded):
            manager.allreduce(torch.arange(5.0))
            manager.allreduce(torch.full((5,), 9.0)).wait()
            self.assertEqual(rows, {"a": [0, 1], "b": [2, 3, 4],
                                    "c": [9] * 5})
            for value, tensor in enumerate(tensors.values()):
                work = manager.allreduce(torch.full_like(tensor, value))
            work.wait()
            self.assertEqual(rows, {"a": [0] * 2, "b": [1] * 3,
                                    "c": [2] * 5})

    def test_mistakes_say_what_is_allowed(self):
        server = self.serve(workers=1, optimizer="none")
        with agg.Worker(model(), server.address, 0, mode="combine") as worker:
            manager = Manager(worker)
            with self.assertRaisesRegex(agg.ManifestError, r"\(7, 7\)"):
                manager.allreduce(torch.zeros(7, 7))
            with self.assertRaisesRegex(agg.ManifestError, "AVG"):
                manager.allreduce(torch.zeros(4, 5), reduce_op="SUM")
        server = self.serve(workers=1, optimizer="none")
        with agg.Worker(model(), server.address, 0, mode="combine",
                        overlap=True) as worker:
            with self.assertRaisesRegex(agg.ManifestError, "overlap is True"):
                Manager(worker)
        server = self.serve(workers=1, lr=1.0)
        with agg.Worker(model(), server.address, 0) as worker:
            with self.assertRaisesRegex(agg.ManifestError, '"combine"'):
                Manager(worker)


if __name__ == "__main__":
    unittest.main()
