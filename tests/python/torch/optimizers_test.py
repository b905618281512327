"""The facades, GradScaler, schedules; each optimizer against torch.optim."""

import copy
import threading
import unittest
import warnings

import torch

from tests.golden.make_torch_optimizers import CASES
from tests.python.job_case import WAIT, agg
from tests.python.torch.torch_case import (TorchCase, batch, copies,
                                           loss_of, model)


class CombinedTest(TorchCase):

    def run_amp(self, infinite_ranks):
        """Five steps; `infinite_ranks` have an inf in the third."""
        def work(worker, net, rank):
            opt = agg.Combined(
                torch.optim.AdamW(net.parameters(), lr=1e-2), worker)
            scaler = torch.amp.GradScaler("cpu",
                                          init_scale=2.0 if rank else 8.0)
            applied, scales = [], []
            for i in range(5):
                scaler.scale(loss_of(net, batch(rank, i))).backward()
                if i == 2 and rank in infinite_ranks:
                    net[0].weight.grad[0, 0] = float("inf")
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
                applied.append((worker.last.applied, worker.last.included))
                scales.append(scaler.get_scale())
            return copies(net), applied, scales

        (first, *told0), (second, *told1) = self.job_of(
            2, work, rule="adasum", mode="combine")
        self.assert_equal(first, second)
        return told0, told1

    def test_an_inf_on_one_rank_hurts_its_row_alone(self):
        good, bad = self.run_amp([1])
        self.assertEqual(good, [[(True, True)] * 5, [8.0] * 5])
        self.assertEqual(bad[0], [(True, i != 2) for i in range(5)])
        self.assertEqual(bad[1], [2.0, 2.0, 1.0, 1.0, 1.0])

    def test_an_inf_on_all_ranks_steps_nobody(self):
        for applied, _ in self.run_amp([0, 1]):
            self.assertEqual(applied, [(i != 2, i != 2) for i in range(5)])

    def test_loss_scales_are_divided_out(self):
        def work(worker, net, rank):
            scale = 1024.0 if rank else 1.0
            (scale * loss_of(net, batch(rank, 0))).backward()
            self.assertTrue(worker.combine(loss_scale=scale).applied)
            return [p.grad for p in net.parameters()]

        first, second = self.job_of(2, work, mode="combine")
        local = model()
        (sum(loss_of(local, batch(r, 0)) for r in range(2)) / 2).backward()
        for a, b, p in zip(first, second, local.parameters()):
            self.assertTrue(torch.equal(a, b))
            torch.testing.assert_close(a, p.grad, rtol=1e-6, atol=1e-8)

    def test_schedulers_states_and_closures_are_the_inner_ones(self):
        net = model()
        worker = self.lone_worker(net, mode="combine")
        inner = torch.optim.Adam(net.parameters(), lr=1.0)
        opt = agg.Combined(inner, worker)
        schedule = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.5)

        def closure():
            opt.zero_grad()
            loss = loss_of(net, batch(0, 0))
            loss.backward()
            return loss

        loss = opt.step(closure)
        schedule.step()
        self.assertAlmostEqual(worker.last.loss, loss.item(), places=6)
        self.assertEqual(inner.param_groups[0]["lr"], 0.5)
        self.assertIs(opt.state, inner.state)
        state = opt.state_dict()
        opt.load_state_dict(state)
        self.assertIs(opt.param_groups, inner.param_groups)
        self.assertEqual(state["state"][0]["step"], 1)

    def test_a_step_that_failed_is_called_again(self):
        """With the scale, and what was described, of once."""
        server = self.serve(workers=2, optimizer="none")
        timed_out = threading.Event()

        def work(rank):
            net = model()
            options = {} if rank else {"round_timeout": 0.2}
            with agg.Worker(net, server.address, rank, mode="combine",
                            **options) as worker:
                opt = agg.Combined(torch.optim.SGD(net.parameters(), lr=1.0),
                                   worker)
                scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
                scaler.scale(loss_of(net, batch(rank, 0))).backward()
                if rank:
                    self.assertTrue(timed_out.wait(WAIT))
                else:
                    opt.describe(loss=3.0, examples=5)
                    with self.assertRaises(agg.Timeout):
                        scaler.step(opt)
                    self.assertFalse(hasattr(opt, "grad_scale"))
                    self.assertFalse(hasattr(opt, "found_inf"))
                    timed_out.set()
                    while True:
                        try:
                            scaler.step(opt)
                            break
                        except agg.Timeout:
                            pass
                if rank:
                    scaler.step(opt)
                self.assertEqual(worker.last.loss, 3.0)
                self.assertFalse(hasattr(opt, "grad_scale"))
                return [a - b.detach() for a, b in
                        zip(copies(model()), net.parameters())]

        first, second = self.team(2, work)
        local = model()
        (sum(loss_of(local, batch(r, 0)) for r in range(2)) / 2).backward()
        for a, b, p in zip(first, second, local.parameters()):
            torch.testing.assert_close(a, p.grad, rtol=1e-5, atol=1e-6)
            self.assertTrue(torch.equal(a, b))

    def test_an_exception_leaves_no_scale_behind(self):
        """Of whatever kind, in either facade."""
        for optimizer, mode in (("sgd", "server"), ("none", "combine")):
            for error in (KeyboardInterrupt, RuntimeError, SystemExit):
                with self.subTest(mode=mode, error=error):
                    w = torch.zeros(2, requires_grad=True)
                    worker = self.lone_worker({"w": w}, lr=1.0,
                                              optimizer=optimizer, mode=mode)
                    opt = (agg.ServerOptimizer(worker)
                           if mode == "server" else agg.Combined(
                               torch.optim.SGD([w], lr=1.0), worker))
                    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
                    makes_round = worker._session.round

                    def fail(*_):
                        worker._session.round = makes_round
                        raise error

                    worker._session.round = fail
                    opt.describe(loss=2.0)
                    scaler.scale((3 * w).sum()).backward()
                    with self.assertRaises(error):
                        scaler.step(opt)
                    if w.grad is None:
                        scaler.scale((3 * w).sum()).backward()
                    scaler.step(opt)
                    self.assertEqual(w.tolist(), [-3.0, -3.0])
                    self.assertEqual(worker.last.loss, 2.0)
                    scaler.update()
                    opt.zero_grad()
                    scaler.scale((3 * w).sum()).backward()
                    scaler.step(opt)
                    self.assertEqual(w.tolist(), [-6.0, -6.0])
                    self.assertNotEqual(worker.last.loss, 2.0)

    def test_a_schedule_by_tau(self):
        net = model()
        worker = self.lone_worker(net, mode="combine")
        opt = agg.Combined(torch.optim.SGD(net.parameters(), lr=9.0),
                           worker)
        schedule = agg.TauSchedule(opt, lambda tau: 0.5 ** tau)
        self.assertEqual(opt.param_groups[0]["lr"], 1.0)
        for expected in (0.5, 0.25):
            loss_of(net, batch(0, 0)).backward()
            opt.step()
            schedule.step()
            self.assertAlmostEqual(opt.param_groups[0]["lr"], expected)


    def test_a_replica_that_sits_out_steps_with_the_others(self):
        def work(worker, net, rank):
            opt = agg.Combined(
                torch.optim.SGD(net.parameters(), lr=0.1), worker)
            for i in range(3):
                opt.zero_grad()
                if (rank, i) == (1, 1):
                    self.assertEqual(opt.sit_out().ranks, (0,))
                    continue
                loss_of(net, batch(rank, i)).backward()
                opt.step()
            return copies(net)

        first, second = self.job_of(2, work, mode="combine")
        self.assert_equal(first, second)

    def test_a_state_that_the_inner_one_loads_is_this_ones_too(self):
        net, local = model(), model()
        own = torch.optim.SGD(local.parameters(), lr=0.1, momentum=0.9)
        saved = copy.deepcopy(own.state_dict())
        saved["param_groups"][0]["lr"] = 0.8
        own.load_state_dict(saved)
        worker = self.lone_worker(net, mode="combine")
        inner = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        opt = agg.Combined(inner, worker)
        inner.load_state_dict(copy.deepcopy(saved))
        schedules = [torch.optim.lr_scheduler.StepLR(o, 1, 0.5)
                     for o in (own, opt)]
        for i in range(3):
            for each, o in ((local, own), (net, opt)):
                o.zero_grad()
                loss_of(each, batch(0, i)).backward()
                o.step()
            for schedule in schedules:
                schedule.step()
        self.assertEqual(inner.param_groups[0]["lr"], 0.1)
        self.assertIs(opt.state, inner.state)
        self.assert_equal(copies(net), copies(local))

    def test_an_inner_optimizer_without_hooks(self):
        """Of torch's kind, but none of its own; and of torch 2.1."""
        class Plain:
            def __init__(self, params):
                self.param_groups = [{"params": list(params), "lr": 0.5}]
                self.defaults, self.state = {"lr": 0.5}, {}

            def step(self):
                with torch.no_grad():
                    for group in self.param_groups:
                        for p in group["params"]:
                            p.sub_(p.grad, alpha=group["lr"])

        p = torch.zeros(2, requires_grad=True)
        worker = self.lone_worker({"p": p}, mode="combine")
        opt = agg.Combined(Plain([p]), worker)
        for lr in (0.5, 0.25):
            # As a load_state_dict of its own would.
            opt.inner.param_groups = [{"params": [p], "lr": lr}]
            p.grad = torch.ones(2)
            opt.step()
            self.assertIs(opt.param_groups, opt.inner.param_groups)
        self.assertEqual(p.tolist(), [-0.75, -0.75])

    def test_an_inner_step_alone_is_said_once(self):
        net = model()
        worker = self.lone_worker(net, mode="combine")
        inner = torch.optim.SGD(net.parameters(), lr=0.1)
        opt = agg.Combined(inner, worker)

        def backward(i):
            net.zero_grad()
            loss_of(net, batch(0, i)).backward()

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for i in range(2):
                backward(i)
                worker.combine()
                inner.step()  # by hand
                backward(i)
                opt.step()
        backward(2)
        with self.assertWarnsRegex(UserWarning, "not combined.*alone"):
            inner.step()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            inner.step()

    def test_optimizers_that_cannot_step_on_combined_gradients(self):
        net = model()

        class Needing(torch.optim.SGD):
            def step(self, closure):
                raise AssertionError(closure)

        worker = self.lone_worker(net, mode="combine")
        good = torch.optim.SGD(net.parameters(), lr=0.1)
        for inner, said in (
                (torch.optim.SparseAdam(list(net.parameters())),
                 "SparseAdam, which takes sparse.*Adam"),
                (torch.optim.LBFGS(net.parameters()), "LBFGS.*closure"),
                (Needing(net.parameters(), lr=0.1), "Needing.*closure"),
                (torch.optim.SGD, "inner is <class"),
                (agg.Combined(good, worker), "inner is Combined")):
            with self.assertRaisesRegex(agg.ManifestError, said):
                agg.Combined(inner, worker)
        self.assertEqual(worker.version, 0)


