"""Worker, allreduce and what of a model goes over the wire."""

import os
import subprocess
import sys
import threading
import time
import types
import unittest
import warnings
from unittest import mock

import torch

from tests.python.job_case import ROOT, WAIT, agg
from tests.python.torch.torch_case import (TorchCase, batch, copies,
                                           loss_of, model)
from agg_server import _pulled, _session, _tensors


class WorkerTest(TorchCase):

    def test_the_plain_loop_is_sgd_on_the_mean_gradient(self):
        server = self.serve(shards=2, workers=2, lr=0.1)

        def work(rank):
            net, heard = model(), []
            with agg.Worker(net, server.address, rank) as worker:
                worker.add_listener(heard.append)
                for i in range(10):
                    loss = loss_of(net, batch(rank, i))
                    loss.backward()
                    outcome = worker.step(loss=loss, examples=8)
                    self.assertTrue(all(p.grad is None
                                        for p in net.parameters()))
                self.assertEqual(len(heard), 10)
                self.assertEqual(worker.state_dict()["version"], 10)
                return copies(net), outcome

        (first, outcome), (second, _) = self.team(2, work)
        self.assert_equal(first, second)
        self.assertEqual(outcome.ranks, (0, 1))
        local = model()
        sgd = torch.optim.SGD(local.parameters(), lr=0.1)
        for i in range(10):
            sgd.zero_grad()
            (sum(loss_of(local, batch(r, i)) for r in range(2)) / 2).backward()
            sgd.step()
        # Ten steps of a few roundings each.
        self.assert_near(first, local.parameters(), rtol=2e-5, atol=1e-6)

    def test_unequal_batches_and_accumulation(self):
        def work(worker, net, rank):
            parts = batch(rank, 0, 4 if rank else 12).split(4)
            for part in parts:
                (loss_of(net, part) / len(parts)).backward()
            worker.step(examples=4 * len(parts), accumulation=len(parts))
            return copies(net)

        first, second = self.job_of(2, work, rule="weighted_mean", lr=0.1)
        self.assert_equal(first, second)
        local = model()
        sgd = torch.optim.SGD(local.parameters(), lr=0.1)
        loss_of(local, torch.cat([batch(0, 0, 12), batch(1, 0, 4)])).backward()
        sgd.step()
        self.assert_near(first, local.parameters(), rtol=1e-5, atol=1e-7)

    @staticmethod
    def linear_of(rank):
        """With weights that say whose they are."""
        net = torch.nn.Linear(2, 1)
        torch.nn.init.constant_(net.weight, float(rank + 1))
        return net

    def test_rank_0_seeds_when_asked(self):
        server = self.serve(workers=2, lr=1.0)
        asked, seeded = threading.Event(), threading.Event()
        both = threading.Barrier(2)

        def sleep(_):
            """Rank 1's, after it was told that nobody has seeded."""
            asked.set()
            self.assertTrue(seeded.wait(WAIT))

        def work(rank):
            net = self.linear_of(rank)
            if rank == 0:
                self.assertTrue(asked.wait(WAIT))
            with agg.Worker(net, server.address, rank, seed="rank0"):
                seeded.set()
                both.wait(WAIT)  # the last one that leaves ends the job
                return net.weight[0, 0].item()

        with mock.patch.object(_session, "time", types.SimpleNamespace(
                monotonic=time.monotonic, sleep=sleep)):
            self.assertEqual(self.team(2, work), [1.0, 1.0])

    def test_rank_0_seeds_a_job_with_identities(self):
        folder = self.temporary_folder()
        token, shard = folder / "alice", folder / "shard"
        for path in token, shard:
            path.write_text(f"{path.name}-token-0123456\n")
            path.chmod(0o600)
        server = self.serve(workers=2, lr=1.0, config={
            "security": {"identities": [{"name": "alice", "roles": "worker",
                                         "token_file": str(token)}],
                         "shard_token_file": str(shard)}})
        both = threading.Barrier(2)

        def work(rank):
            net = self.linear_of(rank)
            with agg.Worker(net, server.address, rank, seed="rank0",
                            token_file=token):
                both.wait(WAIT)
                return net.weight[0, 0].item()

        self.assertEqual(self.team(2, work), [1.0, 1.0])

    def test_who_waits_for_the_seed_connects_as_the_worker(self):
        said = {"tls_ca": "ca.pem", "tls_certificate": "own.pem",
                "tls_key": "own.key", "tls_server_name": "a",
                "token_file": "token", "tls": agg.Tls("other.pem")}

        class Connected(Exception):
            """As far as this test goes."""

        with mock.patch.object(_session, "Session", side_effect=Connected) as \
                session, self.assertRaises(Connected):
            agg.Worker(model(), "h:1", 1, seed="rank0", copy_threads=2,
                       **said)
        options = session.call_args.kwargs["options"]
        self.assertLessEqual(options.pop("connect_timeout"), 30)
        self.assertEqual(options, said)

    def test_who_waits_for_the_seed_has_options_that_exist(self):
        with mock.patch.object(_session, "Session") as session, \
                self.assertRaisesRegex(TypeError, "patience is no option"):
            agg.Worker(model(), "h:1", 1, seed="rank0", patience=3)
        session.assert_not_called()

    def test_a_step_without_backward_says_what_is_missing(self):
        worker = self.lone_worker(model(), lr=1.0)
        with self.assertRaisesRegex(
                agg.ManifestError, "call loss.backward.. first, or say "
                "find_unused=True"):
            worker.step()

    def test_tensors_without_addresses_are_looked_at_each_time(self):
        class NoAddress(torch.Tensor):
            """As a wrapper's subclass, whose storage is elsewhere."""

            def data_ptr(self):
                raise RuntimeError("no storage")

            def detach(self):
                return self.as_subclass(torch.Tensor).detach()

        tensors = [torch.zeros(3).as_subclass(NoAddress)]
        pulled = _pulled.Pulled(tensors, False)
        for _ in range(2):
            self.assertEqual([t.tolist() for t in pulled.targets()],
                             [[0.0] * 3])

    def test_nobody_seeds(self):
        server = self.serve(workers=2, lr=1.0)
        now = [0.0]

        def sleep(_):
            now[0] += 2 * WAIT

        with mock.patch.object(_session, "time", types.SimpleNamespace(
                monotonic=lambda: now[0], sleep=sleep)), \
                self.assertRaisesRegex(agg.Timeout, "rank 0 has to"):
            agg.Worker(model(), server.address, 1, seed="rank0",
                       connect_timeout=WAIT)

    def test_rank_0_may_take_its_time(self):
        """Without a limit of its own nobody gives up; it is said once."""
        server = self.serve(workers=2, lr=1.0)
        now, slept = [0.0], []

        def sleep(seconds):
            slept.append(seconds)
            now[0] += 20.0
            if len(slept) == 7:  # 140 s
                self.addCleanup(agg.Worker(model(), server.address, 0).close)

        with mock.patch.object(_session, "time", types.SimpleNamespace(
                monotonic=lambda: now[0], sleep=sleep)), \
                self.assertLogs("agg_server", "WARNING") as logs:
            with agg.Worker(model(), server.address, 1, seed="rank0"):
                pass
        said = [line for line in logs.output if 'seed="rank0"' in line]
        self.assertEqual(len(said), 2, logs.output)  # at 20 s and 80 s
        self.assertLessEqual(max(slept), 2.0)

    def test_a_worker_without_a_batch_sits_out(self):
        for unused in (False, True):
            for overlap in (False, True):
                self.sit_out(find_unused=unused, overlap=overlap)

    def sit_out(self, **options):
        server = self.serve(workers=2, lr=1.0)

        def work(rank):
            net = model()
            with agg.Worker(net, server.address, rank, **options) as worker:
                loss_of(net, batch(rank, 0)).backward()
                if rank == 1:
                    with self.assertRaisesRegex(agg.ManifestError,
                                                "examples is 0.*sit_out"):
                        worker.step(examples=0)
                    outcome = worker.sit_out()
                else:
                    outcome = worker.step()
                self.assertEqual((outcome.ranks, outcome.excluded_ranks),
                                 ((0,), (1,)))
                loss_of(net, batch(rank, 1)).backward()
                self.assertEqual(worker.step().ranks, (0, 1))
                return copies(net)

        first, second = self.team(2, work)
        self.assert_equal(first, second)
        local = model()
        sgd = torch.optim.SGD(local.parameters(), lr=1.0)
        for losses in ([(0, 0)], [(0, 1), (1, 1)]):
            sgd.zero_grad()
            (sum(loss_of(local, batch(r, i)) for r, i in losses)
             / len(losses)).backward()
            sgd.step()
        self.assert_near(first, local.parameters(), rtol=1e-5, atol=1e-6)

    def test_the_mode_must_fit_the_job(self):
        server = self.serve(workers=3, lr=1.0)
        with agg.Worker(model(), server.address, 0) as worker:
            with self.assertRaisesRegex(agg.ManifestError, '"combine"'):
                worker.combine()
            with self.assertRaisesRegex(agg.ManifestError, "none"):
                agg.Worker(model(), server.address, 1, mode="combine")
        server = self.serve(workers=1, optimizer="none")
        with self.assertRaisesRegex(agg.ManifestError, '"combine"'):
            agg.Worker(model(), server.address, 0)
        with self.assertRaisesRegex(agg.ManifestError, "mode is"):
            agg.Worker(model(), server.address, 0, mode="add")

    def test_what_is_no_model(self):
        for wrong in (torch.nn.Linear, model().parameters(),
                      {"w": [1.0]}, [torch.ones(1)]):
            with self.assertRaisesRegex(
                    agg.ManifestError, "^model is .*; allowed: a torch.nn.Mod"):
                agg.Worker(wrong, "127.0.0.1:1", 0)

    def test_a_worker_that_trained_alone_says_so_when_it_leaves(self):
        for mode, job in (("server", {"lr": 0.1}),
                          ("combine", {"optimizer": "none"})):
            for trains in (False, True):
                server = self.serve(workers=1, **job)
                net = model()
                worker = agg.Worker(net, server.address, 0, mode=mode)
                opt = torch.optim.SGD(net.parameters(), lr=0.1)
                if trains:
                    loss_of(net, batch(0, 0)).backward()
                    opt.step()
                    with self.assertLogs("agg_server", "WARNING") as logs:
                        worker.close()
                    self.assertIn("rank 0 leaves, and has made no round",
                                  logs.output[0])
                with self.assertNoLogs("agg_server", "WARNING"):
                    worker.close()

    def test_a_parameter_without_a_gradient_moves_and_it_is_said(self):
        net = model()
        worker = self.lone_worker(net, lr=0.1,
                                  optimizer={"kind": "adamw",
                                             "weight_decay": 0.5},
                                  find_unused=True)
        before = net[0].weight.clone()
        with self.assertLogs("agg_server", "WARNING") as logs:
            for i in range(3):
                loss_of(net, batch(0, i)).backward()
                net[0].weight.grad = None
                worker.step()
        self.assertEqual(len(logs.output), 1)
        self.assertRegex(logs.output[0],
                         '"0.weight" has no gradient.*"adamw"')
        self.assertFalse(torch.equal(net[0].weight, before))

    def test_statistics_that_are_not_sent_are_said(self):
        def layers(norm, training=True):
            return torch.nn.Sequential(torch.nn.Linear(2, 2), norm(2),
                                       norm(2)).train(training)

        said = "running statistics of \"1\" .and 1 more. are not sent"
        for norm, training, workers, message in (
                (torch.nn.BatchNorm1d, True, 2, said),
                (torch.nn.SyncBatchNorm, True, 2,
                 said + ".*needs torch.distributed"),
                (torch.nn.BatchNorm1d, False, 2, ""),
                (torch.nn.BatchNorm1d, True, 1, ""),
                (lambda n: torch.nn.GroupNorm(1, n), True, 2, ""),
                (lambda n: torch.nn.BatchNorm1d(
                    n, track_running_stats=False), True, 2, "")):
            server = self.serve(workers=workers, lr=0.1)

            def join(rank, server=server, norm=norm, training=training):
                agg.Worker(layers(norm, training), server.address, rank,
                           ).close()

            with self.subTest(message=message):
                if not message:
                    with self.assertNoLogs("agg_server", "WARNING"):
                        self.team(workers, join)
                    continue
                with self.assertLogs("agg_server", "WARNING") as logs:
                    self.team(workers, join)
                self.assertEqual(len(logs.output), 2)
                self.assertRegex(logs.output[0], message)

    def test_unused_parameters(self):
        net = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 1),
                                   "b": torch.nn.Linear(2, 1)})
        worker = self.lone_worker(net, lr=1.0, find_unused=True)
        before = copies(net["b"])
        net["a"](torch.ones(1, 2)).sum().backward()
        worker.step()
        self.assert_equal(copies(net["b"]), before)

    def test_other_types_layouts_and_strides(self):
        tensors = {
            "half": torch.zeros(3, dtype=torch.bfloat16, requires_grad=True),
            "double": torch.zeros(3, dtype=torch.float64, requires_grad=True),
            "turned": torch.zeros(2, 3).t().requires_grad_(),
            "sparse": torch.zeros(4, 2, requires_grad=True),
            "empty": torch.zeros(0, requires_grad=True),
        }
        worker = self.lone_worker(tensors, lr=1.0)
        row = torch.arange(6.0).reshape(3, 2)
        tensors["half"].grad = torch.full((3,), 2.0, dtype=torch.bfloat16)
        tensors["double"].grad = torch.full((3,), 3.0,
                                            dtype=torch.float64)
        tensors["turned"].grad = row.t().contiguous().t()
        tensors["sparse"].grad = torch.sparse_coo_tensor(
            [[1, 1]], [[1.0, 2.0], [1.0, 2.0]], (4, 2),
            check_invariants=True)
        tensors["empty"].grad = torch.zeros(0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            worker.step()
        self.assertIn("sparse", str(caught[0].message))
        self.assertTrue((tensors["half"] == -2).all())
        self.assertTrue((tensors["double"] == -3).all())
        self.assertTrue(torch.equal(tensors["turned"].detach(), -row))
        self.assertEqual(tensors["sparse"].tolist(),
                         [[0, 0], [-2, -4], [0, 0], [0, 0]])

    def test_the_oldest_torch(self):
        """Its increment_version takes one tensor."""
        def increment_one(tensor):
            if not isinstance(tensor, torch.Tensor):
                raise TypeError("_increment_version(): incompatible arguments")
            increment(tensor)

        increment = torch.autograd.graph.increment_version
        for zero_copy in (False, True):
            server, net = self.serve(workers=1, lr=1.0), model()
            with agg.Worker(net, server.address, 0, zero_copy=zero_copy
                            ) as worker:
                before = [p._version for p in net.parameters()]
                loss_of(net, batch(0, 0)).backward()
                with mock.patch.object(torch.autograd.graph,
                                       "increment_version", increment_one):
                    worker.step()
                for version, p in zip(before, net.parameters(), strict=True):
                    self.assertGreater(p._version, version)

    def test_names_are_the_models_own(self):
        self.assertEqual(_tensors.canonical_name(
            "module._orig_mod.a._fsdp_wrapped_module.weight"), "a.weight")
        self.assertEqual(_tensors.canonical_name("a.module.b"),
                         "a.module.b")
        net = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2),
                                   "b": torch.nn.Linear(2, 2)})
        net["b"].weight = net["a"].weight  # tied: once
        net["a"].bias.requires_grad_(False)  # frozen: not at all
        self.assertEqual(list(_tensors.named_tensors(net)),
                         ["a.weight", "b.bias"])
        with self.assertRaisesRegex(agg.ManifestError, "no size yet"):
            _tensors.named_tensors(torch.nn.LazyLinear(3))

    def test_zero_copy_has_no_second_copy_of_the_parameters(self):
        """Of this process's own memory: what the seed needed is given back."""
        server = self.serve(workers=1, lr=1.0)
        result = subprocess.run(
            [sys.executable, "-B", "-c", """if True:
            import sys
            import torch
            from tests.python.job_case import agg
            def mib():
                with open("/proc/self/status") as lines:
                    return [int(line.split()[1]) / 1024 for line in lines
                            if line.startswith("RssAnon")][0]
            tensors = {str(i): torch.ones(1 << 20).requires_grad_()
                       for i in range(64)}
            before = mib()
            with agg.Worker(tensors, sys.argv[1], 0, zero_copy=True):
                print(mib() - before)
            """, server.address], stdin=subprocess.DEVNULL, text=True,
            capture_output=True, timeout=WAIT, check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)})
        self.assertLess(float(result.stdout), 256 / 4)

    def test_groups(self):
        server = self.serve(workers=1, lr=1.0, config={
            "groups": [{"name": "frozen", "learning_rate_factor": 0.0}]})
        net = model()
        with self.assertRaisesRegex(agg.ManifestError, '"c"'):
            agg.Worker(net, server.address, 0, groups={"frozen": ["c"]})
        with agg.Worker(net, server.address, 0,
                        groups={"frozen": ["0.bias"]}) as worker:
            before = copies(net)
            loss_of(net, batch(0, 0)).backward()
            worker.step()
            self.assertTrue(torch.equal(net[0].bias.detach(), before[1]))
            self.assertFalse(torch.equal(net[0].weight.detach(), before[0]))

    def test_allreduce_is_adasum(self):
        def make(rank):
            return {"x": torch.tensor([1.0, 0.0] if rank else [0.0, 1.0]),
                    "y": torch.full((3,), 2.0, dtype=torch.float16)}

        def work(worker, tensors, _):
            return agg.allreduce(tensors, worker)

        for result in self.job_of(2, work, make, rule="adasum",
                                  mode="combine"):
            # Orthogonal: the sum. Parallel: the mean.
            self.assertEqual(result["x"].tolist(), [1.0, 1.0])
            self.assertEqual(result["y"].tolist(), [2.0, 2.0, 2.0])
            self.assertEqual(result["y"].dtype, torch.float16)


if __name__ == "__main__":
    unittest.main()
