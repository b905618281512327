"""A model that is not the one any more that its Worker was made of."""

import threading
import unittest
import warnings

import torch

from tests.python.job_case import agg
from tests.python.torch.torch_case import TorchCase, copies


_seeding = threading.Lock()


def net_of():
    with _seeding:  # the generator is the process's
        torch.manual_seed(7)
        return torch.nn.Sequential(torch.nn.Linear(3, 3),
                                   torch.nn.Linear(3, 3),
                                   torch.nn.Linear(3, 1))


def backward(net, scale=1.0):
    (scale * net(torch.ones(2, 3)).sum()).backward()


def decaying(net, worker):
    return agg.Combined(torch.optim.AdamW(net.parameters(), lr=0.1,
                                          weight_decay=0.5), worker)


def assign_state(net):
    net.load_state_dict({k: torch.nn.Parameter(v.clone())
                         for k, v in net.state_dict().items()}, assign=True)


def tie(net):
    net[1].weight = net[0].weight


def replace_layer(net):
    net[2] = torch.nn.Linear(3, 1)


def set_anew(net):
    net[1].bias = torch.nn.Parameter(torch.zeros(3))


def add_layer(net):
    net.append(torch.nn.Linear(1, 1))


def unfreeze(net):
    net[0].requires_grad_(True)


