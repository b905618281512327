"""The deployment on Kubernetes, with network namespaces for pods: the shards'
flags and configuration are those of deploy/k8s, the names are resolved as in
a pod, and addresses change as they do there.

Needs root and the right to make network namespaces; is skipped otherwise.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import unittest

from tests.deploy import netns_pods as pods
from tests.deploy.netns_pods import wait_for

ROOT = pathlib.Path(__file__).absolute().parent.parent.parent
SHARDS = 2
WORKERS = 3
COORDINATOR = "agg-0.agg.agg-server.svc:50051"
GRACE_SECONDS = 60  # terminationGracePeriodSeconds

REASON = pods.why_not()
if REASON:
    print("netns_e2e_test is skipped:", REASON)


FILES = {
    "agg_server": "server/agg_server",
    "digits_worker": "worker_client/examples/digits_worker",
}


def install(folder):
    """What the image has: a pod's user may not see this build's folders. The
    programs are in Bazel's test folder, or where AGG_BIN says."""
    folder.chmod(0o755)
    binaries = pathlib.Path(os.environ.get("AGG_BIN", ".")).absolute()
    for name, path in FILES.items():
        shutil.copy(binaries / path, folder / name)
        (folder / name).chmod(0o755)
    shutil.copyfile(ROOT / "deploy/data/digits.csv.gz",
                    folder / "digits.csv.gz")


def stateful_set_flags(config):
    """The container's arguments, with another path of the configuration."""
    text = (ROOT / "deploy/k8s/base/statefulset.yaml").read_text()
    args = re.search(r"\n +args:\n((?: +- .*\n)+)", text).group(1)
    flags = re.findall(r"- (--\S+)", args)
    assert any(flag == "--shard=auto" for flag in flags), flags
    return [re.sub(r"^--config=.*", f"--config={config}", flag)
            for flag in flags]


def job_config():
    """Of the base, for three workers and without end."""
    text = (ROOT / "deploy/k8s/base/job.textproto").read_text()
    text, workers = re.subn(r"(?m)^workers: .*$", f"workers: {WORKERS}", text)
    text, ends = re.subn(r"(?m)^max_rounds: .*$", "", text)
    assert (workers, ends) == (1, 1), text
    return text


def metric(body, name):
    """The one value of a series without further labels, or None."""
    match = re.search(rf"(?m)^{name}\{{[^}}]*\}} (\S+)$", body)
    return float(match.group(1)) if match else None