class ServerOptimizerTest(TorchCase):

    def test_a_trainers_loop(self):
        net = model()
        worker = self.lone_worker(net, lr=0.1)
        opt = agg.ServerOptimizer(worker)
        schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda t: 1.0)
        for i in range(3):
            opt.zero_grad()
            loss = loss_of(net, batch(0, i))
            loss.backward()
            opt.describe(loss=loss, examples=8)
            opt.step()
            schedule.step()
        self.assertEqual(worker.version, 3)
        self.assertAlmostEqual(opt.last.loss, loss.item(), places=6)
        opt.param_groups[0]["lr"] = 0.5
        loss_of(net, batch(0, 3)).backward()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            opt.step()
        self.assertIn("no effect", str(caught[0].message))


# What torch.optim calls the fields of the job's optimizer.
_FIELDS = {"eps": "epsilon", "initial_accumulator_value":
           "initial_accumulator", "momentum": "momentum",
           "nesterov": "nesterov", "weight_decay": "weight_decay"}


def fields_of(kind, arguments):
    """The job's optimizer for the arguments of torch.optim's."""
    fields = {"kind": kind}
    for name, value in arguments.items():
        if name == "betas":
            fields["beta1"], fields["beta2"] = value
        elif name != "lr":
            fields[_FIELDS[name]] = value
    return fields


