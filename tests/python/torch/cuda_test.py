"""Tensors of CUDA devices, as far as it shows without one.

Tensors that say they are on a device, and are not: the client asks its driver,
and takes their memory for the host's. (Memory of a device:
//tests/worker_client:worker_client_test, with an emulated driver.)
"""

import types
import unittest
from unittest import mock

import torch

from tests.python.job_case import agg
from tests.python.torch.torch_case import TorchCase
from agg_server import _abi, _pulled, _row, _tensors
from agg_server._operation import Memories

_CUDA = torch.device("cuda", 0)


class OnDevice(torch.Tensor):
    """As torch's on a device, in what the package asks of it."""

    is_cpu = property(lambda self: False)
    is_cuda = property(lambda self: True)
    device = property(lambda self: _CUDA)


def on_device(tensor):
    return tensor.detach().as_subclass(OnDevice)


class Streams:
    """torch's of one device: who waited for whom."""

    def __init__(self, test, current):
        self.waits = []
        self.default = types.SimpleNamespace(wait_stream=self.waits.append)
        self.current = self.default if current is None else current
        for name, stream in (("default_stream", self.default),
                             ("current_stream", self.current)):
            patch = mock.patch.object(torch.cuda, name, lambda device, s=stream:
                                      self.of(device, s))
            patch.start()
            test.addCleanup(patch.stop)

    @staticmethod
    def of(device, stream):
        assert device == _CUDA
        return stream


class WithDriver(TorchCase):
    """The library says that it has one."""

    def setUp(self):
        super().setUp()
        self.asked = 0
        lib = _abi.load()

        class Library:
            """libagg.so, but for one call."""

            def __getattr__(_self, name):
                return getattr(lib, name)

            @staticmethod
            def agg_has_cuda():
                self.asked += 1
                return 1

        zeros = torch.zeros

        def zeros_of(*shape, device=None, **more):
            made = zeros(*shape, **more)
            return on_device(made) if device == _CUDA else made
        for patch in (mock.patch.object(_abi, "load", Library),
                      mock.patch.object(torch, "zeros", zeros_of)):
            patch.start()
            self.addCleanup(patch.stop)


class CudaTest(WithDriver):

    def test_the_driver_is_asked_once_and_for_tensors_of_devices_alone(self):
        cuda = _tensors.Cuda()
        self.assertFalse(cuda.takes(torch.ones(1)))
        self.assertEqual(self.asked, 0)
        for _ in range(3):
            self.assertTrue(cuda.takes(on_device(torch.ones(1))))
        self.assertEqual(self.asked, 1)
        self.assertFalse(_tensors.Cuda(allowed=False).takes(
            on_device(torch.ones(1))))
        self.assertEqual(self.asked, 1)

    def test_the_default_stream_waits_for_another_one_that_is_current(self):
        other = object()
        streams = Streams(self, other)
        cuda = _tensors.Cuda()
        cuda.hand_over([torch.ones(1)])
        self.assertEqual(streams.waits, [])
        cuda.hand_over([on_device(torch.ones(1))] * 2)
        self.assertEqual(streams.waits, [other])

    def test_the_default_stream_need_not_wait_for_itself(self):
        streams = Streams(self, None)
        _tensors.Cuda().hand_over([on_device(torch.ones(1))])
        self.assertEqual(streams.waits, [])