@unittest.skipIf(REASON, REASON)
class PodsTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="agg_netns_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        install(self.folder)
        # So that a test that is told to end cleans up as well.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        self.config = self.folder / "job.textproto"
        self.config.write_text(job_config())
        self.cluster = pods.Cluster(self.folder)
        self.addCleanup(self.cluster.close)
        self.addCleanup(self.show_logs)

    def show_logs(self):
        """Only on failure: what every pod said last."""
        outcome = self._outcome.result
        if not any(case is self for case, _ in
                   outcome.errors + outcome.failures):
            return
        for pod in self.cluster.pods:
            tail = "\n  ".join(pod.text().splitlines()[-12:])
            print(f"{pod.host} at {pod.address}:\n  {tail}")

    # --- Pieces --------------------------------------------------------------

    def start_shard(self, ordinal, number):
        pod = self.cluster.add(f"agg-{ordinal}", number, service="agg")
        pod.start(self.folder / "agg_server", *stateful_set_flags(self.config))
        return pod

    def start_worker(self, rank, number):
        pod = self.cluster.add(f"digits-worker-{rank}", number)
        pod.start(
            self.folder / "digits_worker",
            f"--coordinator={COORDINATOR}", f"--rank={rank}",
            f"--workers={WORKERS}", "--batch=2", "--epochs=1000000",
            "--recovery_window=0",
            f"--data={self.folder / 'digits.csv.gz'}")
        return pod

    def outcomes(self, worker):
        """The whole lines that rank 0 has printed."""
        self.assertIsNone(worker.process.poll(), worker.text())
        lines = worker.out.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def wait_for_rounds(self, worker, count):
        """Until that many rounds from now have ended."""
        goal = len(self.outcomes(worker)) + count
        wait_for(f"{count} rounds",
                 lambda: len(self.outcomes(worker)) >= goal)

    def scrape(self, shard):
        reply = wait_for("a scrape", lambda: shard.get("/metrics"))
        self.assertEqual(reply[0], 200)
        return reply[1]

    def wait_for_rows(self, shard, worker, count):
        """Until a round with that many gradients, then some more."""
        wait_for(f"rounds of {count}", lambda: metric(
            self.scrape(shard), "aggserver_round_rows") == count)
        self.wait_for_rounds(worker, 5)

    # --- The scenario --------------------------------------------------------

    def test_a_job_outlives_workers_and_names_a_lost_shard(self):
        # Shard 1 first: names of pods that do not exist yet must not hurt.
        shard1 = self.start_shard(1, 11)
        workers = [self.start_worker(0, 20)]
        shard0 = self.start_shard(0, 10)
        workers += [self.start_worker(rank, 20 + rank) for rank in (1, 2)]
        self.wait_for_rows(shard0, workers[0], WORKERS)
        self.check_rights([shard0, shard1, *workers])
        self.check_health_pages([shard0, shard1])
        workers[2] = self.check_worker_moves(shard0, workers)
        self.check_shard_is_named(shard1, workers)
        shard1 = self.check_job_goes_on(shard0)
        self.check_drain([shard0, shard1])

    def check_rights(self, running):
        """As in the StatefulSet's securityContext."""
        for pod in running:
            proc = pathlib.Path(f"/proc/{pod.process.pid}")
            status = (proc / "status").read_text()
            self.assertRegex(status, r"(?m)^Uid:\t65532\t65532\t")
            self.assertRegex(status, r"(?m)^NoNewPrivs:\t1$")
            for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb"):
                self.assertRegex(status, rf"(?m)^Cap{kind}:\t0+$")
            root = [line.split() for line in
                    (proc / "mountinfo").read_text().splitlines()
                    if line.split()[4] == "/"]
            self.assertIn("ro", root[-1][5].split(","))

    def check_health_pages(self, shards):
        """What the probes ask over gRPC, as HTTP says it."""
        for shard in shards:
            for path in ("/healthz", "/readyz"):
                wait_for(f"{path} of {shard.host}", lambda: (
                    shard.get(path, host=shard.address) or [0])[0] == 200)

    def check_worker_moves(self, shard0, workers):
        """Rank 2's node dies without a word; the rank comes back elsewhere."""
        workers[2].unplug()
        workers[2].kill()
        moved = self.start_worker(2, 32)
        self.wait_for_rounds(workers[0], 5)
        self.wait_for_rows(shard0, workers[0], WORKERS)
        self.assertIsNone(moved.process.poll())
        self.assertNotEqual(moved.address, workers[2].address)
        # And a worker that nobody replaces does not hold up the others.
        workers[1].kill()
        self.wait_for_rows(shard0, workers[0], WORKERS - 1)
        workers[1] = self.start_worker(1, 31)
        self.wait_for_rows(shard0, workers[0], WORKERS)
        return moved

    def check_shard_is_named(self, shard1, workers):
        shard1.kill()
        for worker in workers:
            code = wait_for(f"{worker.host} ends", worker.process.poll)
            self.assertEqual(code, 1, worker.text())
            self.assertIn("UNAVAILABLE", worker.text())
            self.assertIn("shard 1 (agg-1.agg.agg-server.svc:50051)",
                          worker.text())

    def check_job_goes_on(self, shard0):
        """The StatefulSet makes the pod anew, at another address."""
        shard1 = self.start_shard(1, 12)
        # Its part is fetched from the second copy, in shard 0's memory.
        wait_for("the job is back",
                 lambda: "the job goes on from version " in shard0.text())
        workers = [self.start_worker(rank, 40 + rank)
                   for rank in range(WORKERS)]
        self.wait_for_rows(shard0, workers[0], WORKERS)
        self.check_health_pages([shard0, shard1])
        return shard1

    def check_drain(self, shards):
        for shard in shards:
            shard.process.send_signal(signal.SIGTERM)
        for shard in shards:
            self.assertEqual(shard.process.wait(GRACE_SECONDS), 0,
                             shard.text())
            self.assertIn("drained", shard.text())


if __name__ == "__main__":
    unittest.main()
