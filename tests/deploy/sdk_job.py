"""What the tests of the SDK share: a job of one shard, and its minimal worker."""

import pathlib
import subprocess
import time

WAIT = 300  # a step that needs as long has failed


def run(*command, **options):
    """A finished process; its output is text, stderr is in stdout."""
    return subprocess.run([str(word) for word in command], timeout=WAIT,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False,
                          **options)


class Server:
    """agg_server on loopback with one shard, for one worker."""

    def __init__(self, program, folder):
        folder = pathlib.Path(folder)
        folder.mkdir()
        config, port = folder / "job.textproto", folder / "port"
        config.write_text('workers: 1 shards: "127.0.0.1:1"\n'
                          "learning_rate { rate: 0.5 }\n")
        self.log = folder / "log"
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                [str(program), f"--config={config}", "--port=0",
                 f"--port_file={port}"], stdin=subprocess.DEVNULL, stdout=out,
                stderr=out)
        deadline = time.monotonic() + WAIT
        while not (port.exists() and port.read_text().strip()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(self.log.read_text(errors="replace"))
            time.sleep(0.005)
        self.address = "127.0.0.1:" + port.read_text().strip()

    def stop(self):
        self.process.kill()
        self.process.wait()


def check_worker(test, server, folder, worker, **options):
    """A minimal worker and agg_server do their four rounds."""
    job = Server(server, folder)
    test.addCleanup(job.stop)
    result = run(worker, job.address, **options)
    # 1 - 0.5^4
    test.assertEqual((result.returncode, result.stdout.splitlines()[-1:]),
                     (0, ["OK, x[0] = 0.9375"]), result.stdout)
