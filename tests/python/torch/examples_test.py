"""The examples that need torch alone, against the same in one process."""

import functools
import unittest

import torch

from tests.python.example_case import (FOLDER, ExampleCase, adasum, backward,
                                       reference, toy, two_ranks)

NAMES = ("accumulation", "by_torchrun", "clipping", "ddp_nodes", "fsdp",
         "plain", "scaler")
# Those of tests/python/frameworks.
OTHERS = ("accelerate_loop", "hf_trainer", "jax_client", "lightning_trainer",
          "on_ray", "torchft_diloco")

_SGD = functools.partial(torch.optim.SGD, lr=0.1)


def two_nodes(net):
    """Two ranks of each of two nodes."""
    for a, b, c, d in zip(*(toy.batches(rank, 20) for rank in range(4))):
        yield [backward(net, a, b), backward(net, c, d)]


class ExamplesTest(ExampleCase):

    def check(self, name, expected, workers=(0, 1)):
        _, versions, saved = self.run_example(name)
        for rank in workers:
            self.assertEqual(versions[rank], "20")
        self.assert_close(saved[0], expected)

    def test_every_example_is_tested(self):
        # Quickstart, notebook and rule have tests of their own.
        found = {path.stem for path in FOLDER.glob("*.py")}
        found -= {"toy", "quickstart", "researcher", "own_rule"}
        self.assertEqual(found, set(NAMES + OTHERS))
        for name in NAMES:
            self.assertTrue(hasattr(self, "test_" + name), name)

    def test_help(self):
        self.check_help(NAMES)

    def test_plain(self):
        self.check("plain", reference(two_ranks, adasum, _SGD))

    def test_by_torchrun(self):
        self.check("by_torchrun", reference(two_ranks, adasum, _SGD))

    def test_accumulation(self):
        def rows_of(net):
            second = toy.batches(1, 40)
            for batch in toy.batches(0, 20):
                yield [backward(net, batch),
                       backward(net, next(second), next(second))]

        self.check("accumulation", reference(
            rows_of, lambda rows: (rows[0] + 2 * rows[1]) / 3, _SGD))

    def test_clipping(self):
        norms = []

        def clip(net):
            norms.append(torch.nn.utils.clip_grad_norm_(net.parameters(),
                                                        0.25))

        self.check("clipping", reference(
            two_ranks, adasum, functools.partial(_SGD, momentum=0.9),
            after=clip))
        self.assertGreater(max(norms), 0.25)  # else there is nothing to clip

    def test_ddp_nodes(self):
        self.check("ddp_nodes", reference(two_nodes, adasum, _SGD), (0, 2))

    def test_fsdp(self):
        self.check("fsdp", reference(two_nodes, adasum, _SGD), (0, 2))

    def test_scaler(self):
        # Replicas are the same: run_example compares them.
        text, versions, _ = self.run_example("scaler", "--steps=5")
        self.assertEqual(versions, {0: "5", 1: "5"})
        scales = [line for line in text.splitlines() if "scale" in line]
        self.assertEqual(sorted(scales), ["rank 0: scale 1024, left out: (1,)",
                                          "rank 1: scale 512, left out: (1,)"])


if __name__ == "__main__":
    unittest.main()