class ReplacedTest(TorchCase):

    def test_what_was_replaced_is_named_and_nothing_is_pushed(self):
        for change, text, options in (
                (assign_state, r'"0.weight" \(and 5 more\)', {}),
                (assign_state, '"0.weight"', {"find_unused": True}),
                (tie, 'parameter "1.weight" of the model is another', {}),
                (tie, '"1.weight"', {"find_unused": True}),
                (replace_layer, r'"2.weight" \(and 1 more\)', {}),
                (set_anew, '"1.bias"', {}),
                (add_layer, 'parameter "3.weight" has a gradient and is none',
                 {}),
                (unfreeze, 'parameter "0.weight" has a gradient and is none of '
                 "the Worker's tensors", {})):
            for mode in ("server", "combine"):
                with self.subTest(change=change.__name__, mode=mode, **options):
                    net = net_of()
                    net[0].requires_grad_(change is not unfreeze)
                    worker = self.lone_worker(net, lr=0.1, mode=mode, **options)
                    step = worker.step if mode == "server" else worker.combine
                    backward(net)
                    step()
                    net.zero_grad()
                    change(net)
                    backward(net)
                    with self.assertRaisesRegex(agg.ManifestError, text):
                        step()
                    self.assertEqual(worker.version, 1)

    def test_what_stays_the_same_is_allowed(self):
        net = net_of()
        worker = self.lone_worker(net, lr=0.1)
        for change in (
                lambda: net[0].register_buffer("seen", torch.zeros(1)),
                lambda: net.add_module("act", torch.nn.Identity()),
                lambda: net.eval(),
                lambda: setattr(net[1], "bias", net[1].bias)):
            change()
            backward(net)
            version = worker.step().version
        self.assertEqual(version, 4)

    def test_models_of_torch_jit(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.jit is deprecated
            nets = [torch.jit.script(net_of()),
                    torch.jit.trace(net_of(), torch.ones(2, 3))]
        for net in nets:
            worker = self.lone_worker(net, lr=0.1)
            backward(net)
            self.assertEqual(worker.step().version, 1)


class UnfrozenTest(TorchCase):

    def test_the_optimizer_of_combined_has_it(self):
        net, extra = net_of(), torch.nn.Linear(2, 2)
        net[0].requires_grad_(False)
        worker = self.lone_worker(net, mode="combine")
        opt = agg.Combined(torch.optim.SGD(net.parameters(), lr=0.1),
                           worker)
        with self.assertRaisesRegex(
                agg.ManifestError, r"parameter 0 of group 0, of shape "
                r"\(2, 2\), of the optimizer is none of"):
            opt.add_param_group({"params": extra.parameters()})
        self.assertEqual(len(opt.param_groups), 1)
        # By the inner one nobody hears of it before the step.
        opt.inner.add_param_group({"params": list(extra.parameters())})
        extra(torch.ones(1, 2)).sum().backward()
        backward(net)
        with self.assertRaisesRegex(agg.ManifestError, "0 of group 1"):
            opt.step()
        extra.zero_grad()
        net[0].requires_grad_(True)
        with self.assertRaisesRegex(agg.ManifestError, '"0.weight"'):
            opt.add_param_group({"params": [net[0].weight]})
        self.assertEqual(worker.version, 0)

    def test_a_group_of_what_the_worker_has(self):
        net = net_of()
        worker = self.lone_worker(net, mode="combine")
        opt = agg.Combined(torch.optim.SGD(net[0].parameters(), lr=0.0),
                           worker)
        opt.add_param_group({"params": net[1].parameters(), "lr": 1.0})
        before = copies(net)
        backward(net)
        opt.step()
        moved = [not torch.equal(a, b)
                 for a, b in zip(before, net.parameters())]
        self.assertEqual(moved, [False] * 2 + [True] * 2 + [False] * 2)
        self.assertIs(opt.param_groups, opt.inner.param_groups)

    def test_the_optimizer_of_local_steps_has_it(self):
        net, extra = net_of(), torch.nn.Linear(2, 2)
        worker = self.lone_worker(net, optimizer="add", lr=1.0)
        inner = torch.optim.SGD([*net.parameters(), *extra.parameters()],
                                lr=0.1)
        with self.assertRaisesRegex(agg.ManifestError, "6 of group 0"):
            agg.LocalSteps(worker, inner, every=1)
        inner = torch.optim.SGD(net.parameters(), lr=0.1)
        with agg.LocalSteps(worker, inner, every=1):
            inner.add_param_group({"params": list(extra.parameters())})
            backward(net)
            with self.assertRaisesRegex(agg.ManifestError, "0 of group 1"):
                inner.step()


class UnusedTest(TorchCase):
    """A gradient that nobody has pushed is none: decay and momentum would move
    the parameter."""

    def run_job(self, used, rounds=3):
        """used(rank, i): which layers the loss goes through."""
        def run(worker, net, rank):
            opt = decaying(net, worker)
            grads = []
            for i in range(rounds):
                opt.zero_grad()
                x = torch.ones(2, 3)
                for layer in used(rank, i):
                    x = net[layer](x)
                x.sum().backward()
                opt.step()
                grads.append([p.grad is None for p in net.parameters()])
            self.assertEqual(worker.last.differing_ranks, ())
            return copies(net), grads

        (first, none0), (second, none1) = self.job_of(
            2, run, make=lambda rank: net_of(), shards=2, mode="combine",
            find_unused=True)
        self.assert_equal(first, second)
        self.assertEqual(none0, none1)
        moved = [not torch.equal(a, b)
                 for a, b in zip(first, net_of().parameters())]
        return moved[::2], [row[::2] for row in none0]

    def test_a_layer_that_nobody_uses_stays(self):
        moved, none = self.run_job(lambda rank, i: (0, 2))
        self.assertEqual(moved, [True, False, True])
        self.assertEqual(none, [[False, True, False]] * 3)

    def test_a_layer_that_one_rank_uses_moves_in_all(self):
        moved, none = self.run_job(
            lambda rank, i: (0, 1, 2) if rank == i % 2 else (0, 2))
        self.assertEqual(moved, [True] * 3)
        self.assertEqual(none, [[False] * 3] * 3)

    def test_it_may_be_used_later(self):
        moved, none = self.run_job(
            lambda rank, i: (0, 1, 2) if i == 2 and rank == 1 else (0, 2))
        self.assertEqual(moved, [True] * 3)
        self.assertEqual(none[0], [False, True, False])
        self.assertEqual(none[2], [False] * 3)

    def test_a_layer_that_only_a_row_that_was_left_out_had(self):
        def run(worker, net, rank):
            opt = decaying(net, worker)
            x = net[0](torch.ones(2, 3))
            if rank == 1:
                x = net[1](x * float("nan"))
            net[2](x).sum().backward()
            opt.step()
            self.assertEqual(worker.last.excluded_ranks, (1,))
            self.assertIsNone(net[1].weight.grad)
            return copies(net)

        self.assert_equal(*self.job_of(
            2, run, make=lambda rank: net_of(), mode="combine",
            find_unused=True))

    def test_a_gradient_of_zeros_is_one(self):
        """torch, too, decays a parameter whose gradient is zero."""
        net = net_of()
        worker = self.lone_worker(net, mode="combine", find_unused=True)
        opt = decaying(net, worker)
        before = net[0].weight.detach().clone()
        backward(net, scale=0.0)
        opt.step()
        self.assertEqual(worker.last.absent_tensors, ())
        self.assertFalse(torch.equal(net[0].weight, before))

    def test_a_layer_that_was_frozen_stays(self):
        def run(worker, net, rank):
            opt = decaying(net, worker)
            backward(net)
            opt.step()
            opt.zero_grad()
            net[1].requires_grad_(False)
            before = net[1].weight.detach().clone()
            for _ in range(2):
                backward(net)
                opt.step()
                opt.zero_grad()
            return torch.equal(net[1].weight, before)

        self.assertEqual(self.job_of(
            2, run, make=lambda rank: net_of(), mode="combine",
            find_unused=True), [True, True])

    def test_a_layer_that_was_frozen_is_named(self):
        net = net_of()
        worker = self.lone_worker(net, mode="combine")
        net[1].requires_grad_(False)
        backward(net)
        with self.assertRaisesRegex(
                agg.ManifestError, '"1.weight".*does not require a gradient '
                "any more: say find_unused=True"):
            worker.combine()

    def test_ordinary_calls_say_it_too(self):
        """Rows that are too large for one trip."""
        def make(_):
            return torch.nn.ParameterDict({
                name: torch.nn.Parameter(torch.ones(1 << 20))
                for name in ("a", "b", "c")})

        def run(worker, net, rank):
            name = "a" if rank else "c"
            (net[name] * 2).sum().backward()
            outcome = worker.combine()
            self.assertIsNone(net["b"].grad)
            self.assertEqual(net["a"].grad[:2].tolist(), [1.0, 1.0])
            return outcome.absent_tensors

        self.assertEqual(self.job_of(2, run, make, shards=2, mode="combine",
                                     find_unused=True), [(1,), (1,)])


if __name__ == "__main__":
    unittest.main()
