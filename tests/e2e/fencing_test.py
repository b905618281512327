"""Two processes that are shard 0 of one job: the second waits, and takes over
when nobody answers in the first one's place, which is refused and ends."""

import pathlib
import signal
import tempfile
import time
import unittest

from deploy import quickstart_chaos
from tests.e2e import chaos

ROUNDS = 150
WAIT = 120  # a test that needs as long has failed


class FencingTest(unittest.TestCase):

    def job(self, name):
        """Its shards are reached through proxies, so that another process can
        get their place."""
        folder = tempfile.TemporaryDirectory(prefix=f"agg_{name}_")
        self.addCleanup(folder.cleanup)
        options = chaos.make_parser().parse_args(
            [f"--bin={pathlib.Path.cwd()}", f"--rounds={ROUNDS}", "--shards=2",
             "--replication=buddy", "--actions=cut"])
        job = chaos.Job(options, pathlib.Path(folder.name))
        self.addCleanup(job.stop)
        return job

    def await_log(self, job, name, text):
        deadline = time.monotonic() + WAIT
        while text not in (log := (job.folder / f"{name}.log").read_text()):
            self.assertLess(time.monotonic(), deadline, f"{text}\n{log}")
            job.processes.check()
            time.sleep(0.01)

    def test_a_frozen_coordinator_is_replaced_refused_and_ends(self):
        undisturbed = self.job("undisturbed")
        for _ in undisturbed.lines():
            pass
        expected = undisturbed.digests()

        job = self.job("fencing")
        former = job.shards.running[0]
        port = quickstart_chaos.free_ports(1)[0]
        frozen = standby = False
        for line in job.lines():
            if line["version"] >= 10 and not standby:
                standby = True
                job.processes.start(
                    "standby", [*job.shards.command(0)[:-1], f"--port={port}"])
                # It says for what it waits, and the rounds go on.
                self.await_log(job, "standby",
                               f"answers at {job.coordinator}, the address of "
                               "shard 0; this one takes over when nobody")
            if line["version"] >= 20 and not frozen:
                frozen = True
                former.send_signal(signal.SIGSTOP)
                job.proxies[0].target = port
                job.proxies[0].cut()
                job.proxies[0].mend()
                self.await_log(job, "standby", "the job goes on from version ")
                former.send_signal(signal.SIGCONT)
                self.assertEqual(former.wait(WAIT), 3)
                job.processes.running = [
                    item for item in job.processes.running if item[1] != former]
        self.assertTrue(frozen)
        self.assertEqual(job.digests(), expected)
        log = (job.folder / "shard_0_life_0.log").read_text()
        self.assertIn("superseded", log)


if __name__ == "__main__":
    unittest.main()
