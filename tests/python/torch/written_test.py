"""What others write into parameters that are the server's: it is said, and
never dropped in silence."""

import threading
import unittest
import warnings
from unittest import mock

import numpy as np
import torch

from tests.python.job_case import agg
from tests.python.torch.torch_case import (TorchCase, batch, copies,
                                           interrupt, loss_of, model)


def load(net):
    net.load_state_dict({n: torch.full_like(t, 7.0)
                         for n, t in net.state_dict().items()})


def copy_under_no_grad(net):
    with torch.no_grad():
        net[0].weight.copy_(torch.ones(4, 5))


def replace_data(net):
    net[0].weight.data = torch.ones(4, 5)


def write_data(net):
    net[2].bias.data.fill_(3.0)


def clip_weights(net):
    for p in net.parameters():
        p.data.clamp_(-0.01, 0.01)


def write_by_numpy(net):
    net[0].weight.detach().numpy()[1, 2] = 9.0


def local_optimizer(net):
    other = model()
    loss_of(other, batch(0, 9)).backward()
    own = [p.grad for p in net.parameters()]
    for p, q in zip(net.parameters(), other.parameters()):
        p.grad = q.grad
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    for p, grad in zip(net.parameters(), own):
        p.grad = grad


def initialise(net):
    torch.nn.init.zeros_(net[0].bias)


def from_a_vector(net):
    vector = torch.nn.utils.parameters_to_vector(net.parameters())
    torch.nn.utils.vector_to_parameters(vector + 1, net.parameters())


def make_nan(net):
    net[0].weight.data[0, 0] = float("nan")


WRITES = [(load, "0.weight"), (copy_under_no_grad, "0.weight"),
          (replace_data, "0.weight"), (write_data, "2.bias"),
          (clip_weights, "0.weight"), (write_by_numpy, "0.weight"),
          (local_optimizer, "0.weight"), (initialise, "0.bias"),
          (from_a_vector, "0.weight"), (make_nan, "0.weight")]


