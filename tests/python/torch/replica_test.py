"""Workers that step the parameters themselves keep the same ones, or it is said
who does not."""

import copy
import dataclasses
import os
import signal
import threading
import time
import unittest
from unittest import mock

import numpy as np
import torch

from tests.python.job_case import WAIT, agg
from tests.python.torch.torch_case import TorchCase, copies, interrupt

from agg_server._replica import Replica
from agg_server._signals import Deferred


_seeding = threading.Lock()


def net_of(seed, *sizes):
    """Without a seed of its own, as a script of DDP's has it."""
    sizes = sizes or (3, 4, 2)
    with _seeding:  # the generator is the process's
        torch.manual_seed(seed)
        return torch.nn.Sequential(*[torch.nn.Linear(a, b)
                                     for a, b in zip(sizes, sizes[1:])])


def loss(net, rank, i):
    generator = torch.Generator().manual_seed(100 * rank + i)
    x = torch.randn(4, net[0].in_features, generator=generator)
    return net(x).pow(2).mean()


def train(net, opt, rank, rounds):
    for i in rounds:
        opt.zero_grad()
        loss(net, rank, i).backward()
        opt.step()


class Ranks:
    """What each rank has in the test, side by side."""

    def __init__(self, case, server, number, make=net_of, **options):
        self.nets, self.workers, self.opts = [None] * number, [], []
        found = case.team(number, lambda rank: self._join(
            server, rank, make, options))
        for net, worker, opt in found:
            case.addCleanup(worker.close)
            self.workers.append(worker)
            self.opts.append(opt)
        self.nets = [each[0] for each in found]
        self.case = case

    @staticmethod
    def _join(server, rank, make, options):
        torch.set_num_threads(1)
        net = make(1337 + rank)
        worker = agg.Worker(net, server.address, rank, mode="combine",
                            **options)
        opt = agg.Combined(torch.optim.AdamW(net.parameters(), lr=0.1), worker)
        return net, worker, opt

    def train(self, rounds):
        self.case.team(len(self.nets), lambda rank: train(
            self.nets[rank], self.opts[rank], rank, rounds))

    def assert_same(self):
        for net in self.nets[1:]:
            for a, b in zip(copies(self.nets[0]), copies(net)):
                self.case.assertTrue(torch.equal(a, b))

    @property
    def differing(self):
        return [w.last.differing_ranks for w in self.workers]


class StartTest(TorchCase):

    def test_all_begin_with_the_parameters_of_one(self):
        for options in ({}, {"pull_dtype": "bf16", "push_dtype": "bf16"}):
            with self.subTest(options):
                server = self.serve(workers=3, rule="adasum",
                                    optimizer="none", config=options)
                with self.assertLogs("agg_server", "WARNING") as logs:
                    ranks = Ranks(self, server, 3)
                self.assertEqual(len([1 for line in logs.output if '"0.weight" '
                                      "(and 3 more) were others" in line]), 2)
                ranks.assert_same()
                begun = copies(ranks.nets[0])
                self.assertIn(True, [
                    all(torch.equal(a, b) for a, b in zip(begun, copies(net)))
                    for net in map(net_of, (1337, 1338, 1339))])
                ranks.train(range(4))
                ranks.assert_same()
                self.assertEqual(ranks.differing, [(), (), ()])

    def test_rank_0_gives_them_where_that_is_asked_for(self):
        server = self.serve(workers=2, optimizer="none")
        ranks = Ranks(self, server, 2, seed="rank0")
        self.assert_equal(copies(ranks.nets[1]), copies(net_of(1337)))

    def test_parameters_beyond_the_range_of_pull_dtype(self):
        server = self.serve(workers=2, optimizer="none",
                            config={"pull_dtype": "f16"})

        def make(seed):
            net = net_of(seed)
            with torch.no_grad():
                net[0].bias[0] = 70_000.0 + seed
            return net

        ranks = Ranks(self, server, 2, make)
        ranks.assert_same()
        self.assertIn(float(ranks.nets[0][0].bias[0]), (71_337, 71_338))

    def test_types_of_less_digits(self):
        server = self.serve(workers=2, optimizer="none")
        ranks = Ranks(self, server, 2,
                      lambda seed: net_of(seed).to(torch.bfloat16))
        ranks.assert_same()

    def test_tensors_that_are_no_parameters_stay(self):
        def run(worker, tensors, rank):
            self.assertEqual(worker.parameters_digest(), 0)
            total = agg.allreduce(tensors, worker)["t"].tolist()
            self.assertEqual(worker.last.differing_ranks, ())
            return total, tensors["t"].tolist()

        found = self.job_of(
            2, run, make=lambda rank: {"t": torch.full((2,), 1.0 + rank)},
            mode="combine")
        self.assertEqual(found, [([1.5, 1.5], [1.0, 1.0]),
                                 ([1.5, 1.5], [2.0, 2.0])])

    def test_a_dict_of_parameters(self):
        server = self.serve(workers=2, optimizer="none")

        def run(rank):
            w = torch.full((2,), 1.0 + rank, requires_grad=True)
            with agg.Worker({"w": w}, server.address, rank, mode="combine",
                            replicated=True) as worker:
                self.assertNotEqual(worker.parameters_digest(), 0)
                return w.tolist()

        first, second = self.team(2, run)
        self.assertEqual(first, second)


