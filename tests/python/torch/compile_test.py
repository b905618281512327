"""Under torch.compile: the package's calls are run as they are, so that a
compiled loop ends with the parameters of the same one that is not."""

import inspect
import subprocess
import sys
import unittest

import numpy as np
import torch

from tests.python.job_case import PACKAGE, WAIT, agg
from tests.python.torch.torch_case import (TorchCase, batch, copies,
                                           loss_of, model)
from agg_server import torchft

_STEPS = 4


def compiled(function, backend="eager"):
    """Traced by Dynamo; with "inductor", its graphs are compiled, too."""
    torch.compiler.reset()
    return torch.compile(function, backend=backend)


class CompileTest(TorchCase):

    def assert_same_when_compiled(self, train, **job):
        """train(net, address, maybe_compiled) makes all steps."""
        found = []
        for maybe_compiled in (lambda function: function, compiled):
            server = self.serve(workers=1, **job)
            net = model()
            train(net, server.address, maybe_compiled)
            found.append(copies(net))
        for plain, other in zip(*found, strict=True):
            self.assertTrue(torch.equal(plain, other))
            self.assertTrue(torch.isfinite(plain).all())
        self.assertFalse(torch.equal(found[0][0], copies(model())[0]))

    def test_a_step_of_the_server(self):
        for options in ({}, {"overlap": True}, {"zero_copy": True}):
            def train(net, address, maybe_compiled, options=options):
                with agg.Worker(net, address, 0, **options) as worker:
                    def step(x):
                        loss = loss_of(net, x)
                        loss.backward()
                        worker.step(loss=loss, examples=8)
                        return worker.version

                    step = maybe_compiled(step)
                    for i in range(_STEPS):
                        self.assertEqual(step(batch(0, i)), i + 1)

            with self.subTest(options):
                self.assert_same_when_compiled(train, lr=0.1)

    def test_a_step_behind_compiled_graphs(self):
        """torch.compile's own default: addresses would be numbers of 32 bits
        there."""
        server, net = self.serve(workers=1, lr=0.1), model()
        with agg.Worker(net, server.address, 0) as worker:
            def step(x):
                loss_of(net, x).backward()
                worker.step()

            step = compiled(step, "inductor")
            for i in range(_STEPS):
                step(batch(0, i))
            self.assertEqual(worker.version, _STEPS)

    def test_the_call_itself(self):
        def train(net, address, maybe_compiled):
            with agg.Worker(net, address, 0) as worker:
                step, pull = (maybe_compiled(call)
                              for call in (worker.step, worker.pull))
                for i in range(_STEPS):
                    loss_of(net, batch(0, i)).backward()
                    step()
                    self.assertEqual(pull(), i + 1)

        self.assert_same_when_compiled(train, lr=0.1)

    def test_an_optimizer_on_combined_gradients(self):
        def train(net, address, maybe_compiled):
            with agg.Worker(net, address, 0, mode="combine") as worker:
                opt = agg.Combined(
                    torch.optim.SGD(net.parameters(), lr=0.1), worker)

                def step(x):
                    opt.zero_grad()
                    loss_of(net, x).backward()
                    opt.step()

                step = maybe_compiled(step)
                for i in range(_STEPS):
                    step(batch(0, i))

        self.assert_same_when_compiled(train, optimizer="none")

    def test_the_servers_optimizer(self):
        def train(net, address, maybe_compiled):
            with agg.Worker(net, address, 0) as worker:
                opt = agg.ServerOptimizer(worker)

                def step(x):
                    loss_of(net, x).backward()
                    opt.step()

                step = maybe_compiled(step)
                for i in range(_STEPS):
                    step(batch(0, i))

        self.assert_same_when_compiled(train, lr=0.1)

    def test_local_steps(self):
        def train(net, address, maybe_compiled):
            with agg.Worker(net, address, 0) as worker:
                inner = torch.optim.SGD(net.parameters(), lr=0.1)
                with agg.LocalSteps(worker, inner, every=2):
                    def step(x):
                        inner.zero_grad()
                        loss_of(net, x).backward()
                        inner.step()

                    step = maybe_compiled(step)
                    for i in range(_STEPS):
                        step(batch(0, i))
                self.assertEqual(worker.version, 2)

        self.assert_same_when_compiled(train, optimizer="add")

    def test_all_reduce(self):
        tensors = {"x": torch.arange(3.0)}
        worker = self.lone_worker(tensors, mode="combine")
        call = compiled(lambda x: agg.allreduce({"x": 2 * x}, worker)["x"])
        for _ in range(_STEPS):
            self.assertEqual(call(tensors["x"]).tolist(), [0, 2, 4])

    def test_numpy(self):
        w = np.zeros(3, np.float32)
        client = self.lone_client({"w": w}, lr=1.0)

        def step(x):
            client.step({"w": np.ones(3, np.float32)})
            return x + client.version

        step = compiled(step)
        for i in range(_STEPS):
            self.assertEqual(step(torch.zeros(())).item(), i + 1)
        np.testing.assert_array_equal(w, np.full(3, -_STEPS))

    def test_every_public_call_is_untraced(self):
        """Each function of `untraced` has the one that it runs."""
        for cls in (agg.Client, agg.Observer, agg.Worker, agg.Combined,
                    agg.ServerOptimizer, agg.TauSchedule, agg.LocalSteps,
                    agg.NodeState, agg.LocalServer, torchft.Manager,
                    torchft.Work):
            for base in cls.__mro__:
                if not base.__module__.startswith("agg_server"):
                    continue
                for name, value in vars(base).items():
                    if name.startswith("_"):
                        continue
                    call = value.fget if isinstance(value, property) else value
                    if inspect.isfunction(call):
                        self.assertTrue(hasattr(call, "__wrapped__"),
                                        f"{base.__name__}.{name}")
        for call in (agg.allreduce, agg.node_hook, agg.read_checkpoint):
            self.assertTrue(hasattr(call, "__wrapped__"), call.__name__)

    def test_numpy_users_import_no_torch_and_torch_users_no_dynamo(self):
        for use, absent in (
                ("agg.Client, agg.Observer, agg.LocalServer", "torch"),
                ("agg.Worker, agg.Combined, agg.node_hook", "torch._dynamo")):
            subprocess.run(
                [sys.executable, "-B", "-c",
                 f"import sys\nsys.path.insert(0, {str(PACKAGE)!r})\n"
                 f"import agg_server as agg\n{use}\n"
                 f"assert {absent!r} not in sys.modules"],
                timeout=WAIT, check=True)

    def test_calls_keep_their_names_and_documents(self):
        self.assertEqual(agg.Worker.step.__name__, "step")
        self.assertIn("Args:", agg.Worker.step.__doc__)
        self.assertIn("newest", agg.Worker.pull.__doc__)
        self.assertIn("version", inspect.signature(agg.Worker.pull).parameters)


if __name__ == "__main__":
    unittest.main()
