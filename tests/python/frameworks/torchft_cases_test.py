"""The cases of torchft's own tests of DiLoCo, LocalSGD and DDP, with our manager
and a job in place of its lighthouse or a mock."""

import importlib.util
import unittest
from unittest import mock

import torch

from tests.python.job_case import agg
from tests.python.torch.torch_case import (TorchCase, batch, copies,
                                           loss_of, model)

if importlib.util.find_spec("torchft"):
    from torchft import local_sgd
    from torchft.ddp import DistributedDataParallel
    from agg_server.torchft import Manager

# What torchft's regression test of streaming DiLoCo has in its files: two
# fragments of one weight each, which begins with 1 and loses 2 in each inner step;
# synchronized every 6 steps, with an outer SGD of rate 2. By the delay in steps
# and the part of the local weight that stays: both weights after every third
# step, where one of them is synchronized.
FIXTURES = {
    (0, 0.0): ((1, 1), (-11, -5), (-17, -23), (-35, -29), (-41, -47),
               (-59, -53)),
    (0, 0.5): ((1, 1), (-8, -5), (-14, -17), (-24.5, -23), (-30.5, -32),
               (-40.25, -38)),
    (0, 1.0): ((1, 1), (-5, -5), (-11, -11), (-17, -17), (-23, -23),
               (-29, -29)),
    (1, 0.0): ((1, 1), (-7, -5), (-13, -19), (-27, -25), (-33, -39),
               (-47, -45)),
    (1, 0.5): ((1, 1), (-6, -5), (-12, -15), (-21.5, -21), (-27.5, -29),
               (-35.75, -35)),
    (1, 1.0): ((1, 1), (-5, -5), (-11, -11), (-17, -17), (-23, -23),
               (-29, -29)),
}