class RowTest(WithDriver):

    def setUp(self):
        super().setUp()
        self.streams = Streams(self, object())
        self.tensors = {"a": torch.zeros(4), "b": torch.zeros(2, 3)}
        self.memories = Memories(_abi.View, 2)

    def row(self, push_dtype="f32", allowed=True):
        return _row.Row(self.tensors, push_dtype, _tensors.Cuda(allowed))

    def test_a_row_of_a_device_is_given_without_copies(self):
        row = self.row()
        given = [on_device(torch.ones(4)), torch.ones(2, 3)]
        self.assertTrue(row.fill(self.memories, given))
        self.assertEqual([v.data for v in self.memories.array],
                         [t.data_ptr() for t in given])
        self.assertEqual(len(self.streams.waits), 1)

    def test_without_the_option_it_is_copied(self):
        row = self.row(allowed=False)
        given = [on_device(torch.ones(4)), torch.ones(2, 3)]
        self.assertFalse(row.fill(self.memories, given))
        views, memory = row.views(range(2), given)
        self.assertNotEqual(memory[0][0], given[0].data_ptr())
        self.assertEqual(memory[1][0], given[1].data_ptr())
        self.assertEqual(views[0].tolist(), [1.0] * 4)
        self.assertEqual(self.streams.waits, [])

    def test_the_push_type_is_given_as_it_is(self):
        row = self.row("bf16")
        given = [on_device(torch.ones(4, dtype=torch.bfloat16)),
                 on_device(torch.ones(2, 3))]
        self.assertFalse(row.fill(self.memories, given))
        views, memory = row.views(range(2), given)
        self.assertEqual(memory, [(given[0].data_ptr(), 4, _abi.BF16),
                                  (given[1].data_ptr(), 6, _abi.F32)])
        self.assertEqual(len(self.streams.waits), 1)
        del views

    def test_what_the_client_does_not_read_is_copied(self):
        row = self.row()
        given = [on_device(torch.ones(4, dtype=torch.float64)),
                 on_device(torch.ones(3, 2).t())]
        self.assertFalse(row.fill(self.memories, given))
        views, memory = row.views(range(2), given)
        for view, (pointer, _, dtype), tensor in zip(views, memory, given):
            self.assertNotEqual(pointer, tensor.data_ptr())
            self.assertEqual(dtype, _abi.F32)
            self.assertEqual(view.tolist(), tensor.tolist())
            # It stays on the device.
            self.assertTrue(view.is_cuda)
        self.assertEqual(len(self.streams.waits), 1)

    def test_a_gradient_is_handed_over_by_its_own_hook(self):
        row = self.row()
        row.hand_over(torch.ones(4))
        self.assertEqual(self.streams.waits, [])
        row.hand_over(on_device(torch.ones(4)))
        self.assertEqual(self.streams.waits, [self.streams.current])


class PulledTest(WithDriver):

    def test_targets_of_a_device_are_the_tensors_themselves_in_place(self):
        streams = Streams(self, object())
        tensors = [on_device(torch.zeros(4)),
                   on_device(torch.zeros(3, 2).t()), torch.zeros(2)]
        pulled = _pulled.Pulled(tensors, True, _tensors.Cuda())
        for pull in (1, 2):
            memory, _ = pulled.memory()
            self.assertEqual(
                [target.data == tensor.data_ptr()
                 for target, tensor in zip(memory.array, tensors)],
                [True, False, True])
            self.assertEqual(len(streams.waits), pull)
        for kept in (pulled._targets[0], pulled._targets[2]):
            version = kept._version
            pulled.write()
            self.assertGreater(kept._version, version)

    def beside(self, allowed):
        """One pull beside a tensor of a device: the target."""
        tensor = on_device(torch.zeros(4))
        pulled = _pulled.Pulled([tensor], False, _tensors.Cuda(allowed))
        memory, targets = pulled.memory()
        targets[0].fill_(3)
        pulled.write()
        self.assertEqual(tensor.tolist(), [3.0] * 4)
        self.assertNotEqual(memory.array[0].data, tensor.data_ptr())
        return targets[0]

    def test_beside_they_are_on_the_tensors_devices(self):
        streams = Streams(self, object())
        self.assertTrue(self.beside(allowed=True).is_cuda)
        self.assertEqual(len(streams.waits), 1)

    def test_without_the_option_they_are_the_hosts(self):
        streams = Streams(self, object())
        self.assertTrue(self.beside(allowed=False).is_cpu)
        self.assertEqual(streams.waits, [])


class WorkerOnDeviceTest(WithDriver):

    def test_a_round_of_tensors_of_a_device(self):
        Streams(self, object())
        for zero_copy in (True, False):
            parameter = on_device(torch.full((4,), 5.0))
            worker = self.lone_worker({"w": parameter}, lr=1.0,
                                      zero_copy=zero_copy)
            parameter.grad = on_device(torch.full((4,), 2.0))
            worker.step()
            self.assertEqual(parameter.tolist(), [3.0] * 4)
            self.assertEqual(worker._row._staging._buffers, {})
            self.assertEqual(
                [target.is_cuda for target in worker._pulled._targets],
                [True])
        with self.assertRaisesRegex(TypeError, "cuda_rows is .no"):
            agg.Worker({"w": parameter}, "127.0.0.1:1", 0, cuda_rows="no")


if __name__ == "__main__":
    unittest.main()
