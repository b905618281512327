"""Rows on the device of a shard of this host, as far as it shows on an emulated
one. (That bytes are right: //tests/e2e:device_rows_test.)
"""

import ctypes
import os
import pathlib
import unittest
from unittest import mock

import numpy

from tests.python.job_case import JobCase
from agg_server import _abi
from agg_server._operation import views_of
from agg_server.outcome import Info

_ELEMENTS = 64
_DRIVER = pathlib.Path(
    "tests/kernels/device_memory/libfake_cuda_driver.so").resolve()
_SERVER = pathlib.Path(
    "tests/kernels/cuda/emulator/emulated_agg_server").resolve()


class DeviceTest(JobCase):

    def setUp(self):
        super().setUp()
        # Other tests of this process have neither.
        for path in (_DRIVER, _SERVER):
            if not path.exists():
                self.skipTest(f"{path.name} is not there: it is built for "
                              "//tests/python:device_test, with CUDA")
        patch = mock.patch.dict(os.environ, AGG_SERVER=str(_SERVER),
                                AGG_CUDA_DRIVER=str(_DRIVER))
        patch.start()
        self.addCleanup(patch.stop)

    def on_device(self):
        """The address of as many float32 zeros in memory of the device."""
        driver = ctypes.CDLL(str(_DRIVER))
        driver.agg_fake_cuda_alloc.restype = ctypes.c_void_p
        driver.agg_fake_cuda_alloc.argtypes = [ctypes.c_int64]
        memory = driver.agg_fake_cuda_alloc(4 * _ELEMENTS)
        self.assertTrue(memory)
        return memory

    def test_the_job_says_how_rows_travel_now(self):
        views = views_of([(self.on_device(), _ELEMENTS, _abi.F32)])
        client = self.lone_client({"w": numpy.ones(_ELEMENTS, numpy.float32)},
                                  lr=1.0, config={"backend": "cuda"})
        self.assertEqual(client.job.transports, ("shm",))
        # step() copies arrays, which are the host's; torch's tensors of
        # devices go as this does.
        client._session.round(views, Info(), client._targets, None)
        self.assertEqual(client.job.transports, ("cuda",))
        self.assertEqual(client.job.num_tensors, 1)


if __name__ == "__main__":
    unittest.main()
