"""Gradients that are sent while backward goes on: the same bits as at the end,
or an error."""

import copy
import gc
import threading
import unittest
import weakref
from unittest import mock

import torch

from tests.python.job_case import WAIT, agg
from tests.python.torch.torch_case import TorchCase
from agg_server._overlap import Overlap
from agg_server._row import Row

torch.manual_seed(0)
# Two tensors of a megabyte, which go by themselves, and small ones.
_MODEL = torch.nn.Sequential(
    torch.nn.Linear(600, 600), torch.nn.Tanh(), torch.nn.Linear(600, 600),
    torch.nn.Tanh(), torch.nn.Linear(600, 3))


class Failing(torch.autograd.Function):
    """Its backward raises while `fails`."""
    fails = False

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if Failing.fails:
            raise ArithmeticError("half way")
        return grad


def model():
    return copy.deepcopy(_MODEL)


def loss_of(net, rank, i, part=slice(None)):
    """Through Failing in the middle."""
    generator = torch.Generator().manual_seed(1000 * rank + i)
    x = torch.randn(6, 600, generator=generator)[part]
    return net[4](net[3](net[2](Failing.apply(net[1](net[0](x)))))).pow(
        2).mean()


class OverlapTest(TorchCase):

    def setUp(self):
        Failing.fails = False

    def train(self, steps, use, workers=2, rule="adasum", **options):
        """The parameters after use(worker, net, rank, i) for i in
        range(steps), which must be the same on all workers."""
        server = self.serve(shards=2, workers=workers, rule=rule, lr=0.1)

        def work(rank):
            net = model()
            with agg.Worker(net, server.address, rank, **options) as worker:
                for i in range(steps):
                    use(worker, net, rank, i)
                self.assertEqual(worker.version, steps)
            return [p.detach().clone() for p in net.parameters()]

        first, *others = self.team(workers, work)
        for other in others:
            self.assert_equal(first, other)
        return first

    def assert_same(self, steps, use, plain=None, **options):
        """With overlap `use` gives the same bits as `plain` without it."""
        self.assert_equal(self.train(steps, use, overlap=True, **options),
                          self.train(steps, plain or self.plain, **options))

    @staticmethod
    def plain(worker, net, rank, i):
        loss = loss_of(net, rank, i)
        loss.backward()
        worker.step(loss=loss)

    def test_the_bits_of_a_push_at_the_end(self):
        expected = self.train(4, self.plain)
        for options in ({"overlap": True}, {"zero_copy": True},
                        {"overlap": True, "zero_copy": True}):
            with self.subTest(options):
                self.assert_equal(self.train(4, self.plain, **options),
                                  expected)

    def test_the_row_is_there_before_the_step(self):
        worker = self.lone_worker(model(), lr=0.1, overlap=True)
        sum(t.pow(2).sum() for t in worker.tensors.values()).backward()
        row = worker._overlap._operation
        self.assertTrue(row.done(WAIT), "nothing was sent, or not all")
        worker._session.end_of(row)
        self.assertEqual(worker.version, 0)
        self.assertEqual(worker.step().version, 1)

    def test_each_gradient_is_handed_over_before_its_group_goes(self):
        events = []
        handed, sent = Row.hand_over, Overlap._send

        def hand_over(row, gradient):
            events.append(gradient.data_ptr())
            handed(row, gradient)

        def send(overlap):
            events.append("send")
            sent(overlap)

        with mock.patch.object(Row, "hand_over", hand_over), \
                mock.patch.object(Overlap, "_send", send):
            self.train(1, self.plain, workers=1, overlap=True)
        # A small one waits for a large one, whose hook sends both.
        tensors = [event for event in events if event != "send"]
        self.assertEqual(len(set(tensors)), len(list(_MODEL.parameters())))
        self.assertIn("send", events)
        self.assertNotEqual(events[0], "send")
        self.assertNotEqual(events[1], "send")

    def test_combine(self):
        results = []
        for overlap in (False, True):
            server = self.serve(workers=2, rule="adasum", optimizer="none")

            def work(rank):
                net = model()
                with agg.Worker(net, server.address, rank, mode="combine",
                                overlap=overlap) as worker:
                    for i in range(2):
                        net.zero_grad()
                        (8 * loss_of(net, rank, i)).backward()
                        self.assertTrue(worker.combine(loss_scale=8).applied)
                    return [p.grad.clone() for p in net.parameters()]

            results += self.team(2, work)
        for other in results[1:]:
            self.assert_equal(other, results[0])

    def test_accumulation_in_no_sync(self):
        for nested in (False, True):
            def use(worker, net, rank, i, nested=nested):
                with worker.no_sync():
                    if nested:
                        with worker.no_sync():
                            pass
                    (loss_of(net, rank, i, slice(0, 3)) / 2).backward()
                (loss_of(net, rank, i, slice(3, 6)) / 2).backward()
                worker.step(accumulation=2)

            with self.subTest(nested=nested):
                self.assert_same(2, use, use)

    def test_all_of_a_step_in_no_sync(self):
        def use(worker, net, rank, i):
            with worker.no_sync():
                loss_of(net, rank, i).backward()
            worker.step()

        self.assert_same(2, use)

    def test_a_second_backward_is_refused_by_name(self):
        def use(worker, net, rank, i):
            if rank == 0 and i == 1:
                loss_of(net, 7, 7).backward()
                with self.assertRaisesRegex(agg.ManifestError,
                                            '"4.bias" came twice.*no_sync'):
                    loss_of(net, rank, i).backward()
                with self.assertRaisesRegex(agg.Error, "did not end"):
                    worker.step()
            self.plain(worker, net, rank, i)

        self.assert_same(3, use)

    def fail_half_way(self, net):
        Failing.fails = True
        with self.assertRaisesRegex(ArithmeticError, "half way"):
            loss_of(net, 7, 7).backward()
        Failing.fails = False

    def test_a_backward_that_raises_is_no_row(self):
        for unused in (False, True):
            def use(worker, net, _, i):
                if i == 1:
                    self.fail_half_way(net)
                    self.assertIsNotNone(net[4].weight.grad)
                    with self.assertRaisesRegex(agg.Error, "did not end"):
                        worker.step()
                    self.assertIsNone(net[4].weight.grad)
                self.plain(worker, net, 0, i)

            with self.subTest(find_unused=unused):
                self.assert_equal(
                    self.train(3, use, workers=1, overlap=True,
                               find_unused=unused),
                    self.train(3, self.plain, workers=1))

    def test_backward_again_after_one_that_raised(self):
        def use(worker, net, _, i):
            if i == 1:
                self.fail_half_way(net)
                net.zero_grad()
            self.plain(worker, net, 0, i)

        self.assert_same(3, use, workers=1)

    def test_gradients_that_cannot_be_sent_are_no_row(self):
        """Whether they go while backward runs, or at its end."""
        for failing in (0, 1):
            server = self.serve(workers=1, lr=1.0)
            big = torch.zeros(1 << 19, requires_grad=True)
            small = torch.zeros(2, requires_grad=True)

            def backward():
                # The big one comes first, and goes by itself.
                (small * 1.0).sum().add((big * 3.0).sum()).backward()

            with self.subTest(failing), agg.Worker(
                    {"big": big, "small": small}, server.address, 0,
                    overlap=True, find_unused=True) as worker:
                row = worker._overlap._row
                views = row.views

                def refused(indices, rows):
                    if failing in indices:
                        row.views = views
                        raise MemoryError("no room")
                    return views(indices, rows)

                row.views = refused
                with self.assertRaisesRegex(MemoryError, "no room"):
                    backward()
                with self.assertRaisesRegex(agg.Error, "did not end"):
                    worker.step()
                self.assertEqual((worker.version, small.grad), (0, None))
                backward()
                self.assertEqual(worker.step().version, 1)
                self.assertEqual((small.tolist(), big[:2].tolist()),
                                 ([-1.0, -1.0], [-3.0, -3.0]))

    def test_hooks_of_two_threads_come_one_by_one(self):
        """As with a model on two devices: autograd has a thread for each."""
        # Each goes by itself.
        tensors = {name: torch.zeros(1 << 18, requires_grad=True)
                   for name in "xy"}
        worker = self.lone_worker(tensors, lr=1.0, overlap=True)
        overlap = worker._overlap
        overlap._backwards.add(-1)  # no backward: the number of none
        for tensor in tensors.values():
            tensor.grad = torch.ones_like(tensor)
        came, entered = threading.Event(), []
        thread = threading.Thread(target=overlap.on_gradient,
                                  args=(1, tensors["y"]), daemon=True)
        lock, views = overlap._lock, overlap._row.views

        class TellingLock:
            def __enter__(self):
                if threading.current_thread() is thread:
                    came.set()
                lock.acquire()

            def __exit__(self, *_):
                lock.release()

        def telling_views(indices, rows):
            entered.append(threading.current_thread() is thread)
            came.set()
            if not entered[-1]:
                came.clear()
                thread.start()
                self.assertTrue(came.wait(WAIT))
                self.assertEqual(entered, [False])
            return views(indices, rows)

        overlap._lock, overlap._row.views = TellingLock(), telling_views
        overlap.on_gradient(0, tensors["x"])
        thread.join(WAIT)
        overlap._row.views = views
        self.assertEqual(entered, [False, True])
        overlap._on_end(-1)
        self.assertEqual(worker.step().version, 1)
        self.assertEqual([t[0].item() for t in tensors.values()],
                         [-1.0, -1.0])

    def test_a_gradient_that_was_changed_is_refused_by_name(self):
        def use(worker, net, rank, i):
            if i == 1:
                for change in (
                        lambda: torch.nn.utils.clip_grad_norm_(
                            net.parameters(), 1e-3),
                        lambda: setattr(net[0].weight, "grad",
                                        torch.zeros(600, 600)),
                        net.zero_grad):
                    loss_of(net, 7, 7).backward()
                    change()
                    with self.assertRaisesRegex(
                            agg.ManifestError, 'gradient of ".*" has changed'):
                        worker.step()
            self.plain(worker, net, rank, i)

        self.assert_same(2, use)

    def test_a_step_that_is_left_out(self):
        """zero_grad() gives the gradients up, whether it deletes them or not."""
        for to_none in (True, False):
            def use(worker, net, rank, i, to_none=to_none):
                for _ in range(2):
                    loss_of(net, 7, 7).backward()
                    net.zero_grad(set_to_none=to_none)
                self.plain(worker, net, rank, i)

            for options in ({}, {"zero_copy": True}):
                with self.subTest(to_none=to_none, **options):
                    self.assert_equal(
                        self.train(2, use, overlap=True, **options),
                        self.train(2, self.plain))

    def test_given_up_in_part(self):
        """The backward that is left out came to other tensors."""
        def use(worker, net, rank, i):
            net[4](torch.ones(2, 600)).sum().backward()
            net.zero_grad()
            with worker.no_sync():
                net[4](torch.ones(2, 600)).sum().backward()
                net.zero_grad()
            net[0](torch.full((2, 600), rank + i + 1.0)).sum().backward()
            worker.step()

        def plain(worker, net, rank, i):
            net[0](torch.full((2, 600), rank + i + 1.0)).sum().backward()
            worker.step()

        self.assert_same(2, use, plain, find_unused=True)

    def test_no_sync_behind_a_step_that_is_left_out(self):
        def use(worker, net, rank, i):
            loss_of(net, 7, 7).backward()
            net.zero_grad()
            with worker.no_sync():
                (loss_of(net, rank, i, slice(0, 3)) / 2).backward()
            (loss_of(net, rank, i, slice(3, 6)) / 2).backward()
            worker.step(accumulation=2)

        def plain(worker, net, rank, i):
            for part in (slice(0, 3), slice(3, 6)):
                (loss_of(net, rank, i, part) / 2).backward()
            worker.step(accumulation=2)

        self.assert_same(2, use, plain)

    def test_two_models_that_learn_from_each_other(self):
        """The generator's loss goes through the discriminator, whose gradients
        of it nobody wants."""
        def train(**options):
            servers = [self.serve(workers=1, lr=0.1) for _ in range(2)]
            torch.manual_seed(1)
            making, judging = (torch.nn.Linear(600, 600) for _ in range(2))
            with agg.Worker(making, servers[0].address, 0, **options
                            ) as maker, agg.Worker(
                                judging, servers[1].address, 0, **options
                            ) as judge:
                for i in range(3):
                    noise = torch.full((2, 600), i + 1.0)
                    judging.zero_grad()
                    judging(making(noise).detach()).pow(2).mean().backward()
                    judge.step()
                    making.zero_grad()
                    judging(making(noise)).mean().backward()
                    maker.step()
            return [p.detach().clone() for net in (making, judging)
                    for p in net.parameters()]

        self.assert_equal(train(overlap=True), train())

    def test_heads_that_learn_apart(self):
        """Tensors of two backwards, and one of none."""
        def use(worker, net, rank, i):
            x = torch.full((2, 600), rank + i + 1.0)
            net[4](x).sum().backward()
            net[0](x).sum().backward()
            worker.step()

        self.assert_same(2, use, use, find_unused=True)

    def test_a_pull_between_backward_and_step(self):
        def use(worker, net, _, i):
            loss_of(net, 0, i).backward()
            worker.pull()
            worker.step()

        self.assert_same(2, use, workers=1)

    def test_a_step_that_ctrl_c_has_ended_goes_on(self):
        def use(worker, net, rank, i):
            loss_of(net, rank, i).backward()
            if rank == 0 and i == 0:
                session = worker._session
                waits = session._await_operation

                def interrupted(_):
                    session._await_operation = waits
                    raise KeyboardInterrupt

                session._await_operation = interrupted
                with self.assertRaises(KeyboardInterrupt):
                    worker.step()
                self.assertIsNone(net[0].weight.grad)
                # Its parameters were not written: the round is lost for it.
                session.settle()
                worker.pull()
            else:
                worker.step()

        self.assert_same(3, use)

    def test_what_cannot_overlap_is_refused(self):
        server = self.serve(workers=1, lr=1.0, optimizer="add")
        with self.assertRaisesRegex(agg.ManifestError, '"add"'):
            agg.Worker(model(), server.address, 0, overlap=True)
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0,
                                             world_size=1)
        self.addCleanup(torch.distributed.destroy_process_group)
        with self.assertRaisesRegex(agg.ManifestError, "Distributed"):
            agg.Worker(torch.nn.parallel.DistributedDataParallel(model()),
                       server.address, 0, overlap=True)

    def test_tensors_that_backward_does_not_reach_are_refused(self):
        server = self.serve(workers=1, lr=1.0)
        for tensor in (torch.zeros(2), 2 * torch.ones(2, requires_grad=True)):
            with self.assertRaisesRegex(agg.ManifestError, '"x".*overlap'):
                agg.Worker({"x": tensor}, server.address, 0, overlap=True)
        with self.assertRaises(agg.NotNow):  # nobody has joined
            agg.Observer(server.address)

    def test_a_worker_that_is_forgotten_leaves(self):
        server = self.serve(workers=1, lr=1.0)
        net = model()
        worker = agg.Worker(net, server.address, 0, overlap=True)
        loss_of(net, 0, 0).backward()
        session = weakref.ref(worker._session)
        del worker
        gc.collect()
        self.assertIsNone(session())  # its end has closed it
        loss_of(net, 0, 0).backward()  # through hooks of nobody


if __name__ == "__main__":
    unittest.main()
