"""The facades, GradScaler, schedules; each optimizer against torch.optim."""

import unittest
import warnings

import torch

from tests.python.job_case import JobCase, agg
from tests.python.torch.worker_test import batch, copies, loss_of, model


class CombinedTest(JobCase):

    def run_amp(self, infinite_ranks):
        """Five steps; `infinite_ranks` have an inf in the third."""
        server = self.serve(workers=2, rule="adasum", optimizer="none")

        def work(rank):
            net = model()
            with agg.Worker(net, server.address, rank, mode="combine"
                            ) as worker:
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

        (first, *told0), (second, *told1) = self.team(2, work)
        for a, b in zip(first, second):
            self.assertTrue(torch.equal(a, b))
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
        server = self.serve(workers=2, optimizer="none")

        def work(rank):
            net = model()
            with agg.Worker(net, server.address, rank, mode="combine"
                            ) as worker:
                scale = 1024.0 if rank else 1.0
                (scale * loss_of(net, batch(rank, 0))).backward()
                self.assertTrue(worker.combine(loss_scale=scale).applied)
                return [p.grad for p in net.parameters()]

        first, second = self.team(2, work)
        local = model()
        (sum(loss_of(local, batch(r, 0)) for r in range(2)) / 2).backward()
        for a, b, p in zip(first, second, local.parameters()):
            self.assertTrue(torch.equal(a, b))
            torch.testing.assert_close(a, p.grad, rtol=1e-6, atol=1e-8)

    def test_schedulers_states_and_closures_are_the_inner_ones(self):
        server = self.serve(workers=1, optimizer="none")
        net = model()
        with agg.Worker(net, server.address, 0, mode="combine") as worker:
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

    def test_a_schedule_by_tau(self):
        server = self.serve(workers=1, optimizer="none")
        net = model()
        with agg.Worker(net, server.address, 0, mode="combine") as worker:
            opt = agg.Combined(torch.optim.SGD(net.parameters(), lr=9.0),
                               worker)
            schedule = agg.TauSchedule(opt, lambda tau: 0.5 ** tau)
            self.assertEqual(opt.param_groups[0]["lr"], 1.0)
            for expected in (0.5, 0.25):
                loss_of(net, batch(0, 0)).backward()
                opt.step()
                schedule.step()
                self.assertAlmostEqual(opt.param_groups[0]["lr"], expected)


class ServerOptimizerTest(JobCase):

    def test_a_trainers_loop(self):
        server = self.serve(workers=1, lr=0.1)
        net = model()
        with agg.Worker(net, server.address, 0) as worker:
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


# Fields of the job's optimizer, and its counterpart.
OPTIMIZERS = {
    "sgd": ({"kind": "sgd", "weight_decay": 0.01},
            lambda p, lr: torch.optim.SGD(p, lr, weight_decay=0.01)),
    "nesterov": ({"kind": "sgd", "momentum": 0.9, "nesterov": True},
                 lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9,
                                               nesterov=True)),
    "adam": ({"kind": "adam", "weight_decay": 0.1},
             lambda p, lr: torch.optim.Adam(p, lr, weight_decay=0.1)),
    "adamw": ({"kind": "adamw", "weight_decay": 0.1, "beta2": 0.95},
              lambda p, lr: torch.optim.AdamW(p, lr, weight_decay=0.1,
                                              betas=(0.9, 0.95))),
    "adagrad": ({"kind": "adagrad"},
                lambda p, lr: torch.optim.Adagrad(p, lr)),
}


class AgainstTorchTest(JobCase):

    def test_fifty_rounds_of_each_optimizer(self):
        for name, (fields, make) in OPTIMIZERS.items():
            with self.subTest(optimizer=name):
                self.compare(fields, make)

    def compare(self, fields, make, rounds=50, lr=0.01):
        server = self.serve(shards=2, workers=2, optimizer=fields, lr=lr)
        rows = torch.randn(rounds, 2, 33,
                           generator=torch.Generator().manual_seed(1))

        def work(rank):
            x = {"x": torch.linspace(-1, 1, 33).requires_grad_()}
            with agg.Worker(x, server.address, rank) as worker:
                for i in range(rounds):
                    x["x"].grad = rows[i, rank].clone()
                    worker.step()
            return x["x"].detach()

        first, second = self.team(2, work)
        self.assertTrue(torch.equal(first, second))
        x = torch.linspace(-1, 1, 33).requires_grad_()
        opt = make([x], lr)
        for i in range(rounds):
            x.grad = rows[i].mean(0)
            opt.step()
        # Some eight roundings of a value of about 1 in each round.
        bound = rounds * 8 * torch.finfo(torch.float32).eps / 2
        torch.testing.assert_close(first, x.detach(), rtol=0, atol=bound)


if __name__ == "__main__":
    unittest.main()
