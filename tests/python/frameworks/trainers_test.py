"""The examples of trainers, JAX and Ray, against the same in one process."""

import functools
import importlib.util
import os
import tempfile
import unittest
from unittest import mock

import numpy as np
import torch

from tests.python.example_case import (ExampleCase, adasum, backward,
                                       reference, toy, two_ranks)


def needs(module):
    """Skips where a framework is not installed, and says so."""
    return unittest.skipUnless(importlib.util.find_spec(module),
                               f"{module} is not installed")


def accumulated(net):
    """Two micro-batches of each of two ranks in each step."""
    ranks = [toy.batches(rank, 40) for rank in range(2)]
    for _ in range(20):
        yield [backward(net, next(batches), next(batches))
               for batches in ranks]


class TrainersTest(ExampleCase):

    def check(self, name):
        """One round for each optimizer step; the result is a plain loop's."""
        _, versions, saved = self.run_example(name)
        self.assertEqual(versions, {0: "20", 1: "20"})
        expected = reference(accumulated, adasum,
                             functools.partial(torch.optim.SGD, lr=0.1))
        self.assert_close(saved[0], expected)

    @needs("transformers")
    def test_hf_trainer(self):
        self.check("hf_trainer")

    @needs("lightning")
    def test_lightning_trainer(self):
        self.check("lightning_trainer")

    @needs("accelerate")
    def test_accelerate_loop(self):
        self.check("accelerate_loop")

    @needs("jax")
    def test_jax_client(self):
        import jax  # pylint: disable=import-outside-toplevel
        import jax_client  # pylint: disable=import-outside-toplevel
        with tempfile.TemporaryDirectory() as folder:
            _, versions, _ = self.run_example("jax_client", "--save", folder)
            self.assertEqual(versions, {0: "20", 1: "20"})
            with np.load(f"{folder}/rank0.npz") as arrays:
                found = {name: torch.from_numpy(array)
                         for name, array in arrays.items()}
        tree = jax_client.start()
        for both in zip(*(jax_client.batches(r, 20) for r in range(2))):
            rows = [jax.grad(jax_client.loss_fn)(tree, x, y) for x, y in both]
            tree = jax.tree.map(
                lambda p, *row: p - 0.1 * adasum(
                    [torch.tensor(np.array(g)) for g in row]).numpy(),
                tree, *rows)
        self.assert_close(found, {
            name: torch.from_numpy(array)
            for name, array in jax_client.by_name(tree).items()})

    @needs("ray")
    def test_on_ray(self):
        # Ray on loopback: so it finds 127.0.0.1 for its own address.
        with mock.patch.dict(os.environ, {
                "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
                "RAY_USAGE_STATS_ENABLED": "0"}):
            _, versions, saved = self.run_example("on_ray")
        self.assertEqual(versions, {0: "20", 1: "20"})
        self.assert_close(saved[0], reference(
            two_ranks, adasum, functools.partial(torch.optim.SGD, lr=0.1)))

    @needs("transformers")
    @needs("lightning")
    @needs("jax")
    @needs("ray")
    @needs("torchft")
    def test_help(self):
        self.check_help(("accelerate_loop", "hf_trainer", "jax_client",
                         "lightning_trainer", "on_ray", "torchft_diloco"))


if __name__ == "__main__":
    unittest.main()
