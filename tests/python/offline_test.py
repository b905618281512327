"""agg.combine: the rules on arrays, against golden.json and plain formulas.

golden.json was made by a model of the rules that shares no code with them
(tests/golden/README.md).
"""

import importlib.util
import json
import os
import unittest
from unittest import mock

import numpy as np

from tests.python.job_case import ROOT, agg
from tests.python.offline_case import adasum, find_program

GOLDEN = json.loads((ROOT / "tests" / "golden" / "golden.json").read_text())


find_program()


def some_rows(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape) + 0.3


class CombineTest(unittest.TestCase):

    def test_adasum_of_small_matrices(self):
        for name, case in GOLDEN["hand"].items():
            with self.subTest(name):
                found = agg.combine(case["A"], rule="adasum")
                np.testing.assert_allclose(found.gram, case["G"], rtol=1e-14)
                scale = np.abs(case["A"]).max(initial=1e-300)
                np.testing.assert_allclose(found.combined, case["adasum"],
                                           atol=1e-14 * scale)

    def test_adacons_remembers(self):
        for name in ("P3_scatter", "P4_scatter"):
            steps = GOLDEN["adacons"][name]
            found = agg.combine_steps([step["A"] for step in steps],
                                      rule="adacons")
            self.assertGreater(len(steps), 1)
            for step, golden in zip(found, steps):
                np.testing.assert_allclose(step.coefficients, golden["c"],
                                           rtol=1e-6)
                np.testing.assert_allclose(step.combined, golden["out"],
                                           rtol=1e-6)

    def test_shapes_types_and_the_plain_mean(self):
        rows = some_rows(1, 3, 2, 5)
        for kind in (np.float16, np.float32, np.float64):
            given = rows.astype(kind)
            found = agg.combine(given)
            self.assertEqual((found.combined.dtype, found.combined.shape),
                             (kind, (2, 5)))
            np.testing.assert_array_equal(
                found.coefficients, np.full(3, 1 / 3))
            # Terms that cancel lose digits of the terms, not of the sum; three
            # products, two sums and the rounding to `kind`.
            mean = given.astype(np.float64).mean(axis=0)
            error = np.abs(found.combined - mean)
            np.testing.assert_array_less(
                error, np.finfo(kind).eps * np.abs(mean)
                + 6 * np.finfo(np.float64).eps * np.abs(given).max())
        self.assertEqual(agg.combine([[1, 2], [3, 4]]).combined.tolist(),
                         [2.0, 3.0])

    def test_adasum_of_four(self):
        rows = some_rows(2, 4, 50)
        found = agg.combine(rows, rule="adasum")
        np.testing.assert_allclose(found.combined, adasum(rows), rtol=1e-12)
        np.testing.assert_allclose(
            found.numbers["orthogonality"],
            adasum(rows) @ adasum(rows) / np.square(rows).sum(), rtol=1e-12)
        self.assertAlmostEqual(found.numbers["norm"],
                               np.linalg.norm(adasum(rows)))

    def test_tensors_together_or_each_by_itself(self):
        model = {"w": some_rows(3, 4, 6, 5), "b": some_rows(4, 4)}
        flat = np.concatenate([model["w"].reshape(4, -1),
                               model["b"].reshape(4, 1)], axis=1)
        whole = agg.combine(model, "adasum", "global")
        expected = adasum(flat)
        self.assertEqual(whole.combined["b"].shape, ())
        np.testing.assert_allclose(whole.combined["w"].reshape(-1),
                                   expected[:-1], rtol=1e-12)
        np.testing.assert_allclose(whole.combined["b"], expected[-1],
                                   rtol=1e-12)
        each = agg.combine(model, "adasum", "per_tensor")
        np.testing.assert_allclose(each["w"].combined.reshape(-1),
                                   adasum(flat[:, :-1]), rtol=1e-12)
        with self.assertRaisesRegex(agg.ManifestError, 'scope is None; allow'):
            agg.combine(model, "adasum")

    def test_rows_that_are_not_finite_are_left_out(self):
        rows = some_rows(5, 3, 4)
        rows[1, 2] = np.inf
        found = agg.combine(rows)
        self.assertEqual((found.excluded, found.message), ((1,), ""))
        np.testing.assert_allclose(found.combined, rows[[0, 2]].mean(axis=0),
                                   rtol=1e-15)
        nothing = agg.combine(np.full((2, 3), np.nan))
        np.testing.assert_array_equal(nothing.combined, np.zeros(3))
        self.assertIn("finite", nothing.message)

    def test_options(self):
        rows = some_rows(6, 2, 8)
        found = agg.combine(rows, "weighted_mean", examples=[1, 3])
        np.testing.assert_array_equal(found.coefficients, [0.25, 0.75])
        clipped = agg.combine(rows, clip_norm=0.5)
        self.assertAlmostEqual(np.linalg.norm(clipped.combined), 0.5)
        scaled = agg.combine(rows, step_scale="adascale")
        # server/combine/README.md 5: S = 2, one sample, no clip active.
        mean = rows.mean(axis=0)
        var = np.square(rows - mean).sum()
        sqr = mean @ mean - var / 2
        self.assertGreater(sqr, 0)
        self.assertAlmostEqual(scaled.numbers["gain"],
                               (var + sqr) / (var / 2 + sqr))

    def test_what_is_refused_is_named(self):
        rows = some_rows(7, 2, 3)
        for call, said in (
                (lambda: agg.combine(rows, "median"), 'rule is "median"'),
                (lambda: agg.combine(rows, clip_norm=-1), "clip_norm is -1"),
                (lambda: agg.combine(rows, clip_nrom=1), "clip_nrom"),
                (lambda: agg.combine(rows[0]), r"shape \(3,\); allowed"),
                (lambda: agg.combine(rows[:0]), r"shape \(0, 3\); allowed"),
                (lambda: agg.combine_steps([rows, rows[:, :2]]),
                 "step1.npy: rows of 2 elements, but 3"),
                (lambda: agg.combine_steps([{"a": rows}, {"b": rows}]),
                 "different tensors")):
            with self.assertRaisesRegex(agg.ManifestError, said):
                call()

    def test_a_program_that_is_not_there_is_named(self):
        with mock.patch.dict(os.environ, PATH="/nowhere"), \
                self.assertRaisesRegex(agg.Error, "agg_combine is not there"):
            agg.combine([[1.0, 2.0]])

    @unittest.skipUnless(importlib.util.find_spec("torch"),
                         "torch is not installed")
    def test_torch(self):
        import torch
        rows = torch.from_numpy(some_rows(8, 4, 3, 2))
        for kind in (torch.float64, torch.float32, torch.bfloat16):
            given = rows.to(kind).requires_grad_()
            found = agg.combine(given, "adasum")
            self.assertEqual((found.combined.dtype, found.combined.shape),
                             (kind, (3, 2)))
            expected = adasum(given.detach().double().reshape(4, -1).numpy())
            np.testing.assert_allclose(
                found.combined.double().numpy().reshape(-1), expected,
                rtol=torch.finfo(kind).eps, atol=1e-15)


if __name__ == "__main__":
    unittest.main()
