"""The client's programs against agg_server processes."""

import os
import pathlib
import signal
import struct
import subprocess
import tempfile
import time
import unittest
import zipfile
from unittest import mock

BIN = pathlib.Path.cwd()
SERVER = BIN / "server/agg_server"
LAYERED = BIN / "worker_client/examples/layered_worker"
MINIMAL = BIN / "worker_client/examples/minimal_worker"
DIGITS = BIN / "worker_client/examples/digits_worker"
AGG_PULL = BIN / "worker_client/tools/agg_pull"
AGGCTL = BIN / "worker_client/tools/aggctl"
DATA = BIN / "deploy/data/digits.csv.gz"
WAIT = 60  # a test that needs as long has failed


class Job:
    """Shards on loopback; stops everything it started."""

    def __init__(self, workers, num_shards=2, extra=""):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.started = []
        self.shards = [None] * num_shards
        # Until a shard listens, any address that no other shard has will do.
        self.addresses = [f"127.0.0.1:{1 + i}" for i in range(num_shards)]
        text = f"workers: {workers}\nlearning_rate {{ rate: 0.5 }}\n{extra}"
        for ordinal in list(range(1, num_shards)) + [0]:
            config = self.path / f"{ordinal}.textproto"
            config.write_text(text + "".join(
                f'shards: "{address}"\n' for address in self.addresses))
            port = self.path / f"port_{ordinal}"
            shard = self.start([
                SERVER, f"--config={config}", f"--shard={ordinal}",
                "--port=0", f"--port_file={port}"], log=f"shard_{ordinal}")
            deadline = time.monotonic() + WAIT
            while not (port.exists() and port.read_text().strip()):
                if shard.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(self.log(f"shard_{ordinal}"))
                time.sleep(0.005)
            self.addresses[ordinal] = "127.0.0.1:" + port.read_text().strip()
            self.shards[ordinal] = shard

    def start(self, command, log):
        with open(self.path / log, "wb") as out:
            process = subprocess.Popen([str(word) for word in command],
                                       stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=out)
        self.started.append(process)
        return process

    def log(self, name):
        return (self.path / name).read_text(errors="replace")

    def worker(self, rank, workers, epochs=1000):
        return self.start([
            DIGITS, f"--coordinator={self.addresses[0]}", f"--rank={rank}",
            f"--workers={workers}", f"--data={DATA}", f"--epochs={epochs}",
            "--recovery_window=0"],
            log=f"worker_{rank}")

    def await_rounds(self, count):
        """Until rank 0 has printed some rounds."""
        deadline = time.monotonic() + WAIT
        while self.log("worker_0").count("\n") < count:
            if time.monotonic() > deadline:
                raise AssertionError(self.log("worker_0"))
            time.sleep(0.005)

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.folder.cleanup()


def run(*command):
    return subprocess.run([str(word) for word in command], timeout=WAIT,
                          stdin=subprocess.DEVNULL, capture_output=True,
                          text=True)