class AgainstTorchTest(TorchCase):
    """Fifty rounds of two workers against torch.optim on the mean gradient.
    (torch.optim has no LARS and no LAMB.)"""

    ROUNDS = 50

    def setUp(self):
        generator = torch.Generator().manual_seed(1)
        self.rows = torch.randn(self.ROUNDS, 2, 33, generator=generator)

    def test_every_optimizer_of_the_golden_values(self):
        for kind, name, arguments in CASES:
            with self.subTest(optimizer=name, arguments=arguments):
                found = self.of_the_server(
                    fields_of(kind, arguments), arguments["lr"],
                    self.push_gradient)
                self.compare(found, self.of_torch(
                    getattr(torch.optim, name), arguments, 1))

    def test_add_is_sgd_of_what_is_to_be_subtracted(self):
        for arguments in ({"lr": 1.0}, {"lr": 0.7, "momentum": 0.9},
                          {"lr": 0.7, "momentum": 0.9, "nesterov": True}):
            with self.subTest(arguments=arguments):
                found = self.of_the_server(
                    fields_of("add", arguments), arguments["lr"],
                    lambda worker, x, row: x.data.copy_(
                        worker.exchange({"x": row})[1]["x"]))
                self.compare(found, self.of_torch(torch.optim.SGD, arguments,
                                                  -1))

    def push_gradient(self, worker, x, row):
        x.grad = row.clone()
        worker.step()

    def of_the_server(self, fields, lr, push):
        server = self.serve(shards=2, workers=2, optimizer=fields, lr=lr)

        def work(rank):
            x = torch.linspace(-1, 1, 33).requires_grad_()
            with agg.Worker({"x": x}, server.address, rank) as worker:
                for rows in self.rows:
                    push(worker, x, rows[rank])
            return x.detach()

        first, second = self.team(2, work)
        self.assertTrue(torch.equal(first, second))
        return first

    def of_torch(self, kind, arguments, sign):
        """(the parameters, the largest value on the way)"""
        x = torch.linspace(-1, 1, 33).requires_grad_()
        opt = kind([x], foreach=False, **arguments)
        largest = 1.0
        for rows in self.rows:
            x.grad = sign * rows.mean(0)
            opt.step()
            largest = max(largest, x.detach().abs().max().item())
        return x.detach(), largest

    def compare(self, found, expected):
        # Some eight roundings of a value in each round.
        bound = self.ROUNDS * 8 * torch.finfo(torch.float32).eps / 2
        torch.testing.assert_close(found, expected[0], rtol=0,
                                   atol=bound * expected[1])


if __name__ == "__main__":
    unittest.main()