class DifferenceTest(TorchCase):

    def job(self, number, config=None, **options):
        return Ranks(self, self.serve(workers=number, optimizer="none",
                                      config=config or {}), number, **options)

    def test_a_rank_that_differs_is_named_at_once(self):
        ranks = self.job(3)
        ranks.train(range(2))
        with torch.no_grad():
            ranks.nets[1][0].bias[0] += 1e-6
        with self.assertLogs("agg_server", "WARNING") as logs:
            ranks.train(range(2, 5))
        self.assertEqual(ranks.differing, [(1,)] * 3)
        self.assertIn("rank 1 from those of ranks 0, 2",
                      ranks.workers[0].last.message)
        said = [line for line in logs.output if "rank 1 from" in line]
        self.assertEqual(len(said), 3)  # once for each worker
        ranks.case.assertTrue(ranks.workers[0].last.applied)

    def test_each_set_of_ranks_is_told_once_and_not_without_end(self):
        worker = self.job(1).workers[0]
        first = self.round_of(worker)
        with self.assertLogs("agg_server", "WARNING") as logs:
            for i in range(400):
                worker._tell(dataclasses.replace(
                    first, differing_ranks=(i % 40 % 20, 50 + i % 40 % 20),
                    message=f"ranks {i % 20} differ"))
        self.assertEqual(len(logs.output), 16)
        self.assertEqual(len(set(logs.output)), 16)
        self.assertIn("the last of 16 sets", logs.output[-1])
        self.assertLessEqual(len(worker._said) + len(worker._differing), 16)

    @staticmethod
    def round_of(worker):
        for tensor in worker.tensors.values():
            tensor.grad = torch.ones_like(tensor)
        return worker.combine()

    def test_of_two_ranks_both_are_named(self):
        ranks = self.job(2)
        with torch.no_grad():
            ranks.nets[1][1].weight[0, 0] = 5.0
        with self.assertLogs("agg_server", "WARNING"):
            ranks.train(range(1))
        self.assertEqual(ranks.differing, [(0, 1)] * 2)

    def test_what_does_not_learn_is_compared_too(self):
        """An adapter on two different bases is two models."""
        def make(seed):
            net = net_of(seed)
            net[0].requires_grad_(False)
            return net

        ranks = self.job(2, make=make)
        with self.assertLogs("agg_server", "WARNING"):
            ranks.train(range(1))
        self.assertEqual(ranks.differing, [(0, 1)] * 2)

    def test_the_job_ends_where_that_is_asked_for(self):
        ranks = self.job(2, {"on_divergence": "fail"})
        ranks.train(range(1))
        with torch.no_grad():
            ranks.nets[1][0].bias[0] += 1.0
        with self.assertLogs("agg_server", "WARNING") as logs:
            ranks.train(range(1, 2))
            end = time.monotonic() + WAIT
            while "finished at version 2: it failed" not in \
                    "".join(logs.output) and time.monotonic() < end:
                ranks.workers[0]._session.look()  # for the event
        self.assertTrue(ranks.workers[0].last.finished)
        with self.assertRaisesRegex(agg.JobFinished,
                                    "parameters differ.*on_divergence"):
            train(ranks.nets[0], ranks.opts[0], 0, range(1))

    def start_again(self, ranks, server, begin=lambda: None):
        """Rank 1, as another process, and its first round: behind the one that
        is open when it joins, so that rank 0 makes rounds until then. begin():
        before that round."""
        ranks.workers[1].close()
        target = []

        def until_target(rank):
            while not target or ranks.workers[rank].version < target[0]:
                i = ranks.workers[rank].version
                train(ranks.nets[rank], ranks.opts[rank], rank, range(i, i + 1))

        other = threading.Thread(target=until_target, args=(0,))
        other.start()
        with self.assertLogs("agg_server", "WARNING") as logs:
            net = net_of(1)
            worker = agg.Worker(net, server.address, 1, mode="combine")
        self.addCleanup(worker.close)
        self.assertIn(f"rank 1) has joined at version {worker.version}",
                      "".join(logs.output))
        ranks.nets[1], ranks.workers[1] = net, worker
        ranks.opts[1] = agg.Combined(
            torch.optim.AdamW(net.parameters(), lr=0.1), worker)
        begin()
        worker.mark_start()
        target.append(worker.version + 1)
        until_target(1)
        other.join(WAIT)

    def quorum_job(self, rounds):
        """Of three ranks two make so many rounds, and then the third one."""
        ranks = Ranks(self, self.serve(workers=3, optimizer="none", config={
            "quorum": 2}), 3)
        self.team(2, lambda rank: train(ranks.nets[rank], ranks.opts[rank],
                                        rank, range(rounds)))
        return ranks

    def test_a_rank_that_was_away_too_long(self):
        ranks = self.quorum_job(4)
        with self.assertLogs("agg_server", "WARNING") as logs:
            train(ranks.nets[2], ranks.opts[2], 2, range(1))
        self.assertIn("rank 2 was away: it has missed the combined gradients "
                      "of 3 round(s) before that of version 4",
                      "".join(logs.output))
        self.assertFalse(ranks.workers[2].last.included)

    def test_a_rank_that_was_late_catches_up(self):
        ranks = self.quorum_job(2)
        train(ranks.nets[2], ranks.opts[2], 2, range(2))
        self.assertEqual(ranks.workers[2].version, 2)
        ranks.assert_same()

    def test_a_rank_that_starts_again(self):
        server = self.serve(workers=2, optimizer="none")
        ranks = Ranks(self, server, 2)
        ranks.train(range(3))
        with self.assertLogs("agg_server", "WARNING"):
            self.start_again(ranks, server)
        self.assertEqual(ranks.differing, [(0, 1)] * 2)
        # The other one's, with its optimizer.
        ranks.nets[1].load_state_dict(ranks.nets[0].state_dict())
        ranks.opts[1].load_state_dict(copy.deepcopy(ranks.opts[0].state_dict()))
        ranks.train(range(2))
        self.assertEqual(ranks.differing, [(), ()])
        ranks.assert_same()

    def test_tau_goes_on_in_a_rank_that_starts_again(self):
        server = self.serve(workers=2, optimizer="none", config={
            "step_scale": {"kind": "adascale"}})
        ranks = Ranks(self, server, 2)
        for opt in ranks.opts:
            agg.TauSchedule(opt, lambda tau: 0.5 ** tau)
            self.assertEqual(opt.param_groups[0]["lr"], 1.0)
        ranks.train(range(3))
        heard = []
        ranks.workers[0].add_listener(heard.append)

        def begin():
            agg.TauSchedule(ranks.opts[1], lambda tau: 0.5 ** tau)
            found = ranks.opts[1].param_groups[0]["lr"]
            last = ranks.workers[1].last
            self.assertEqual(found, 0.5 ** last.tau * last.learning_rate)
            self.assertLess(found, 1.0)

        with self.assertLogs("agg_server", "WARNING"):
            self.start_again(ranks, server, begin)
        version = ranks.workers[1].version - 1
        by_version = {outcome.version: outcome.tau for outcome in heard}
        self.assertIn(version, by_version)
        self.assertGreater(by_version[version], 2)