class WrittenTest(TorchCase):

    def step(self, net, worker, i=0):
        loss_of(net, batch(0, i)).backward()
        return worker.step()

    def test_a_write_between_rounds_is_refused_by_name(self):
        for options in ({}, {"zero_copy": True}, {"overlap": True}):
            net = model()
            worker = self.lone_worker(net, lr=0.1, **options)
            self.step(net, worker)
            for write, name in WRITES:
                with self.subTest(write=write.__name__, **options):
                    before, version = copies(net), worker.version
                    write(net)
                    written = copies(net)
                    with self.assertRaisesRegex(
                            agg.NotNow, f'parameter "{name}".*'
                            r"worker\.pull\(\)"):
                        self.step(net, worker)
                    # Nothing was sent, and nothing lost.
                    self.assertEqual(worker.version, version)
                    torch.testing.assert_close(
                        copies(net), written, rtol=0, atol=0,
                        equal_nan=True)
                    # It stays so until somebody decides.
                    with self.assertRaises(agg.NotNow):
                        self.step(net, worker)
                    worker.pull()
                    self.assert_equal(copies(net), before)
                    net.zero_grad()
                    self.step(net, worker)
                    self.assertEqual(worker.version, version + 1)

    def test_right_after_the_worker_was_made(self):
        tensors = {"w": torch.tensor([1.0, 2.0], requires_grad=True)}
        worker = self.lone_worker(tensors, lr=0.1)
        with torch.no_grad():
            tensors["w"].copy_(torch.tensor([5.0, 7.0]))
        tensors["w"].grad = torch.ones(2)
        with self.assertRaisesRegex(agg.NotNow, '"w" was written'):
            worker.step()
        self.assertEqual(tensors["w"].tolist(), [5.0, 7.0])

    def test_what_was_swapped_and_is_back_is_no_write(self):
        for options in ({}, {"zero_copy": True}):
            net = model()
            worker = self.lone_worker(net, lr=0.1, **options)
            average = torch.optim.swa_utils.AveragedModel(net)
            for i in range(4):
                self.step(net, worker, i)
                average.update_parameters(net)
                kept = copies(net)
                with torch.no_grad():
                    for p, mean in zip(net.parameters(),
                                       average.module.parameters()):
                        p.copy_(mean)
                with torch.no_grad():
                    for p, own in zip(net.parameters(), kept):
                        p.data = own
            self.assertEqual(worker.version, 4)

    def test_other_memory_with_the_same_values_is_no_write(self):
        net = model()
        worker = self.lone_worker(net, lr=0.1)
        self.step(net, worker)
        net.load_state_dict({n: t.clone()
                             for n, t in net.state_dict().items()})
        self.step(net, worker)
        net.to(torch.bfloat16)
        loss_of(net, batch(0, 0).bfloat16()).backward()
        worker.step()
        self.assertEqual(worker.version, 3)

    def test_a_large_models_data_is_looked_at_piece_by_piece(self):
        tensors = {f"t{i}": torch.zeros(20_000, requires_grad=True)
                   for i in range(40)}

        def step():
            for t in tensors.values():
                t.grad = torch.zeros_like(t)
            worker.step()

        worker = self.lone_worker(tensors, lr=0.1)
        step()
        for t in tensors.values():  # as an EMA that is swapped in by .data
            t.data.add_(1.0)
        with self.assertRaisesRegex(agg.NotNow, 'and 39 more'):
            step()
        worker.pull()
        seen = 0
        for _ in range(12):
            tensors["t7"].data.add_(1.0)
            try:
                step()
            except agg.NotNow as error:
                self.assertIn('"t7"', str(error))
                worker.pull()
                seen += 1
        # One of 40 tensors is among the 16 of a step in 4 of ten.
        self.assertGreaterEqual(seen, 4)

    def test_local_steps_that_would_be_lost(self):
        net = model()
        worker = self.lone_worker(net, optimizer="add", lr=1.0)
        inner = torch.optim.SGD(net.parameters(), lr=0.1)
        load(net)
        with self.assertRaisesRegex(agg.NotNow, '"0.weight"'):
            with agg.LocalSteps(worker, inner, every=2):
                pass
        worker.pull()
        with agg.LocalSteps(worker, inner, every=2) as local:
            for i in range(3):
                inner.zero_grad()
                loss_of(net, batch(0, i)).backward()
                inner.step()
        with self.assertRaisesRegex(agg.NotNow, r"exchange\(\)"):
            with agg.LocalSteps(worker, inner, every=2):
                pass
        local.exchange()
        with agg.LocalSteps(worker, inner, every=2):
            pass

    def test_a_checkpoint_that_a_running_job_replaces_is_said(self):
        server = self.serve(workers=2, lr=0.1)

        rejoined = threading.Event()

        def late(rank):
            if rank == 0:
                net = model()
                with agg.Worker(net, server.address, 0) as worker:
                    while not rejoined.is_set():  # it is let in between two
                        self.step(net, worker)
                return
            net = model()
            worker = agg.Worker(net, server.address, 1)
            self.step(net, worker)
            worker.close()
            load(net)  # its own --resume
            with self.assertLogs("agg_server", "WARNING") as logs:
                worker = agg.Worker(net, server.address, 1)
            rejoined.set()
            worker.close()
            self.assertRegex(" ".join(logs.output),
                             r"rank 1 joins .* at version \d.* replace")

        self.team(2, late)

    def test_numpy_clients(self):
        w = np.array([1.0, 2.0], np.float32)
        client = self.lone_client({"w": w}, lr=0.1)
        w[:] = [5.0, 7.0]
        with self.assertRaisesRegex(
                agg.NotNow, r'parameter "w" was written.*client\.pull\(\)'):
            client.step({"w": np.ones(2)})
        self.assertEqual(w.tolist(), [5.0, 7.0])
        client.pull()
        client.step({"w": np.ones(2)})
        np.testing.assert_allclose(w, [0.9, 1.9], rtol=1e-6)
        kept = w.copy()
        w[:] = 0
        w[:] = kept
        client.step({"w": np.ones(2)})

    def test_a_pull_of_numpy_clients_that_failed_is_no_write(self):
        w = np.array([1.0, 2.0], np.float32)
        client = self.lone_client({"w": w}, lr=0.1)

        def fails_half_way(*_):
            client._staging["w"][0] = 7.0
            raise agg.Timeout("late")

        with mock.patch.object(client._session, "pull", fails_half_way), \
                self.assertRaises(agg.Timeout):
            client.pull()
        self.assertEqual(client.step({"w": np.ones(2)}).version, 1)
        np.testing.assert_allclose(w, [0.9, 1.9], rtol=1e-6)

    def test_a_round_that_ctrl_c_has_left_is_no_write_of_others(self):
        """Its version is not in the parameters."""
        net = model()
        worker = self.lone_worker(net, lr=0.1)
        self.step(net, worker)
        loss_of(net, batch(0, 1)).backward()
        interrupt(worker)
        with self.assertRaises(KeyboardInterrupt):
            worker.step()
        worker._session.settle()
        kept = copies(net)
        with torch.no_grad():
            for p, own in zip(net.parameters(), kept):
                p.copy_(own)  # a swap, and back
        loss_of(net, batch(0, 2)).backward()
        with self.assertRaisesRegex(
                agg.NotNow, "not those of version 2: .*Ctrl-C.*from "
                r"version 1,.*worker\.pull\(\)") as raised:
            worker.step()
        self.assertNotIn("by others", str(raised.exception))
        worker.pull()
        net.zero_grad()
        self.step(net, worker)
        self.assertEqual(worker.version, 3)

    def test_a_pull_that_ctrl_c_has_left_is_no_write_of_others(self):
        for zero_copy in (False, True):
            net = model()
            worker = self.lone_worker(net, lr=0.1, zero_copy=zero_copy)
            self.step(net, worker)

            def half_way(*_):
                if zero_copy:
                    for target in worker._pulled.targets():
                        target.zero_()
                raise KeyboardInterrupt

            with mock.patch.object(worker._session, "pull", half_way), \
                    self.assertRaises(KeyboardInterrupt):
                worker.pull()
            self.step(net, worker)
            self.assertEqual(worker.version, 2)

    def test_what_is_not_kept_cannot_be_compared(self):
        net = torch.nn.Linear(2, 1)
        worker = self.lone_worker(net, lr=0.1)
        net(torch.ones(1, 2)).sum().backward()
        with torch.no_grad():
            net.weight.add_(1)
        with mock.patch.object(worker._session, "pull",
                               side_effect=agg.VersionGone("gone")), \
                self.assertLogs("agg_server", "WARNING") as logs:
            self.assertEqual(worker.step().version, 1)
        self.assertIn("cannot be compared", logs.output[0])

    def test_numpy_clients_whose_parameters_are_their_own(self):
        w = np.zeros(2, np.float32)
        client = self.lone_client({"w": w}, optimizer="add", lr=1.0)
        start = w.copy()
        w += 1
        client.step({"w": w - start})
        self.assertEqual(w.tolist(), [1.0, 1.0])