class Fragment(torch.nn.Module):
    """One weight, whose gradient does not depend on a loss."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1, 1))


def sgd(net, rate):
    return torch.optim.SGD(net.parameters(), lr=rate)


@unittest.skipUnless(importlib.util.find_spec("torchft"),
                     "torchft is not installed")
class TorchftCasesTest(TorchCase):

    def run_ranks(self, make, work, **options):
        """work(net, manager, rank) for two ranks; their results."""
        server = self.serve(shards=2, workers=2, optimizer="none")
        nets = [make(), make()]  # torch's generator is one for all threads

        def one(rank):
            with agg.Worker(nets[rank], server.address, rank, mode="combine",
                            **options) as worker:
                return work(nets[rank], Manager(worker), rank)

        return self.team(2, one)

    def test_streaming_diloco_has_the_committed_weights(self):
        for (delay, alpha), expected in FIXTURES.items():
            def work(net, manager, _, delay=delay, alpha=alpha):
                inner, history = sgd(net, 1.0), []
                with local_sgd.DiLoCo(
                        manager, list(net), inner,
                        [sgd(fragment, 2.0) for fragment in net], sync_every=6,
                        fragment_sync_delay=delay,
                        fragment_update_alpha=alpha):
                    for step in range(16):
                        if step % 3 == 0:
                            history.append([p.item() for p in
                                            net.parameters()])
                        for p in net.parameters():
                            p.grad = torch.full_like(p, 2.0)
                        inner.step()
                self.assertEqual(manager.current_step(), 5)
                return history

            with self.subTest(delay=delay, alpha=alpha):
                for history in self.run_ranks(
                        lambda: torch.nn.ModuleList([Fragment(), Fragment()]),
                        work, find_unused=True):
                    torch.testing.assert_close(
                        torch.tensor(history), torch.tensor(expected),
                        rtol=1e-6, atol=0, check_dtype=False)

    def test_a_healthy_round_of_local_sgd(self):
        def work(net, manager, rank):
            inner = sgd(net, 0.1)
            with mock.patch.multiple(
                    manager, start_quorum=mock.DEFAULT, allreduce=mock.DEFAULT,
                    should_commit=mock.DEFAULT) as calls:
                for name, call in calls.items():
                    call.side_effect = getattr(Manager, name).__get__(manager)
                with local_sgd.LocalSGD(manager, net, inner, sync_every=2
                                        ) as steps:
                    for expected in (1, 0):
                        loss_of(net, batch(rank, expected)).backward()
                        inner.step()
                        self.assertEqual(steps._local_step, expected)
                return {name: call.call_count for name, call in calls.items()}

        for counts in self.run_ranks(model, work):
            self.assertEqual(counts, {"start_quorum": 1, "allreduce": 4,
                                      "should_commit": 1})

    def test_the_outer_gradient_is_what_was_lost_on_average(self):
        """old - new: ranks go by 2 and by 4, so it is -3."""
        def work(net, manager, rank):
            with local_sgd.DiLoCo(manager, [net], sgd(net, 0.1),
                                  sgd(net, 0.1), sync_every=2) as diloco:
                fragment = diloco._fragments[0]
                fragment.save_parameters()
                with torch.no_grad():
                    for p in net.parameters():
                        p.add_(2.0 * (rank + 1))
                fragment.prepare_sync()
                for p in net.parameters():
                    self.assertIsNone(p.grad)
                for each in fragment._allreduce_work:
                    each.wait()
                fragment._set_grads()
            return [p.grad.clone() for p in net.parameters()]

        for grads in self.run_ranks(model, work):
            for grad in grads:
                torch.testing.assert_close(grad, torch.full_like(grad, -3.0),
                                           rtol=1e-5, atol=0)

    def diloco(self, **options):
        """(Parameters of rank 0, calls of allreduce) after two rounds."""
        def work(net, manager, rank):
            inner = torch.optim.AdamW(net.parameters(), lr=4e-4,
                                      weight_decay=0.1, betas=(0.9, 0.95))
            outer = torch.optim.SGD(net.parameters(), lr=0.7, momentum=0.9,
                                    nesterov=True)
            self.assertEqual(outer.state_dict()["state"], {})
            calls, allreduce = [], manager.allreduce

            def counted(tensor, *args, **kwargs):
                calls.append(tensor.numel())
                return allreduce(tensor, *args, **kwargs)

            manager.allreduce = counted
            with local_sgd.DiLoCo(manager, [net], inner, outer, sync_every=2,
                                  **options) as diloco:
                for i in range(4):
                    inner.zero_grad()
                    loss_of(net, batch(rank, i)).backward()
                    inner.step()
                    self.assertEqual(diloco._local_step, (i + 1) % 2)
                for name, p in net.named_parameters():
                    self.assertTrue(torch.equal(
                        p, diloco._fragments[0].original_parameters[name]))
            self.assertEqual(len(outer.state_dict()["state"]), 4)
            return copies(net), calls

        (first, calls), (second, _) = self.run_ranks(model, work)
        self.assert_equal(first, second)
        return first, calls

    def test_a_bucket_gives_the_same_with_fewer_calls(self):
        """29 numbers in tensors of 20, 4, 4 and 1."""
        plain, calls = self.diloco()
        self.assertEqual(calls, [20, 4, 4, 1] * 2)
        found, calls = self.diloco(use_bucketization=True)
        self.assertEqual(calls, [29] * 2)
        for a, b in zip(found, plain, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-8)

    def test_a_second_bucket_is_refused(self):
        """Its DiLoCo would copy all of them from the last one."""
        fragment = local_sgd._StreamingDiLoCoFragment
        bucketize = fragment._bucketize_and_allreduce

        def small(self, tensors, bucket_size_bytes):
            del bucket_size_bytes
            bucketize(self, tensors, 24 * 4)

        with mock.patch.object(fragment, "_bucketize_and_allreduce", small):
            with self.assertRaisesRegex(agg.ManifestError, "second bucket"):
                self.diloco(use_bucketization=True)

    def test_its_ddp_is_refused_by_name(self):
        """Its buckets do not say whose gradients they are."""
        net = model()
        worker = self.lone_worker(net, mode="combine")
        wrapped = DistributedDataParallel(Manager(worker), net)
        with self.assertRaisesRegex(
                Exception, "PureDistributedDataParallel.*node_hook"):
            loss_of(wrapped, batch(0, 0)).backward()
        self.assertEqual(worker.version, 0)


if __name__ == "__main__":
    unittest.main()
