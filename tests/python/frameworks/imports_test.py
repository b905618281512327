"""The package beside other native libraries, in either order of import.

TensorFlow loads its own protobuf for the whole process, grpcio has a gRPC of its
own, torch's SummaryWriter takes TensorFlow where it is there; jemalloc and
tcmalloc replace malloc. Each case is a process, which must not crash.
"""

import ctypes.util
import importlib.util
import os
import subprocess
import sys
import unittest

from tests.python.job_case import PACKAGE, WAIT

_OURS = """
import agg_server as agg
import numpy as np
if "client" not in globals():
    server = agg.LocalServer(shards=2, workers=1, lr=0.5)
    w = np.zeros(3, np.float32)
    client = agg.Client({"w": w}, server.address, 0)
before = client.version
assert client.step({"w": np.ones(3)}, loss=1.0).applied
assert w.tolist() == [-0.5 * (before + 1)] * 3, w
"""
_THEIRS = {
    "tensorflow": """
import tensorflow as tf
example = tf.train.Example()
example.features.feature["x"].float_list.value.extend([1.0, 2.0])
parsed = tf.io.parse_single_example(
    example.SerializeToString(),
    {"x": tf.io.FixedLenFeature([2], tf.float32)})
assert tf.reduce_sum(parsed["x"]).numpy() == 3
""",
    # A server and a channel that stay, with their threads.
    "grpc": """
import concurrent.futures
import grpc
if "channel" not in globals():
    echo = grpc.method_handlers_generic_handler("test.Echo", {
        "Say": grpc.unary_unary_rpc_method_handler(lambda said, _: said)})
    theirs = grpc.server(concurrent.futures.ThreadPoolExecutor(2),
                         handlers=(echo,))
    port = theirs.add_insecure_port("127.0.0.1:0")
    theirs.start()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
assert channel.unary_unary("/test.Echo/Say")(b"x", timeout=60) == b"x"
""",
    "google.protobuf": """
from google.protobuf import struct_pb2
message = struct_pb2.Struct()
message["x"] = [1, "y"]
assert struct_pb2.Struct.FromString(message.SerializeToString()) == message
""",
    "tensorboard": """
import tempfile
from torch.utils.tensorboard import SummaryWriter
folder = tempfile.TemporaryDirectory()
writer = SummaryWriter(folder.name)
writer.add_scalar("x", 1.0, 1)
if "client" in globals() and client.last:
    agg.TensorBoardLog(writer)(client.last)
writer.close()
""",
    "torch": """
import torch
assert torch.ones(3).sum() == 3
""",
}
_END = """
client.close()
server.close()
print("end", flush=True)
"""


def installed(name):
    """Whether a module, or one of a namespace, can be imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


class ImportsTest(unittest.TestCase):

    def run_all(self, *parts, **environment):
        """In one process, in this order."""
        result = subprocess.run(
            [sys.executable, "-B", "-c", "".join(parts) + _END],
            capture_output=True, text=True, timeout=10 * WAIT, check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(PACKAGE),
                 "TF_CPP_MIN_LOG_LEVEL": "3", **environment})
        self.assertEqual((result.returncode, result.stdout), (0, "end\n"),
                         result.stderr)

    def check(self, name):
        if not installed(name):
            self.skipTest(f"{name} is not installed")
        theirs = _THEIRS[name]
        with self.subTest(first=name):
            self.run_all(theirs, _OURS, theirs, _OURS)
        with self.subTest(first="agg_server"):
            self.run_all(_OURS, theirs, _OURS, theirs)

    def test_tensorflow(self):
        self.check("tensorflow")

    def test_grpcio(self):
        self.check("grpc")

    def test_protobuf(self):
        self.check("google.protobuf")

    def test_tensorboard(self):
        self.check("tensorboard")

    def test_all_of_them(self):
        theirs = [text for name, text in _THEIRS.items()
                  if installed(name)]
        self.run_all(*theirs, _OURS, *theirs, _OURS)
        self.run_all(_OURS, *reversed(theirs), _OURS)

    def check_malloc(self, library):
        found = ctypes.util.find_library(library)
        if found is None:
            self.skipTest(f"lib{library} is not installed")
        loaded = (f'assert "lib{library}" in open("/proc/self/maps").read()\n')
        self.run_all(loaded, _OURS, _THEIRS["torch"], _OURS, LD_PRELOAD=found)
        self.run_all(loaded, _THEIRS["torch"], _OURS, LD_PRELOAD=found)

    def test_jemalloc(self):
        self.check_malloc("jemalloc")

    def test_tcmalloc(self):
        self.check_malloc("tcmalloc_minimal")


if __name__ == "__main__":
    unittest.main()