class WorkerTest(unittest.TestCase):

    def job(self, *args, **kwargs):
        job = Job(*args, **kwargs)
        self.addCleanup(job.close)
        return job

    def test_no_program_asks_a_proxy_of_the_environment(self):
        proxies = {name: "http://127.0.0.1:9" for name in (
            "grpc_proxy", "http_proxy", "https_proxy", "HTTP_PROXY",
            "HTTPS_PROXY", "all_proxy")}
        with mock.patch.dict(os.environ, proxies):
            job = self.job(workers=1)
            address = job.addresses[0]
            worker = run(MINIMAL, address)
            self.assertEqual(worker.stdout, "OK, x[0] = 0.9375\n", worker)
            status = run(AGGCTL, f"--coordinator={address}", "status")
            self.assertEqual(status.returncode, 0, status)
            output = job.path / "x.npz"
            pulled = run(AGG_PULL, f"--coordinator={address}",
                         f"--output={output}")
            self.assertEqual(pulled.returncode, 0, pulled)
            # Nobody listens there.
            lost = run(AGGCTL, "--coordinator=127.0.0.1:9", "status")
        self.assertIn("proxy of the environment is not used", lost.stderr)

    def test_the_minimal_worker_descends_and_agg_pull_gets_it_out(self):
        job = self.job(workers=1)
        address = job.addresses[0]
        output = job.path / "x.npz"

        early = run(AGG_PULL, f"--coordinator={address}", f"--output={output}")
        self.assertEqual(early.returncode, 1, early)
        self.assertEqual(early.stderr.count("\n"), 1, early)

        worker = run(MINIMAL, address)
        self.assertEqual(worker.returncode, 0, worker)
        # 1 - 0.5^4
        self.assertEqual(worker.stdout, "OK, x[0] = 0.9375\n")

        pulled = run(AGG_PULL, f"--coordinator={address}",
                     f"--output={output}")
        self.assertEqual(pulled.returncode, 0, pulled)
        self.assertIn("version 4: 1 tensors, 4 parameters", pulled.stdout)
        with zipfile.ZipFile(output) as archive:
            npy = archive.read("x.npy")
        self.assertEqual(npy[-16:], struct.pack("<4f", *[0.9375] * 4))
        with mock.patch.dict(os.environ, {"AGG_COORDINATOR": address}):
            by_environment = run(AGG_PULL, f"--output={output}")
        self.assertEqual(by_environment.stdout, pulled.stdout, by_environment)

        gone = run(AGG_PULL, f"--coordinator={address}",
                   f"--output={job.path / 'gone.npz'}", "--version=0")
        self.assertEqual(gone.returncode, 1, gone)
        self.assertIn("OUT_OF_RANGE", gone.stderr)
        self.assertRegex(gone.stderr, r"shard \d \(127\.0\.0\.1:\d+\)")
        self.assertFalse((job.path / "gone.npz").exists())
        future = run(AGG_PULL, f"--coordinator={address}",
                     f"--output={output}", "--version=5")
        self.assertEqual(future.returncode, 1, future)
        self.assertIn("the newest is 4", future.stderr)

    def test_the_layered_worker_pushes_while_it_computes(self):
        job = self.job(workers=2)
        other = job.start([LAYERED, job.addresses[0], "1"], log="other")
        worker = run(LAYERED, job.addresses[0], "0")
        self.assertEqual(worker.returncode, 0, worker)
        # 1 - 0.5^5
        self.assertEqual(worker.stdout, "OK, x[0] = 0.96875\n")
        other.wait(timeout=WAIT)
        self.assertEqual(job.log("other"), worker.stdout)

    def test_a_worker_that_is_alone_hears_who_is_missing(self):
        job = self.job(workers=32, extra="start_warning_seconds: 0.1\n")
        job.start([MINIMAL, job.addresses[0]], log="alone")
        text = "31 of 32 workers have not joined: ranks 1-31"
        deadline = time.monotonic() + WAIT
        for log in ("alone", "shard_0"):
            while text not in job.log(log):
                self.assertLess(time.monotonic(), deadline, job.log(log))
                time.sleep(0.005)
        self.assertIn("agg_client: waiting: " + text, job.log("alone"))

    def test_nothing_but_files_is_written_to(self):
        job = self.job(workers=1)
        address = job.addresses[0]
        self.assertEqual(run(MINIMAL, address).returncode, 0)
        fifo, link, file = (job.path / name for name in ("fifo", "link", "f"))
        os.mkfifo(fifo)
        link.symlink_to("f")
        file.write_text("old")
        for name, code in (("agg_pull", 1), ("aggctl", 5)):

            def pull(path):
                if name == "aggctl":
                    return run(AGGCTL, f"--coordinator={address}", "pull", path)
                return run(AGG_PULL, f"--coordinator={address}",
                           f"--output={path}")

            # No device: a defect would replace it.
            for path in (fifo, job.path):
                before = os.lstat(path)
                pulled = pull(path)
                self.assertEqual(pulled.returncode, code, pulled)
                self.assertEqual(pulled.stderr.count("\n"), 1, pulled)
                self.assertIn(f"{path}: not a regular file; allowed: ",
                              pulled.stderr)
                after = os.lstat(path)
                self.assertEqual((after.st_mode, after.st_rdev),
                                 (before.st_mode, before.st_rdev))
            pulled = pull(link)
            self.assertEqual(pulled.returncode, 0, pulled)
            self.assertTrue(link.is_symlink())
            self.assertTrue(zipfile.is_zipfile(file))
            file.write_text("old")

    def test_agg_pull_names_bad_flags(self):
        for arguments in (["--version=-1", "--output=x"], ["--output"], [],
                          ["--bogus=1", "--output=x"],
                          ["--coordinator=", "--output=x"],
                          ["--coordinator=host", "--output=x"],
                          ["--coordinator=http://h:1", "--output=x"]):
            with self.subTest(arguments):
                bad = run(AGG_PULL, *arguments)
                self.assertEqual(bad.returncode, 2, bad)
                self.assertEqual(bad.stderr.count("\n"), 1)
                self.assertIn("allowed", bad.stderr)
        self.assertEqual(run(AGG_PULL, "--help").returncode, 0)
        with mock.patch.dict(os.environ, {"AGG_COORDINATOR": "nohost"}):
            bad = run(AGG_PULL, "--output=x")
        self.assertEqual(bad.returncode, 2, bad)
        self.assertIn("AGG_COORDINATOR is", bad.stderr)

    def test_another_manifest_is_refused_by_name(self):
        job = self.job(workers=2)
        job.worker(0, 2)
        deadline = time.monotonic() + WAIT
        seeded = False
        while not seeded and time.monotonic() < deadline:
            seeded = run(AGG_PULL, f"--coordinator={job.addresses[0]}",
                         f"--output={job.path / 'p.npz'}").returncode == 0
        self.assertTrue(seeded)
        other = run(MINIMAL, job.addresses[0], "1")
        self.assertEqual(other.returncode, 1, other)
        self.assertIn("INVALID_ARGUMENT", other.stdout)
        self.assertIn("hidden/weights", other.stdout)

    def test_every_worker_names_the_shard_that_was_killed(self):
        for killed in (0, 1):
            with self.subTest(killed):
                job = self.job(workers=3)
                workers = [job.worker(rank, 3) for rank in range(3)]
                job.await_rounds(5)
                job.shards[killed].kill()
                begin = time.monotonic()
                for rank, worker in enumerate(workers):
                    self.assertEqual(worker.wait(WAIT), 1)
                    last = job.log(f"worker_{rank}").splitlines()[-1]
                    self.assertIn("UNAVAILABLE", last)
                    self.assertIn(f"shard {killed}", last)
                    self.assertIn(job.addresses[killed], last)
                # Not a lease's 30 s, nor a keepalive's.
                self.assertLess(time.monotonic() - begin, 15)

    def test_sigterm_ends_the_servers_in_good_order(self):
        job = self.job(workers=2)
        workers = [job.worker(rank, 2) for rank in range(2)]
        job.await_rounds(5)
        for shard in job.shards:
            shard.send_signal(signal.SIGTERM)
        for ordinal, shard in enumerate(job.shards):
            self.assertEqual(shard.wait(WAIT), 0,
                             job.log(f"shard_{ordinal}"))
            # A stop on purpose is no error of anybody.
            self.assertNotRegex(job.log(f"shard_{ordinal}"), r"(?m)^\S+ E ")
        for worker in workers:
            self.assertEqual(worker.wait(WAIT), 1)

    def test_a_shard_that_is_stopped_on_purpose_is_not_called_broken(self):
        for stopped, text in (
                (0, "has shut down, as it had announced"),
                (1, "is shutting down")):
            with self.subTest(stopped):
                job = self.job(workers=2)
                workers = [job.worker(rank, 2) for rank in range(2)]
                job.await_rounds(5)
                job.shards[stopped].send_signal(signal.SIGTERM)
                for rank, worker in enumerate(workers):
                    self.assertEqual(worker.wait(WAIT), 1)
                    last = job.log(f"worker_{rank}").splitlines()[-1]
                    self.assertIn(f"shard {stopped} ", last)
                    self.assertIn(text, last)
                    self.assertNotIn("refused", last)
                self.assertEqual(job.shards[stopped].wait(WAIT), 0)
                for ordinal in range(2):
                    self.assertNotRegex(job.log(f"shard_{ordinal}"),
                                        r"(?m)^\S+ E ")

    def test_a_killed_worker_does_not_stop_the_others(self):
        job = self.job(workers=3, extra="reconnect_grace_seconds: 0.2\n")
        workers = [job.worker(rank, 3, epochs=3) for rank in range(3)]
        job.await_rounds(5)
        workers[2].kill()
        for worker in workers[:2]:
            self.assertEqual(worker.wait(WAIT), 0, job.log("worker_0"))
        final = job.log("worker_0").splitlines()[-1]
        self.assertRegex(final, r'"rounds": 720\b')


if __name__ == "__main__":
    unittest.main()