class LateTest(TorchCase):
    """A worker that joins a job that runs begins with the others' parameters,
    or is told that it has not got them."""

    def setUp(self):
        self.path = str(self.temporary_folder() / "checkpoint.pt")
        self.errors = []

    def save(self, net, opt, sched, version):
        torch.save({"version": version, "net": net.state_dict(),
                    "opt": opt.state_dict(), "sched": sched.state_dict()},
                   self.path + ".new")
        os.replace(self.path + ".new", self.path)

    def load(self, net, opt, sched):
        if not os.path.exists(self.path):
            return None
        found = torch.load(self.path)
        net.load_state_dict(found["net"])
        opt.load_state_dict(found["opt"])
        sched.load_state_dict(found["sched"])
        return found["version"]

    @staticmethod
    def make(server, rank):
        torch.set_num_threads(1)
        net = net_of(1337 + rank)
        worker = agg.Worker(net, server.address, rank, mode="combine")
        opt = agg.Combined(torch.optim.AdamW(net.parameters(), lr=0.1), worker)
        sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
        return net, worker, opt, sched

    def begin(self, number, config, every):
        """Workers that train until the test says at which version they end,
        and of which the lowest rank writes checkpoints."""
        server = self.serve(workers=number, optimizer="none",
                            config={**config, "max_workers": number + 1})
        members = self.team(number, lambda rank: self.make(server, rank))
        for member in members:
            self.addCleanup(member[1].close)
        self.end = None
        self.fifth = threading.Event()

        def run(rank):
            net, worker, opt, sched = members[rank]
            try:
                while self.end is None or worker.version < self.end:
                    train(net, opt, rank, [worker.version])
                    sched.step()
                    if rank == min(worker.last.ranks) and \
                            worker.version % every == 0:
                        self.save(net, opt, sched, worker.version)
                    if worker.version >= 5:
                        self.fifth.set()
            except BaseException as error:  # pylint: disable=broad-except
                self.errors.append(error)
                self.fifth.set()

        self.threads = [threading.Thread(target=run, args=(rank,))
                        for rank in range(number)]
        for thread in self.threads:
            thread.start()
        self.assertTrue(self.fifth.wait(WAIT))
        return server, members

    def join(self, worker, step):
        """To the end, three rounds behind this one."""
        self.end = worker.version + 3
        while worker.version < self.end:
            step()
        for thread in self.threads:
            thread.join(WAIT)
        self.assertEqual(self.errors, [])

    def test_a_third_one_that_joins_at_round_5(self):
        for policy, every in (("warn", 1), ("fail", 1), ("fail", 4)):
            with self.subTest(policy, every=every):
                server, members = self.begin(2, {"on_divergence": policy},
                                             every)
                with self.assertLogs("agg_server", "WARNING") as logs:
                    net, worker, opt, sched = self.make(server, 2)
                self.addCleanup(worker.close)
                self.assertIn("catch_up(load)", "".join(logs.output))
                self.assertGreaterEqual(worker.version, 5)
                loss(net, 2, 0).backward()
                # Refused before a round is spent, and again.
                for _ in range(2):
                    with self.assertRaisesRegex(agg.NotNow,
                                                "rank 2 has joined at version "
                                                r".*catch_up.*mark_start"):
                        opt.step()
                worker.catch_up(lambda: self.load(net, opt, sched))
                heard = []
                worker.add_listener(heard.append)

                def step():
                    train(net, opt, 2, [worker.version])
                    sched.step()

                self.join(worker, step)
                self.assertEqual(worker.last.ranks, (0, 1, 2))
                self.assertEqual([o.differing_ranks for o in heard],
                                 [()] * len(heard))
                self.assertFalse(worker.last.finished)
                for other, *_ in members:
                    self.assert_equal(copies(net), copies(other))
                self.assertEqual(sched.get_last_lr(),
                                 members[0][3].get_last_lr())
                for each in (worker, *[m[1] for m in members]):
                    each.close()

    def test_one_that_says_that_it_has_them_or_has_loaded_some_is_compared(
            self):
        for loads in (False, True):
            with self.subTest(loads=loads):
                server, _ = self.begin(2, {}, 1)
                with self.assertLogs("agg_server", "WARNING"):
                    net, worker, opt, _ = self.make(server, 2)
                    self.addCleanup(worker.close)
                    if loads:
                        net.load_state_dict(net_of(3).state_dict())
                    else:
                        worker.mark_start()
                    self.join(worker, lambda: train(net, opt, 2,
                                                    [worker.version]))
                self.assertEqual(worker.last.differing_ranks, (2,))

    def test_all_that_start_again_begin_with_the_newest_checkpoint(self):
        server, members = self.begin(2, {"on_divergence": "fail"}, 1)
        keeper = members[0][1]
        self.end = max(m[1].version for m in members) + 2
        for thread in self.threads:
            thread.join(WAIT)
        self.assertEqual(self.errors, [])
        members[1][1].close()
        # Rank 0 is as one that was started again: it knows of no parameters.
        net, worker, opt, sched = members[0]
        version = keeper.version
        with torch.no_grad():
            for p in net.parameters():
                p.zero_()
        keeper._late = keeper._replica.writes()
        self.assertEqual(worker.catch_up(lambda: self.load(net, opt, sched)),
                         self.saved_version())
        self.assertGreater(worker.version, version)
        for name, value in torch.load(self.path)["net"].items():
            self.assertTrue(torch.equal(net.state_dict()[name], value))
        train(net, opt, 0, [0])
        self.assertEqual(worker.last.differing_ranks, ())

    def saved_version(self):
        return torch.load(self.path)["version"]

    def test_at_the_start_of_a_job_there_is_nothing_to_catch_up(self):
        server = self.serve(workers=1, optimizer="none")
        net, worker, opt, _ = self.make(server, 0)
        with worker:
            self.assertEqual(worker.catch_up(self.fail), 0)
            train(net, opt, 0, range(2))
            self.assertEqual(worker.catch_up(self.fail), 2)


