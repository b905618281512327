"""node_hook as DDP's hook in one process: its contract, its mistakes."""

import unittest

import torch
import torch.distributed as dist

from tests.python.job_case import agg
from tests.python.torch.torch_case import (TorchCase, batch, copies,
                                           loss_of, model)


class TwoHeads(torch.nn.Module):
    """One of two heads is used at a time."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b = torch.nn.Linear(5, 1), torch.nn.Linear(5, 1)

    def forward(self, x):
        return self.a(x)


class NodeHookTest(TorchCase):

    def setUp(self):
        folder = self.temporary_folder()
        dist.init_process_group("gloo", rank=0, world_size=1,
                                init_method=f"file://{folder}/store")
        self.addCleanup(dist.destroy_process_group)
        self.node, self.side = dist.new_group([0]), dist.new_group([0])

    def wrap(self, net, worker, **options):
        """(DDP with the hook, its state)"""
        state = agg.NodeState(net, self.node, self.side, worker)
        ddp = torch.nn.parallel.DistributedDataParallel(
            net, process_group=self.node, **options)
        ddp.register_comm_hook(state, agg.node_hook)
        return ddp, state

    def worker(self, net, server, rank=0, **options):
        worker = agg.Worker(net, server.address, rank, "combine", **options)
        self.addCleanup(worker.close)
        return worker

    def test_what_the_future_has_becomes_the_gradient(self):
        server = self.serve(workers=2, optimizer="none")
        nets = [model(), model()]

        def work(rank):
            net, rounds = nets[rank], []
            worker = self.worker(net, server, rank)
            ddp, state = (self.wrap(net, worker, bucket_cap_mb=1e-4)
                          if rank == 0 else (net, None))
            for i in range(3):  # other buckets from the second one on
                net.zero_grad()
                loss_of(ddp, batch(rank, i)).backward()
                if rank == 0:
                    state.check()
                else:
                    worker.combine()
                rounds.append([p.grad.clone() for p in net.parameters()])
            return rounds

        first, second = self.team(2, work)
        net = model()
        for i in range(3):
            own = []
            for rank in range(2):
                net.zero_grad()
                loss_of(net, batch(rank, i)).backward()
                own.append([p.grad.clone() for p in net.parameters()])
            for a, b, x, y in zip(first[i], second[i], *own, strict=True):
                self.assertTrue(torch.equal(a, b))
                torch.testing.assert_close(a, (x + y) / 2, rtol=1e-6,
                                           atol=1e-8)

    def test_a_layer_that_was_unfrozen_is_named(self):
        server = self.serve(workers=1, optimizer="none")
        net = TwoHeads()
        first = torch.nn.Linear(5, 5)
        first.requires_grad_(False)
        net = torch.nn.Sequential(first, net)
        worker = self.worker(net, server, find_unused=True)
        ddp, state = self.wrap(net, worker, find_unused_parameters=True)
        ddp(torch.ones(2, 5)).sum().backward()
        state.check()
        first.requires_grad_(True)
        ddp(torch.ones(2, 5)).sum().backward()
        with self.assertRaisesRegex(agg.ManifestError, '"0.weight" has a grad'):
            state.check()

    def test_nodes_that_differ_are_named(self):
        server = self.serve(workers=2, optimizer="none")
        nets = [model(), model()]

        def work(rank):
            net = nets[rank]
            worker = self.worker(net, server, rank)
            ddp, state = (self.wrap(net, worker) if rank == 0 else (net, None))
            told = []
            for i in range(2):
                if i and rank == 0:
                    with torch.no_grad():
                        net[0].weight[0, 0] += 1.0
                net.zero_grad()
                loss_of(ddp, batch(rank, i)).backward()
                if rank == 0:
                    state.check()
                    told.append(state.last.differing_ranks)
                else:
                    told.append(worker.combine().differing_ranks)
            return told

        with self.assertLogs("agg_server", "WARNING"):
            self.assertEqual(self.team(2, work), [[(), (0, 1)]] * 2)

    def test_one_worker_is_as_without_a_hook(self):
        server = self.serve(workers=1, optimizer="none")
        hooked, plain = model(), model()
        ddp, state = self.wrap(hooked, self.worker(hooked, server))
        other = torch.nn.parallel.DistributedDataParallel(
            plain, process_group=self.node)
        for i in range(3):
            for net, wrapped in ((hooked, ddp), (plain, other)):
                net.zero_grad()
                loss_of(wrapped, batch(0, i)).backward()
            state.check()
            for a, b in zip(hooked.parameters(), plain.parameters()):
                torch.testing.assert_close(a.grad, b.grad, rtol=1e-6,
                                           atol=1e-8)
        self.assertEqual(state.last.version, 3)

    def test_it_is_registered_once(self):
        server = self.serve(workers=1, optimizer="none")
        net = model()
        ddp, state = self.wrap(net, self.worker(net, server))
        with self.assertRaisesRegex(RuntimeError, "register_comm_hook"):
            ddp.register_comm_hook(state, agg.node_hook)

    def test_no_sync_makes_no_round(self):
        server = self.serve(workers=1, optimizer="none")
        net = model()
        worker = self.worker(net, server)
        ddp, state = self.wrap(net, worker)
        with ddp.no_sync():
            loss_of(ddp, batch(0, 0)).backward()
        self.assertIsNone(worker.last)
        loss_of(ddp, batch(0, 1)).backward()
        state.check()
        self.assertEqual(worker.last.version, 1)
        local = model()
        for i in range(2):
            loss_of(local, batch(0, i)).backward()
        for p, q in zip(net.parameters(), local.parameters()):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-6, atol=1e-8)

    def test_unused_parameters(self):
        server = self.serve(workers=1, optimizer="none")
        net = TwoHeads()
        ddp, state = self.wrap(net, self.worker(net, server),
                               find_unused_parameters=True)
        for i in range(2):
            net.zero_grad()
            ddp(batch(0, i)).sum().backward()
            state.check()
            self.assertIsNone(net.b.weight.grad)
            torch.testing.assert_close(net.a.weight.grad,
                                       batch(0, i).sum(0, keepdim=True))
        self.assertEqual(state.last.version, 2)

    def test_a_skipped_round_gives_zeros(self):
        server = self.serve(workers=1, optimizer="none")
        net = model()
        ddp, state = self.wrap(net, self.worker(net, server))
        loss_of(ddp, batch(0, 0) * float("nan")).backward()
        state.check()
        self.assertFalse(state.last.applied)
        for p in net.parameters():
            self.assertTrue((p.grad == 0).all())

    def test_an_error_keeps_its_type(self):
        server = self.serve(workers=1, optimizer="none",
                            config={"max_rounds": 1})
        net = model()
        ddp, state = self.wrap(net, self.worker(net, server))
        loss_of(ddp, batch(0, 0)).backward()
        state.check()
        with self.assertRaises(RuntimeError):
            loss_of(ddp, batch(0, 1)).backward()
        with self.assertRaises(agg.JobFinished):
            state.check()
        state.check()  # it was told

    def test_sparse_gradients_stay_sparse(self):
        server = self.serve(workers=1, optimizer="none")
        net = torch.nn.Embedding(6, 2, sparse=True)
        ddp, state = self.wrap(net, self.worker(net, server))
        ddp(torch.tensor([1, 1, 2])).sum().backward()
        state.check()
        self.assertTrue(net.weight.grad.is_sparse)
        self.assertEqual(net.weight.grad.coalesce().indices().tolist(),
                         [[1, 2]])
        self.assertEqual(net.weight.grad.to_dense()[:3].tolist(),
                         [[0, 0], [2, 2], [1, 1]])

    def test_mistakes_say_what_is_allowed(self):
        server = self.serve(workers=1, lr=1.0)
        net = model()
        before = copies(net)
        with self.assertRaisesRegex(agg.ManifestError, "first process"):
            agg.NodeState(net, self.node, self.side, None)
        with agg.Worker(net, server.address, 0) as worker:
            with self.assertRaisesRegex(agg.ManifestError, '"combine"'):
                agg.NodeState(net, self.node, self.side, worker)
        server = self.serve(workers=1, optimizer="none")
        with self.assertRaisesRegex(agg.ManifestError, "another group"):
            agg.NodeState(net, self.node, self.node,
                          self.worker(net, server))
        self.assert_equal(copies(net), before)

    def test_a_worker_that_overlaps_is_refused(self):
        server = self.serve(workers=1, optimizer="none")
        net = model()
        worker = self.worker(net, server, overlap=True)
        with self.assertRaisesRegex(agg.ManifestError,
                                    "overlap is True.*overlap=False"):
            agg.NodeState(net, self.node, self.side, worker)


if __name__ == "__main__":
    unittest.main()
