"""torchft's tests of a replica that fails and comes back, with our manager.

Not here: what a lighthouse, a quorum or a process group of torchft's does (a
quorum's timeout, `min_replicas`, healing over HTTP), of which this job has none:
a replica that fails leaves the job, and the others go on without it.
"""

import copy
import importlib.util
import threading
import unittest

import torch

from tests.python.job_case import WAIT, agg
from tests.python.torch.torch_case import (TorchCase, batch, copies,
                                           loss_of, model)

if importlib.util.find_spec("torchft"):
    from torchft import local_sgd
    from agg_server.torchft import Manager


class Failure(Exception):
    """Of a replica, as torchft's tests inject it."""


class Shared:
    """What the replicas of a test hand each other. Thread-safe."""

    def __init__(self):
        self._changed = threading.Condition()
        self._states = {}
        self._end = None

    def put(self, version, state):
        with self._changed:
            self._states[version] = copy.deepcopy(state)
            self._changed.notify_all()

    def get(self, version):
        """Waits for it."""
        with self._changed:
            if not self._changed.wait_for(lambda: version in self._states,
                                          WAIT):
                raise AssertionError(f"nobody had version {version}")
            return self._states[version]

    def end_at(self, version):
        with self._changed:
            self._end = version

    def over(self, version):
        with self._changed:
            return self._end is not None and version >= self._end


def diloco(net, manager, inner, fragments, delay):
    """A context that synchronizes the net every other step."""
    parts = [net] if fragments == 1 else [net[0], net[2]]
    outers = [torch.optim.SGD(part.parameters(), lr=0.7, momentum=0.9,
                              nesterov=True) for part in parts]
    return local_sgd.DiLoCo(manager, parts, inner, outers,
                            sync_every=2 * fragments,
                            fragment_sync_delay=delay)


def averaged(net, manager, inner):
    return local_sgd.LocalSGD(manager, net, inner, sync_every=2)


@unittest.skipUnless(importlib.util.find_spec("torchft"),
                     "torchft is not installed")
class TorchftRecoveryTest(TorchCase):

    def train(self, net, worker, rank, shared, make, fail_at=None):
        """Until the end; (its parameters, its state, who was in each round).
        """
        manager = Manager(worker)
        inner = torch.optim.SGD(net.parameters(), lr=0.05)
        version, ranks = worker.version, []
        with make(net, manager, inner):
            if version > 0:  # it has come back
                shared.end_at(version + 4)
                state = shared.get(version)
                net.load_state_dict(state["model"])
                manager.load_state_dict(state["manager"])
            step = 0
            while not shared.over(version):
                inner.zero_grad()
                loss_of(net, batch(rank, step)).backward()
                step += 1
                if version == fail_at:
                    raise Failure("as the test wants it")
                inner.step()
                if worker.version > version:
                    version = worker.version
                    ranks.append(worker.last.ranks)
                    shared.put(version, {"model": net.state_dict(),
                                         "manager": manager.state_dict()})
            return copies(net), manager.state_dict(), ranks

    def run_replicas(self, make):
        """The second one fails in the midst of its third round, and is started
        again; what train() has given, by rank."""
        server = self.serve(shards=2, workers=2, optimizer="none")
        nets = [model(), model(), model()]
        shared = Shared()

        def life(net, rank, **options):
            with agg.Worker(net, server.address, rank, mode="combine",
                            find_unused=True) as worker:
                return self.train(net, worker, rank, shared, make, **options)

        def replica(rank):
            if rank == 1:
                with self.assertRaises(Failure):
                    life(nets[1], 1, fail_at=2)
                return life(nets[2], 1)
            return life(nets[0], 0)

        first, second = self.team(2, replica)
        # Both, then the first one alone, then both again.
        self.assertEqual(first[2][:3], [(0, 1), (0, 1), (0,)])
        self.assertEqual(second[2], [(0, 1)] * 4)
        self.assertEqual(first[2][-4:], second[2])
        return first, second

    def assert_same(self, a, b):
        """Bit for bit, of states within states."""
        if isinstance(a, torch.Tensor):
            self.assertTrue(torch.equal(a, b))
        elif isinstance(a, dict):
            self.assertEqual(list(a), list(b))
            for key, value in a.items():
                self.assert_same(value, b[key])
        else:
            self.assertEqual(a, b)

    def test_local_sgd(self):
        (mine, _, _), (others, _, _) = self.run_replicas(averaged)
        self.assert_equal(mine, others)

    def test_diloco(self):
        for fragments, delay in ((1, 0), (2, 0), (2, 1)):
            with self.subTest(fragments=fragments, delay=delay):
                first, second = self.run_replicas(
                    lambda *args, f=fragments, d=delay: diloco(*args, f, d))
                self.assertEqual(len(first[1]["carried"]), fragments)
                # What all share, and the outer optimizers' momentum.
                self.assert_same(first[1], second[1])

    def test_a_state_of_another_version_is_refused(self):
        net = model()
        worker = self.lone_worker(net, mode="combine")
        manager = Manager(worker)
        with self.assertRaisesRegex(agg.ManifestError,
                                    "version 3; allowed: 0"):
            manager.load_state_dict({"version": 3, "carried": {}})


if __name__ == "__main__":
    unittest.main()