class ServerOptimizersStateTest(TorchCase):

    def test_what_a_state_dict_lacks_is_said(self):
        net = model()
        worker = self.lone_worker(net,
                                  optimizer={"kind": "sgd", "momentum": 0.9},
                                  lr=0.1)
        opt = agg.ServerOptimizer(worker)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            opt.load_state_dict(opt.state_dict())  # Accelerate does
        loss_of(net, batch(0, 0)).backward()
        opt.step()
        with self.assertWarnsRegex(UserWarning, "aggctl checkpoint"):
            state = opt.state_dict()
        self.assertEqual(state["agg_server"],
                         {"job": worker.job.name, "version": 1})
        with self.assertRaisesRegex(agg.ManifestError, "momentum"):
            opt.state[net[0].weight]["momentum_buffer"]
        with self.assertRaisesRegex(agg.ManifestError, r"\(3, 2\)"):
            opt.add_param_group({"params": [torch.zeros(
                3, 2, requires_grad=True)]})
        opt.load_state_dict(state)
        loss_of(net, batch(0, 1)).backward()
        opt.step()
        with self.assertWarnsRegex(UserWarning, "at version 2"):
            opt.load_state_dict(state)
        sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        with self.assertRaisesRegex(agg.ManifestError, "another optim"):
            opt.load_state_dict(sgd.state_dict())
        # Trainers save at their end.
        self.assertEqual(opt.state_dict()["agg_server"],
                         {**state["agg_server"], "version": 2})
        begun_anew = self.serve(
            workers=1, optimizer={"kind": "sgd", "momentum": 0.9}, lr=0.1)
        with agg.Worker(net, begun_anew.address, 0) as worker:
            with self.assertRaisesRegex(agg.ManifestError,
                                        "is of version 1 .* at version 0"):
                agg.ServerOptimizer(worker).load_state_dict(state)

    def test_what_a_group_says_in_vain_is_said(self):
        net = model()
        worker = self.lone_worker(net, lr=0.1)
        opt = agg.ServerOptimizer(worker)
        opt.param_groups[0]["weight_decay"] = 0.1
        loss_of(net, batch(0, 0)).backward()
        with self.assertWarnsRegex(UserWarning, "weight_decay of"):
            opt.step()
        # Once.
        loss_of(net, batch(0, 0)).backward()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            opt.step()


if __name__ == "__main__":
    unittest.main()