class ListenerTest(TorchCase):

    def test_one_that_raises_costs_no_step(self):
        ranks = Ranks(self, self.serve(workers=2, optimizer="none"), 2)
        heard = []

        def listen(outcome):
            heard.append(outcome.version)
            raise OSError("no space left on device")

        ranks.workers[1].add_listener(listen)
        with self.assertLogs("agg_server", "ERROR") as logs:
            ranks.train(range(3))
        ranks.assert_same()
        self.assertEqual(heard, [1, 2, 3])
        self.assertEqual(len([1 for line in logs.output
                              if "no space left" in line]), 1)
        self.assertEqual(ranks.differing, [(), ()])


def setUpModule():
    # What a shell has started in the background ignores SIGINT.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.addModuleCleanup(signal.signal, signal.SIGINT, former)


class InterruptedTest(TorchCase):
    """Of a round that goes on behind an exception the gradient is stepped with
    once."""

    def ranks(self, overlap=False):
        return Ranks(self, self.serve(workers=2, optimizer="none"), 2,
                     overlap=overlap)

    def assert_one_step_each(self, ranks, rounds):
        self.assertEqual([w.version for w in ranks.workers], [rounds] * 2)
        for opt in ranks.opts:
            for state in opt.state.values():
                self.assertEqual(state["step"], rounds)
        ranks.assert_same()
        self.assertEqual(ranks.differing, [(), ()])

    def test_in_the_wait_of_the_round(self):
        for overlap in (False, True):
            with self.subTest(overlap=overlap):
                ranks = self.ranks(overlap)
                ranks.train(range(1))

                def run(rank):
                    net, opt = ranks.nets[rank], ranks.opts[rank]
                    if rank == 0:
                        train(net, opt, 0, range(1, 4))
                        return
                    interrupt(ranks.workers[1])
                    loss(net, 1, 1).backward()
                    with self.assertRaises(KeyboardInterrupt):
                        opt.step()
                    train(net, opt, 1, range(1, 4))

                with self.assertLogs("agg_server", "WARNING") as logs:
                    self.team(2, run)
                self.assertIn("round 1 was interrupted", "".join(logs.output))
                self.assert_one_step_each(ranks, 4)

    def test_a_round_that_was_sat_out(self):
        ranks = self.ranks()

        def run(rank):
            net, opt = ranks.nets[rank], ranks.opts[rank]
            if rank == 0:
                train(net, opt, 0, range(3))
                return
            interrupt(ranks.workers[1])
            with self.assertRaises(KeyboardInterrupt):
                opt.sit_out()
            self.assertEqual(opt.sit_out().ranks, (0,))
            opt.sit_out()
            train(net, opt, 1, range(2, 3))

        self.team(2, run)
        self.assert_one_step_each(ranks, 3)

    def test_behind_the_round(self):
        """Where its outcome is there, and nothing was done about it."""
        for place in ("_write_grads", "_tell"):
            with self.subTest(place):
                ranks = self.ranks()
                worker = ranks.workers[1]
                ranks.train(range(1))

                def interrupted(*_):
                    delattr(worker, place)
                    raise KeyboardInterrupt

                def run(rank):
                    net, opt = ranks.nets[rank], ranks.opts[rank]
                    if rank == 1:
                        setattr(worker, place, interrupted)
                        with self.assertRaises(KeyboardInterrupt):
                            train(net, opt, 1, range(1, 2))
                    train(net, opt, rank, range(1, 3))

                self.team(2, run)
                self.assert_one_step_each(ranks, 3)

    def test_one_that_leaves_without_it_says_so(self):
        ranks = self.ranks()

        def run(rank):
            net, opt = ranks.nets[rank], ranks.opts[rank]
            if rank == 1:
                interrupt(ranks.workers[1])
                with self.assertRaises(KeyboardInterrupt):
                    train(net, opt, 1, range(1))
                ranks.workers[1]._session._left_behind[0].done(WAIT)
            else:
                train(net, opt, 0, range(1))

        self.team(2, run)
        with self.assertLogs("agg_server", "WARNING") as logs:
            ranks.workers[1].close()
        self.assertIn("rank 1 leaves, and has not stepped what round 0",
                      logs.output[0])
        with self.assertNoLogs("agg_server", "WARNING"):
            ranks.workers[0].close()

    def test_in_the_inner_step_a_signal_waits(self):
        ranks = self.ranks()
        steps = []

        def hook(*_):
            os.kill(os.getpid(), signal.SIGINT)
            # Python's handler runs between two instructions of this thread.
            for _ in range(1000):
                steps.append(1)

        handle = ranks.opts[1].inner.register_step_pre_hook(hook)
        other = threading.Thread(target=train, args=(
            ranks.nets[0], ranks.opts[0], 0, range(3)))
        other.start()
        with self.assertRaises(KeyboardInterrupt):
            train(ranks.nets[1], ranks.opts[1], 1, range(1))
        handle.remove()
        self.assertEqual(len(steps), 1000)
        train(ranks.nets[1], ranks.opts[1], 1, range(1, 3))
        other.join(WAIT)
        self.assert_one_step_each(ranks, 3)
        self.assertIs(signal.getsignal(signal.SIGINT),
                      signal.default_int_handler)

    def test_an_inner_step_that_was_refused_comes_again(self):
        ranks = self.ranks()
        refused = []

        def run(rank):
            net, opt = ranks.nets[rank], ranks.opts[rank]
            if rank == 1:
                inner_step = opt.inner.step

                def refuse():
                    opt.inner.step = inner_step
                    refused.append(True)
                    raise RuntimeError("out of memory")

                opt.inner.step = refuse
                with self.assertRaisesRegex(RuntimeError, "out of memory"):
                    train(net, opt, 1, range(1))
            train(net, opt, rank, range(2))

        self.team(2, run)
        self.assertEqual(refused, [True])
        self.assert_one_step_each(ranks, 2)

    def test_by_hand(self):
        ranks = self.ranks()

        def run(rank):
            worker, net = ranks.workers[rank], ranks.nets[rank]
            found = []
            for i in range(3):
                if rank == 1 and i == 1:
                    loss(net, 1, i).backward()
                    interrupt(worker)
                    with self.assertRaises(KeyboardInterrupt):
                        worker.combine()
                net.zero_grad()
                loss(net, rank, i).backward()
                self.assertEqual(worker.combine().version, i + 1)
                found.append([p.grad.clone() for p in net.parameters()])
            return found

        first, second = self.team(2, run)
        for a, b in zip(first, second):
            for x, y in zip(a, b):
                self.assertTrue(torch.equal(x, y))

    def test_an_allreduce_that_was_left_is_given_to_no_step(self):
        net = net_of(1)
        worker = self.lone_worker(net, mode="combine")
        interrupt(worker)
        with self.assertRaises(KeyboardInterrupt):
            worker.exchange({n: torch.ones_like(t)
                             for n, t in worker.tensors.items()})
        loss(net, 0, 0).backward()
        own = [p.grad.clone() for p in net.parameters()]
        with self.assertNoLogs("agg_server", "WARNING"):
            self.assertEqual(worker.combine().version, 2)
        for p, grad in zip(net.parameters(), own):
            torch.testing.assert_close(p.grad, grad)


