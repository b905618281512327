"""A process whose device is lost: what it and its job's others say and return."""

import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

SERVER = "tests/e2e/lost_device_server"
WORKER = ["worker_client/examples/digits_worker", "--workers=2", "--batch=64",
          "--epochs=1", "--recovery_window=0",
          "--data=deploy/data/digits.csv.gz"]
CONFIG = """
workers: 2
backend: "cuda"
combination { rule: "adasum" }
learning_rate { rate: 0.1 }
shards: "127.0.0.1:1"
"""


class LostDeviceTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="agg_lost_device_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "job.textproto").write_text(CONFIG)

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
        """The server's process and log, and the workers' exit codes and logs."""
        port_file = self.folder / "port"
        server = self.start(
            [SERVER, f"--config={self.folder}/job.textproto", "--shard=0",
             "--port=0", f"--port_file={port_file}"], **environment)
        log = []
        for line in server.stdout:  # until it listens
            log.append(line)
            if " listens on " in line:
                break
        address = log[-1].split(" listens on ")[1].strip()
        workers = [self.start(WORKER + [f"--coordinator={address}",
                                        f"--rank={rank}"])
                   for rank in (0, 1)]
        outputs = [worker.communicate()[0] for worker in workers]
        return server, "".join(log), [w.returncode for w in workers], outputs

    def test_without_a_loss_a_signal_ends_it_with_0(self):
        server, _, codes, outputs = self.run_job()
        self.assertEqual(codes, [0, 0], outputs)
        server.send_signal(signal.SIGTERM)
        server.communicate()
        self.assertEqual(server.returncode, 0)

    def test_a_loss_ends_it_with_1_and_everybody_is_told(self):
        for where in ("GRAM", "UPDATE"):
            with self.subTest(where):
                server, log, codes, outputs = self.run_job(
                    **{f"AGG_BREAK_AT_{where}": "2"})
                log += server.communicate()[0]
                self.assertEqual(server.returncode, 1, log)
                self.assertIn("the CUDA device is lost", log)
                self.assertIn("a new process is needed", log)
                self.assertEqual(codes, [1, 1], outputs)
                for output in outputs:
                    self.assertIn("UNAVAILABLE", output)
                    self.assertRegex(
                        output, "shard 0.*: the CUDA device is lost")
                    self.assertIn("cudaErrorIllegalAddress", output)


if __name__ == "__main__":
    unittest.main()
