"""What torch's autograd may do between a worker's steps: with overlap the same
bits as without, or an error."""

import copy
import unittest

import torch
from torch.utils.checkpoint import checkpoint

from tests.python.job_case import agg
from tests.python.torch.torch_case import TorchCase

torch.manual_seed(0)
_MODEL = torch.nn.Sequential(
    torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8),
    torch.nn.Tanh(), torch.nn.Linear(8, 3))


def input_of(i):
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(i))


def loss_of(net, i):
    return net(input_of(i)).pow(2).mean()


class AutogradTest(TorchCase):

    def train(self, use, **options):
        """The parameters after use(worker, net, i) for three rounds."""
        net = copy.deepcopy(_MODEL)
        worker = self.lone_worker(net, lr=0.1, **options)
        for i in range(3):
            use(worker, net, i)
        self.assertEqual(worker.version, 3)
        return [p.detach().clone() for p in net.parameters()]

    def assert_same(self, use, **options):
        """With overlap as without it."""
        for a, b in zip(self.train(use, overlap=True, **options),
                        self.train(use, **options), strict=True):
            self.assertTrue(torch.equal(a, b))

    def test_checkpoints_whose_backward_is_inside_another(self):
        """Tied layers, too: their gradients come twice."""
        for layers in ((0, 2), (2, 2), (0, 0, 2)):
            def use(worker, net, i, layers=layers):
                x = input_of(i).requires_grad_()
                for layer in layers:
                    x = checkpoint(torch.nn.Sequential(net[layer], net[1]), x,
                                   use_reentrant=True)
                # Outside, too: its gradient comes before the others.
                net[4](net[1](net[2](x))).pow(2).mean().backward()
                worker.step()

            with self.subTest(layers):
                self.assert_same(use, find_unused=True)

    def test_a_backward_that_a_hook_calls(self):
        def use(worker, net, i):
            hidden = net[1](net[0](input_of(i)))

            def hook(_):
                with torch.enable_grad():
                    net[2](input_of(i + 9)).sum().backward()

            hidden.register_hook(hook)
            net[4](net[3](net[2](hidden))).pow(2).mean().backward()
            worker.step()

        self.assert_same(use)

    def test_a_tied_layer(self):
        def use(worker, net, i):
            net[4](net[2](net[2](net[0](input_of(i))))).pow(2).mean().backward()
            worker.step()

        self.assert_same(use)

    def test_a_penalty_on_the_gradient(self):
        """Double backward: what comes first fills no p.grad."""
        def use(worker, net, i):
            loss = loss_of(net, i)
            grads = torch.autograd.grad(loss, list(net.parameters()),
                                        create_graph=True)
            (loss + sum(g.pow(2).sum() for g in grads)).backward()
            worker.step()

        self.assert_same(use)

    def test_hooks_of_others(self):
        """Of tensors, and those that are there before the worker's."""
        net = torch.nn.Linear(2, 1, bias=False)
        torch.nn.init.zeros_(net.weight)

        def triple(p):
            p.grad.mul_(3.0)

        net.weight.register_hook(lambda grad: 2.0 * grad)
        net.weight.register_post_accumulate_grad_hook(triple)
        worker = self.lone_worker(net, lr=1.0, overlap=True)
        net(torch.ones(1, 2)).sum().backward()
        worker.step()
        self.assertEqual(net.weight.tolist(), [[-6.0, -6.0]])
        late = net.weight.register_post_accumulate_grad_hook(triple)
        net(torch.ones(1, 2)).sum().backward()
        with self.assertRaisesRegex(agg.ManifestError, "has changed"):
            worker.step()
        late.remove()

        def fails(_):
            raise ArithmeticError("in a hook")

        late = net.weight.register_post_accumulate_grad_hook(fails)
        with self.assertRaisesRegex(ArithmeticError, "in a hook"):
            net(torch.ones(1, 2)).sum().backward()
        with self.assertRaisesRegex(agg.Error, "did not end"):
            worker.step()
        late.remove()
        net(torch.ones(1, 2)).sum().backward()
        worker.step()
        self.assertEqual(net.weight.tolist(), [[-12.0, -12.0]])

    def test_a_graph_of_before_the_step_is_over(self):
        """However the parameters were written, torch knows that they were."""
        for size in (4, 600):  # few numbers, and many
            for options in ({}, {"overlap": True}, {"zero_copy": True}):
                server = self.serve(workers=1, lr=0.1)
                net = torch.nn.Sequential(torch.nn.Linear(size, size),
                                          torch.nn.Linear(size, size))
                with self.subTest(size=size, **options), agg.Worker(
                        net, server.address, 0, **options) as worker:
                    loss = net(torch.ones(1, size)).pow(2).mean()
                    loss.backward(retain_graph=True)
                    self.assertEqual(worker.step().version, 1)
                    with self.assertRaisesRegex(RuntimeError, "inplace"):
                        loss.backward()

    def test_an_exception_in_no_sync(self):
        def use(worker, net, i):
            with self.assertRaises(ArithmeticError):
                with worker.no_sync():
                    raise ArithmeticError
            loss_of(net, i).backward()
            if worker.overlaps:
                self.assertIsNotNone(worker._overlap._operation)
            worker.step()

        self.assert_same(use)

    def test_a_model_whose_memory_is_replaced(self):
        """What was cached of it is not used: it has the server's values."""
        for options in ({}, {"overlap": True}, {"zero_copy": True}):
            server = self.serve(workers=1, lr=0.1)
            net = copy.deepcopy(_MODEL)

            def transpose(net=net):  # the same memory, another layout
                net[2].weight.data = net[2].weight.data.t()

            def replace(net=net):
                for p in net.parameters():
                    p.data = p.data.clone()

            with self.subTest(options), agg.Worker(
                    net, server.address, 0, **options) as worker, \
                    agg.Observer(server.address) as observer:
                for change in (replace, transpose, net.double, net.float):
                    change()
                    x = input_of(0).to(net[0].weight.dtype)
                    net(x).pow(2).mean().backward()
                    version = worker.step().version
                    for name, array in observer.pull(version)[1].items():
                        self.assertEqual(
                            worker.tensors[name].tolist(), array.tolist(),
                            (change, name))


if __name__ == "__main__":
    unittest.main()
