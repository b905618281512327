"""A job of two rounds on a server of the emulated device."""

import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

SERVER = "tests/kernels/cuda/emulator/emulated_agg_server"
DRIVER = "tests/kernels/device_memory/libfake_cuda_driver.so"
WORKER = ["worker_client/examples/digits_worker", "--workers=2",
          "--epochs=1", "--batch=300", "--recovery_window=0",
          "--data=deploy/data/digits.csv.gz"]
CONFIG = """
workers: 2
backend: "cuda"
combination { rule: "adasum" }
learning_rate { rate: 0.1 }
shards: "127.0.0.1:1"
"""


class EmulatedAggServerTest(unittest.TestCase):

    def start(self, command, **environment):
        process = subprocess.Popen(
            [str(word) for word in command], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, **environment})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_job(self, **environment):
        """The server's log, of a job that ends well."""
        with tempfile.TemporaryDirectory(prefix="agg_emulated_") as name:
            folder = pathlib.Path(name)
            (folder / "job.textproto").write_text(CONFIG)
            server = self.start(
                [SERVER, f"--config={folder}/job.textproto", "--shard=0",
                 "--port=0"], **environment)
            log = []
            for line in server.stdout:  # until it listens
                log.append(line)
                if " listens on " in line:
                    break
            address = log[-1].split(" listens on ")[1].strip()
            workers = [self.start(WORKER + [f"--coordinator={address}",
                                            f"--rank={rank}"])
                       for rank in (0, 1)]
            for worker in workers:
                output = worker.communicate()[0]
                self.assertEqual(worker.returncode, 0, output)
            server.send_signal(signal.SIGTERM)
            log.append(server.communicate()[0])
            self.assertEqual(server.returncode, 0, log)
            return "".join(log)

    def test_shares_device_memory_by_the_driver_of_the_environment(self):
        log = self.run_job(AGG_CUDA_DRIVER=os.path.abspath(DRIVER))
        self.assertIn("backend: cuda, device 0, emulated", log)
        self.assertIn("finished at version 2", log)
        # What is shared is rounded up.
        self.assertIn("on the device rows 2.0 MiB + master 2.0 MiB", log)
        self.assertNotIn("no device rows", log)
        self.assertNotIn("private instead", log)

    def test_says_why_a_driver_shares_nothing(self):
        log = self.run_job(AGG_CUDA_DRIVER="/nowhere/libcuda.so.1")
        self.assertIn("no device rows: no CUDA driver: /nowhere", log)


if __name__ == "__main__":
    unittest.main()
