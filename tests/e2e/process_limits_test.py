"""Limits of a server's process, and readers that do not read: a call's error or
a lost line, and neither a hang nor a signal."""

import fcntl
import os
import pathlib
import resource
import signal
import subprocess
import tempfile
import threading
import time
import unittest

SERVER = "server/agg_server"
WORKER = "tests/e2e/chaos_worker"
AGGCTL = "worker_client/tools/aggctl"
ROUNDS = 30
WAIT = 120  # a test that needs as long has failed
CONFIG = """
workers: 1
combination { rule: "mean" }
learning_rate { rate: 0.1 }
shards: "127.0.0.1:1"
"""


class ProcessLimitsTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="agg_limits_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "job.textproto").write_text(CONFIG)

    def start(self, stderr, limit=None):
        """A server, with the limit as (kind, value)."""
        def limited():
            if limit:
                resource.setrlimit(limit[0], (limit[1], limit[1]))

        # The port is told on a pipe: no file need be written.
        process = subprocess.Popen(
            [SERVER, f"--config={self.folder}/job.textproto", "--shard=0",
             "--port=0", f"--port_file={self.folder}/port"],
            stderr=stderr, preexec_fn=limited)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def address(self, process):
        port = self.folder / "port"
        deadline = time.monotonic() + WAIT
        while not port.exists():
            self.assertIsNone(process.poll(), "the server has ended")
            self.assertLess(time.monotonic(), deadline, "it does not start")
            time.sleep(0.01)
        return f"127.0.0.1:{port.read_text().strip()}"

    def train(self, address):
        worker = subprocess.run(
            [WORKER, f"--coordinator={address}", "--rank=0",
             f"--rounds={ROUNDS}", f"--save={self.folder}/parameters"],
            capture_output=True, text=True, timeout=WAIT, check=False)
        self.assertEqual(worker.returncode, 0, worker.stderr)
        self.assertEqual(len(worker.stdout.splitlines()), ROUNDS)

    def full_pipe(self):
        """Both ends of one that takes nothing more."""
        reads, writes = os.pipe()
        self.addCleanup(os.close, reads)
        self.addCleanup(os.close, writes)
        os.set_blocking(writes, False)
        size = 0
        try:
            while True:
                size += os.write(writes, b"x" * 4096)
        except BlockingIOError:
            pass
        os.set_blocking(writes, True)
        self.assertEqual(size, fcntl.fcntl(writes, fcntl.F_GETPIPE_SZ))
        return reads, writes, size

    def test_nobody_reads_stderr_and_all_goes_on(self):
        reads, writes, size = self.full_pipe()
        server = self.start(writes)
        address = self.address(server)
        self.train(address)
        status = subprocess.run(
            [AGGCTL, f"--coordinator={address}", "status"],
            capture_output=True, text=True, timeout=WAIT, check=False)
        self.assertEqual(status.returncode, 0, status.stderr)
        # What was queued comes when somebody reads.
        text = b""
        while b"rank 0 joined" not in text:
            text += os.read(reads, 65536)
        self.assertTrue(text.startswith(b"x" * size))
        self.assertIn(b" listens on ", text)
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(WAIT), 0)

    def test_a_process_ends_though_nobody_reads_why(self):
        _, writes, _ = self.full_pipe()
        server = self.start(writes)
        self.address(server)
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(WAIT), 0)
        # One that cannot start: the reason is for stderr alone.
        (self.folder / "job.textproto").write_text("workers: -1\n")
        self.assertEqual(self.start(writes).wait(WAIT), 2)

    def run_limited(self, limit, text):
        """A whole job under it, whose log has the text; "": any."""
        server = self.start(subprocess.PIPE, limit)
        log = []
        reader = threading.Thread(
            target=lambda: log.append(server.stderr.read().decode()))
        reader.start()
        self.train(self.address(server))
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(WAIT), 0, log)
        reader.join()
        server.stderr.close()
        self.assertIn(text, log[0])

    def test_a_limit_for_files_is_named_and_ends_nothing(self):
        self.run_limited((resource.RLIMIT_FSIZE, 4096), "ulimit -f")

    def test_a_limit_that_is_too_small_is_an_error_and_no_crash(self):
        for limit, text in (((resource.RLIMIT_NOFILE, 10), "ulimit -Hn"),
                            ((resource.RLIMIT_AS, 200 << 20), "ulimit -v")):
            with self.subTest(text):
                server = self.start(subprocess.PIPE, limit)
                log = server.communicate(timeout=WAIT)[1].decode()
                self.assertEqual(server.returncode, 1, log)
                self.assertIn(text, log)


if __name__ == "__main__":
    unittest.main()
