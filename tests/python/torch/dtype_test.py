"""What a tensor's numbers, shape and layout may be: what is refused, and what is
rounded, is said by name."""

import unittest
import warnings

import torch

from tests.python.job_case import agg
from tests.python.torch.torch_case import TorchCase, heard
from agg_server import _tensors


class DtypeTest(TorchCase):

    def test_tensors_that_no_row_can_have(self):
        whole = torch.zeros(2, 3)
        for tensor, said in (
                (whole.to(torch.complex64), "complex64.*view_as_real"),
                (whole.to(torch.complex128), "complex128.*view_as_real"),
                (whole.bool(), "torch.bool.*float"),
                (whole.to(torch.int8), "int8.*float"),
                (whole.to(torch.uint8), "uint8.*float"),
                (whole.to(torch.int16), "int16.*float"),
                (whole.int(), "int32.*2..24"),
                (whole.long(), "int64.*2..24"),
                (whole.to(torch.float8_e4m3fn), "float8_e4m3fn.*float"),
                (torch.quantize_per_tensor(whole, 1.0, 0, torch.qint8),
                 "qint8.*dequantize"),
                (torch.zeros(2, device="meta"), "meta.*no values"),
                (whole.to_sparse(), "sparse_coo.*to_dense"),
                (whole.to_sparse_csr(), "sparse_csr.*to_dense"),
                (torch.zeros(1).expand(3), "expanded.*clone")):
            for mode in ("server", "combine"):
                with self.subTest(said), self.assertRaisesRegex(
                        agg.ManifestError, '^tensor "x" .*' + said):
                    agg.Worker({"y": whole, "x": tensor}, "127.0.0.1:1", 0,
                               mode=mode)

    def test_rows_that_cannot_be_sent(self):
        tensors = {"x": torch.zeros(2, 3)}
        whole = torch.ones(2, 3)
        worker = self.lone_worker(tensors, mode="combine")
        for row, said in (
                (whole[0], r"shape \(3,\); allowed: \(2, 3\)"),
                (torch.ones(()), r"shape \(\)"),
                (torch.ones(1, 2, 3), r"shape \(1, 2, 3\)"),
                (torch.ones(3, 2), r"shape \(3, 2\)"),
                (torch.ones(3, 2).half(), r"shape \(3, 2\)"),
                (torch.ones(6), r"shape \(6,\)"),
                (whole.to(torch.complex64), "complex64"),
                (whole.long(), "int64"), (whole.bool(), "bool"),
                (whole.to(torch.uint8), "uint8"),
                (torch.ones(2, 3, device="meta"), "meta"),
                (torch.full((2, 3), 1e60, dtype=torch.float64), "1e.60"),
                ([[1.0] * 3] * 2, "list")):
            with self.subTest(said), self.assertRaisesRegex(
                    agg.ManifestError, '"x".*' + said):
                agg.allreduce({"x": row}, worker)
        with self.assertRaisesRegex(agg.ManifestError,
                                    '"x" is missing.*find_unused'):
            agg.allreduce({}, worker)
        with self.assertRaisesRegex(agg.ManifestError,
                                    '"accuracy" is none.*job'):
            agg.allreduce({"x": whole, "accuracy": torch.ones(())}, worker)
        self.assertEqual(worker.version, 0)  # no round was spent
        result = agg.allreduce({"x": 2 * whole.t().contiguous().t()},
                               worker)
        self.assertTrue(torch.equal(result["x"], 2 * whole))

    def test_what_may_be_reduced(self):
        tensors = {"scalar": torch.tensor(2.0), "empty": torch.zeros(0, 3),
                   "turned": torch.arange(6.0).reshape(2, 3).t(),
                   "half": torch.full((2,), 65504.0).half(),
                   "brain": torch.ones(2, dtype=torch.bfloat16)}
        worker = self.lone_worker(tensors, mode="combine")
        with heard() as texts:
            found = agg.allreduce(tensors, worker)
        self.assertEqual(texts, [])
        for name, tensor in tensors.items():
            self.assertEqual(found[name].dtype, tensor.dtype)
            self.assertTrue(torch.equal(found[name], tensor), name)

    def test_wide_tensors_are_said_once(self):
        server = self.serve(workers=1, lr=1.0)
        x = torch.full((2,), 0.1, dtype=torch.float64, requires_grad=True)
        with heard() as texts:
            with agg.Worker({"x": x}, server.address, 0) as worker:
                for _ in range(3):
                    x.grad = torch.ones_like(x)
                    worker.step()
        self.assertEqual(len(texts), 1, texts)
        self.assertRegex(texts[0], '"x" of float64.*as float32')

    def test_wide_rows_are_said_once(self):
        tensors = {"x": torch.zeros(2)}
        worker = self.lone_worker(tensors, mode="combine")
        with heard() as texts:
            for _ in range(3):
                agg.allreduce({"x": torch.ones(2, dtype=torch.float64)},
                              worker)
        self.assertEqual(len(texts), 1, texts)
        self.assertRegex(texts[0], '"x" is float64, and is sent as float32')

    def test_a_seed_beyond_float32(self):
        server = self.serve(workers=1, lr=1.0)
        x = torch.full((2,), 1e60, dtype=torch.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with self.assertRaisesRegex(agg.ManifestError, '"x".*1e.60'):
                agg.Worker({"x": x}, server.address, 0)

    def test_results_beyond_a_dtypes_range_are_said_once(self):
        tensors = {"x": torch.zeros(2).half(), "y": torch.zeros(2).half()}
        worker = self.lone_worker(tensors, rule="sum", mode="combine")
        with heard() as texts:
            for _ in range(2):
                for tensor in tensors.values():
                    tensor.grad = torch.ones(2).half()
                tensors["x"].grad[0] = 60000.0
                # Divided out again: 60000 / 2**-3.
                worker.combine(loss_scale=2.0 ** -3)
        self.assertTrue(torch.isinf(tensors["x"].grad[0]))
        self.assertEqual(len(texts), 1, texts)
        self.assertRegex(texts[0], '"x" is torch.float16.*4.8e.05.*infinite')

    def test_parameters_beyond_their_range_are_said(self):
        x = torch.full((2,), 60000.0).half().requires_grad_()
        worker = self.lone_worker({"x": x}, lr=1.0)
        x.grad = torch.full((2,), -60000.0).half()
        with heard() as texts:
            worker.step()
        self.assertRegex(" ".join(texts), '"x" is torch.float16.*1.2e.05')

    def test_overflows_of_every_dtype(self):
        for dtype, source, said in (
                (torch.float16, [65519.0], 0), (torch.float16, [65520.0], 1),
                (torch.float16, [float("inf")], 0), (torch.float16, [], 0),
                (torch.bfloat16, [3.3e38], 0), (torch.bfloat16, [3.4e38], 1),
                (torch.float32, [3.4e38], 0)):
            source = torch.tensor(source)
            with heard() as texts:
                _tensors.Overflows().look(["x"], [source.to(dtype)], [source])
            self.assertEqual(len(texts), said, (dtype, source))

    def test_a_tensor_that_has_changed_its_shape(self):
        x = torch.zeros(2, 3)
        worker = self.lone_worker({"x": x}, lr=1.0)
        for shape in ((3,), (3, 2), (4, 2, 3)):
            x.data = torch.zeros(shape)
            with self.assertRaisesRegex(
                    agg.ManifestError, '"x" has the shape'):
                worker.pull()

    def test_groups_are_lists_of_names(self):
        with self.assertRaisesRegex(agg.ManifestError, '"g" has "x"; allowed: '
                                    "a list"):
            agg.Worker({"x": torch.zeros(2)}, "127.0.0.1:1", 0,
                       groups={"g": "x"})


if __name__ == "__main__":
    unittest.main()