class DeferredTest(unittest.TestCase):

    def test_a_handler_that_raises_meanwhile_costs_no_other_one(self):
        # Between the call that sets a handler and what follows it.
        sets = signal.signal
        before = {n: signal.getsignal(n) for n in (signal.SIGINT,
                                                   signal.SIGUSR1)}
        self.addCleanup(sets, signal.SIGUSR1, before[signal.SIGUSR1])
        sets(signal.SIGUSR1, lambda *_: None)
        before[signal.SIGUSR1] = signal.getsignal(signal.SIGUSR1)
        for fails in range(1, 5):
            with self.subTest(fails):
                calls = []

                def set_and_raise(number, handler):
                    former = sets(number, handler)
                    calls.append(number)
                    if len(calls) == fails:
                        raise TimeoutError("a handler's")
                    return former

                with mock.patch.object(signal, "signal", set_and_raise), \
                        self.assertRaises(TimeoutError):
                    with Deferred():
                        pass
                self.assertEqual(before, {n: signal.getsignal(n)
                                          for n in before})


class DigestTest(unittest.TestCase):

    def test_equal_bytes_have_equal_numbers(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float64,
                      torch.int64, torch.uint8, torch.bool):
            tensors = [(torch.arange(12) % 7).to(dtype).view(3, 4),
                       torch.ones((), dtype=dtype),
                       torch.zeros(0, dtype=dtype)]
            found = Replica(tensors).digest(3)
            self.assertEqual(found, Replica([t.clone() for t in tensors]
                                            ).digest(3))
            self.assertNotEqual(found, 0)
            tensors[0][2, 3] = 1 - tensors[0][2, 3].to(torch.int64)
            self.assertNotEqual(found, Replica(tensors).digest(3))

    def test_strides_and_places_do_not_count(self):
        whole = torch.arange(24.0).view(4, 6)
        strided = torch.empty(6, 4).t().copy_(whole)
        self.assertFalse(strided.is_contiguous())
        self.assertEqual(Replica([whole]).digest(1), Replica([strided]).digest(1))

    def test_it_is_the_crc32c_of_the_bytes(self):
        tensor = torch.from_numpy(np.frombuffer(b"123456789", np.uint8).copy())
        self.assertEqual(Replica([tensor[:4], tensor[4:]]).digest(7),
                         0xe3069283)

    def test_a_large_model_is_looked_at_window_by_window(self):
        tensors = [torch.zeros(700_000), torch.zeros(3, dtype=torch.uint8),
                   torch.zeros(400_001)]
        replica = Replica(tensors)
        count = replica.count
        self.assertEqual(count, 5)  # of 1 MiB and less
        before = [replica.digest(v) for v in range(1, count + 1)]
        self.assertEqual(before, [replica.digest(v + count)
                                  for v in range(1, count + 1)])
        places = [(0, 0), (0, 262_144), (0, 699_999), (1, 2), (2, 0),
                  (2, 400_000)]
        for at, element in places:
            whole = replica.digest(0)
            tensors[at][element] = 1
            self.assertNotEqual(replica.digest(0), whole)
            after = [replica.digest(v) for v in range(1, count + 1)]
            changed = [a != b for a, b in zip(before, after)]
            self.assertEqual(changed.count(True), 1, (at, element))
            before = after

    def test_memory_that_has_become_smaller(self):
        parameter = torch.nn.Parameter(torch.ones(1 << 19))
        replica = Replica([parameter])
        whole = replica.digest(1)
        parameter.data = parameter.data.half()
        self.assertEqual(replica.digest(1),
                         Replica([torch.ones(1 << 19).half()]).digest(1))
        self.assertNotEqual(replica.digest(1), whole)
        parameter.untyped_storage().resize_(0)
        with self.assertLogs("agg_server", "WARNING") as logs:
            self.assertEqual(replica.digest(1), 0)
        self.assertIn("given back", logs.output[0])

    def test_memory_that_cannot_be_read_is_said_once(self):
        replica = Replica([torch.zeros(3, device="meta")])
        with self.assertLogs("agg_server", "WARNING") as logs:
            self.assertEqual([replica.digest(v) for v in range(3)], [0] * 3)
        self.assertEqual(len(logs.output), 1)


if __name__ == "__main__":
    unittest.main()
