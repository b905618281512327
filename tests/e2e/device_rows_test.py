"""Workers and shards of several processes whose tensors are on one device: the
emulated one of the shards, and the driver by which workers map its memory.
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import unittest
import urllib.request

SERVER = "tests/kernels/cuda/emulator/emulated_agg_server"
DRIVER = os.path.abspath("tests/kernels/device_memory/libfake_cuda_driver.so")
WORKER = "tests/e2e/device_worker"
ROUNDS = 4
PARAMETERS = 1 + 21 + 32 + 64 + 1 + 1200000
CONFIG = """
workers: 2
backend: "cuda"
combination {{ rule: "adasum" }}
optimizer {{ kind: "adamw" }}
learning_rate {{ rate: 0.01 }}
{shards}
{more}
"""


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Job:
    """Shards of the emulated device, from the highest ordinal on."""

    def __init__(self, test, num_shards=1, more="", driver=DRIVER):
        self.test = test
        folder = tempfile.TemporaryDirectory(prefix="agg_device_rows_")
        test.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.addresses = [f"127.0.0.1:{port}" for port in
                          free_ports(num_shards)]
        (self.folder / "job.textproto").write_text(CONFIG.format(
            more=more, shards="\n".join(
                f'shards: "{address}"' for address in self.addresses)))
        self.pages = [self.start(shard, driver)
                      for shard in reversed(range(num_shards))]

    def start(self, shard, driver):
        """The page of its metrics."""
        port = free_ports(1)[0]
        server = self.process(
            [SERVER, f"--config={self.folder}/job.textproto",
             f"--shard={shard}", f"--metrics_port={port}"], driver)
        log = []
        for line in server.stdout:
            log.append(line)
            if " listens on " in line:
                # What it says later must not fill the pipe.
                threading.Thread(target=server.stdout.read,
                                 daemon=True).start()
                return f"http://127.0.0.1:{port}/metrics"
        self.test.fail("".join(log))

    def process(self, command, driver, **variables):
        environment = {**os.environ, "AGG_FAKE_CUDA_DEVICES": "2", **variables}
        environment.pop("AGG_CUDA_DRIVER", None)
        if driver:
            environment["AGG_CUDA_DRIVER"] = driver
        process = subprocess.Popen(
            command, env=environment, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)
        self.test.addCleanup(process.stdout.close)
        self.test.addCleanup(process.wait)
        self.test.addCleanup(process.kill)
        return process

    def worker(self, rank, *flags, **variables):
        # Its tensors are the driver's, whatever the server's is.
        return self.process(
            [WORKER, f"--coordinator={self.addresses[0]}", f"--rank={rank}",
             f"--rounds={ROUNDS}", *flags], DRIVER, **variables)

    def run(self, *flags_of_workers):
        """The lines of each worker."""
        return self.lines([self.worker(rank, *flags)
                           for rank, flags in enumerate(flags_of_workers)])

    def lines(self, workers):
        lines = []
        for worker in workers:
            output = worker.communicate()[0]
            self.test.assertEqual(worker.returncode, 0, output)
            lines.append(output.splitlines())
        return lines

    def metric(self, name):
        """Of all shards together."""
        total = 0
        for page in self.pages:
            with urllib.request.urlopen(page, timeout=60) as reply:
                found = re.findall(rf"^{name}{{[^}}]*}} (\S+)$",
                                   reply.read().decode(), re.MULTILINE)
            total += sum(float(value) for value in found)
        return total

    def on_device(self):
        return (self.metric("aggserver_push_on_device_bytes_total"),
                self.metric("aggserver_pull_on_device_bytes_total"))


HOST = ("--gradients=host", "--parameters=host")


class DeviceRowsTest(unittest.TestCase):

    def versions(self, lines):
        """What all workers have printed of versions, which is the same."""
        versions = [[line for line in of_one if line.startswith("version ")]
                    for of_one in lines]
        for of_one in versions[1:]:
            self.assertEqual(of_one, versions[0])
        self.assertEqual(len(versions[0]), ROUNDS)
        return versions[0]

    @classmethod
    def setUpClass(cls):
        cls.expected = {}

    def expect(self, lines, key=(), **job):
        """As a job of workers on the host, whose bytes cross the host."""
        if key not in self.expected:
            other = Job(self, **job)
            self.expected[key] = self.versions(other.run(HOST, HOST))
            self.assertEqual(other.on_device(), (0, 0))
        self.assertEqual(self.versions(lines), self.expected[key])

    def test_rows_and_parameters_stay_on_the_device(self):
        for num_shards in (1, 2):
            with self.subTest(num_shards=num_shards):
                job = Job(self, num_shards)
                lines = job.run((), ())
                self.expect(lines)
                # All rows; all versions but the seed, which one of them pulls.
                row = 4 * PARAMETERS
                pushed, pulled = job.on_device()
                self.assertEqual(pushed, 2 * ROUNDS * row)
                self.assertGreaterEqual(pulled, 2 * ROUNDS * row)
                self.assertLessEqual(pulled, (2 * ROUNDS + 2) * row)
                # For nobody the host has a copy: the first version's alone.
                self.assertEqual(job.metric("aggserver_crc_errors_total"), 0)

    def test_a_worker_on_a_peer_of_the_shards_device(self):
        job = Job(self)
        self.expect(job.run((), ("--device=1",)))
        pushed, pulled = job.on_device()
        self.assertEqual(pushed, 2 * ROUNDS * 4 * PARAMETERS)
        self.assertGreaterEqual(pulled, 2 * ROUNDS * 4 * PARAMETERS)

    def test_a_worker_that_sees_its_own_device_alone(self):
        job = Job(self)
        hidden = job.worker(1, AGG_FAKE_CUDA_DEVICES="1",
                            AGG_FAKE_CUDA_UUID="5e" * 16)
        self.expect(job.lines([job.worker(0), hidden]))
        self.assertEqual(job.on_device()[0], 2 * ROUNDS * 4 * PARAMETERS)

    def test_workers_of_both_kinds_and_such_as_have_both(self):
        job = Job(self)
        self.expect(job.run((), HOST))
        self.assertEqual(job.on_device()[0], ROUNDS * 4 * PARAMETERS)
        self.expect(Job(self).run(("--gradients=host",),
                                  ("--parameters=host",)))

    def test_without_what_it_takes_tensors_go_by_way_of_the_host(self):
        for name, job, flags in (
                ("the client", Job(self), ("--host_only",)),
                ("the job", Job(self, more='shared_memory: "off"'), ()),
                ("the server's driver",
                 Job(self, driver="/nowhere/libcuda.so.1"), ())):
            with self.subTest(name):
                self.expect(job.run(flags, flags))
                self.assertEqual(job.on_device(), (0, 0))

    def test_narrow_rows(self):
        more = 'push_dtype: "bf16"'
        bf16 = Job(self, more=more)
        versions = self.versions(bf16.run(("--dtype=bf16",), ("--dtype=bf16",)))
        self.assertEqual(bf16.on_device()[0], 2 * ROUNDS * 2 * PARAMETERS)
        # Rounded from float32 on the way through the host: the same bits.
        rounded = Job(self, more=more)
        self.assertEqual(self.versions(rounded.run((), ())), versions)

    def test_narrow_parameters_are_those_of_everybody(self):
        more = 'pull_dtype: "bf16"'
        job = Job(self, more=more)
        lines = job.run((), ())
        self.expect(lines, key=more, more=more)
        pushed, pulled = job.on_device()
        self.assertEqual(pushed, 2 * ROUNDS * 4 * PARAMETERS)
        self.assertEqual(pulled, 0)  # the device has them as float32

    def test_a_worker_that_dies_is_followed_by_another(self):
        job = Job(self)
        first = job.worker(0)
        victim = job.worker(1, "--die_after=1")
        victim.communicate()
        self.assertEqual(victim.returncode, -signal.SIGKILL)
        again = job.worker(1)
        outputs = [process.communicate()[0] for process in (first, again)]
        self.assertEqual((first.returncode, again.returncode), (0, 0), outputs)
        lines = [output.splitlines() for output in outputs]
        # What the second has seen of versions is what the first has.
        seen = [line for line in lines[1] if line.startswith("version ")]
        self.assertTrue(seen)
        self.assertLessEqual(set(seen), set(lines[0]))
        self.expect([lines[0]])

    def test_without_copies_of_parts_or_with(self):
        more = 'replication: "buddy"'
        job = Job(self, num_shards=2, more=more)
        self.expect(job.run((), ()))
        self.assertEqual(job.on_device()[0], 2 * ROUNDS * 4 * PARAMETERS)


if __name__ == "__main__":
    unittest.main()
