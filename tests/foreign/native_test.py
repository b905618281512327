"""The Python package's native client against this folder's: the same bytes are
pushed, and both pull the same bits."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import numpy

from client import round_of
from foreign_test_case import ForeignTestCase
from server_process import SERVER, WAIT

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIBRARY = pathlib.Path(SERVER).parent.parent / "worker_client/c/libagg.so"
SHAPES = {"w": [300, 700], "b": [5], "empty": [0], "s": []}
ROUNDS = 4
CONFIG = ('combination {{ rule: "adasum" }}\n'
          'optimizer {{ kind: "adam" }} learning_rate {{ rate: 0.01 }}\n'
          'push_dtype: "{0}" pull_dtype: "{0}"\n')


def rows_of(seed):
    """A flat array for each tensor of SHAPES, of values that f16 rounds."""
    generator = numpy.random.default_rng(seed)
    return [generator.standard_normal(int(numpy.prod(shape)),
                                      numpy.float32)
            for shape in SHAPES.values()]


def named(rows):
    """As the package has them."""
    return {name: row.reshape(shape)
            for (name, shape), row in zip(SHAPES.items(), rows)}


class NativeTest(ForeignTestCase):

    def setUp(self):
        if not LIBRARY.exists():
            self.skipTest(f"{LIBRARY} is not there: bazel build -c opt "
                          "//worker_client/c:libagg.so")
        os.environ["AGG_LIBRARY"] = str(LIBRARY)
        sys.path.insert(0, str(ROOT / "worker_client" / "python"))
        import agg_server  # pylint: disable=import-outside-toplevel
        self.agg = agg_server

    def native(self, config, num_shards, seed, transport, **options):
        """Two of the package's clients, which reach all shards so: (what they
        have at the end, by round and rank the checksums of what they
        pushed)."""
        job = self.start("workers: 2\n" + config, num_shards)
        final, sums, errors = {}, {}, []

        def work(rank, folder):
            try:
                log = pathlib.Path(folder) / str(rank)
                arrays = {name: array.copy()
                          for name, array in named(seed).items()}
                with self.agg.Client(arrays, job.addresses[0], rank,
                                     audit_log=str(log), **options) as client:
                    for round in range(ROUNDS):
                        client.step(named(rows_of(10 * round + rank)))
                    self.assertEqual(client.job.transports,
                                     (transport,) * num_shards)
                    final[rank] = list(arrays.values())
                for line in log.read_text().splitlines():
                    entry = json.loads(line)
                    self.assertTrue(entry["included"], line)
                    sums[entry["round"], rank] = entry["row_crc32c"]
            except BaseException as error:  # pylint: disable=broad-except
                errors.append(error)

        with tempfile.TemporaryDirectory() as folder:
            threads = [threading.Thread(target=work, args=(rank, folder),
                                        daemon=True) for rank in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(4 * WAIT)
        if errors:
            raise errors[0]
        self.assert_tensors(final[0], final[1])
        return final[0], sums

    def check(self, dtype, num_shards, transport, **options):
        seed = rows_of(99)
        config = CONFIG.format(dtype)
        found, sums = self.native(config, num_shards, seed, transport,
                                  **options)
        _, workers = self.seeded(2, config, num_shards, SHAPES, seed)
        wire = workers[0].reply.pull_dtype
        for round in range(ROUNDS):
            rows = [rows_of(10 * round + rank) for rank in range(2)]
            for rank, row in enumerate(rows):
                sent = workers[rank].row_crc32c(row)
                # Rows in shared memory have no checksums: slices count as 0.
                check = (self.assertNotEqual if transport == "shm" else
                         self.assertEqual)
                check(sums[round, rank], sent, f"round {round}, rank {rank}")
            round_of(workers, rows, round)
        self.assert_tensors(
            found, [array.reshape(shape) for array, shape in zip(
                workers[1].pull(ROUNDS, wire), SHAPES.values())])

    def test_float32_on_one_shard(self):
        self.check("f32", 1, "tcp", local_sockets=0)

    def test_float32_on_three_shards(self):
        self.check("f32", 3, "unix", shared_memory=0)

    def test_f16_on_two_shards(self):
        self.check("f16", 2, "unix", shared_memory=0)

    def test_rows_in_shared_memory(self):
        self.check("f32", 2, "shm")


_NATIVE = """
import sys
sys.path.insert(0, {package!r})
import agg_server as agg
import numpy as np
x = np.zeros(2, np.float32)
client = agg.Client({{"x": x}}, {address!r}, 0)
client.step({{"x": np.ones(2)}})
"""
_GRPC = """
import grpc
channel = grpc.insecure_channel({address!r})
grpc.channel_ready_future(channel).result(30)
"""
_BOTH = """
client.step({{"x": np.ones(2)}})
try:
    channel.unary_unary("/agg.v1.No/Such")(b"", timeout=30)
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error
client.close()
channel.close()
print("both", x)
"""


class ImportOrderTest(ForeignTestCase):
    """Two copies of gRPC in a process, with connections of both."""

    def run_script(self, script):
        if not LIBRARY.exists():
            self.skipTest(f"{LIBRARY} is not there")
        job = self.start('workers: 1 optimizer { kind: "none" }\n')
        result = subprocess.run(
            [sys.executable, "-B", "-c", script.format(
                package=str(ROOT / "worker_client" / "python"),
                address=job.addresses[0])],
            env={**os.environ, "AGG_LIBRARY": str(LIBRARY)}, timeout=4 * WAIT,
            capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "both [1. 1.]\n")

    def test_grpcio_first(self):
        self.run_script(_GRPC + _NATIVE + _BOTH)

    def test_the_package_first(self):
        self.run_script(_NATIVE + _GRPC + _BOTH)
