"""node_hook with two nodes of two processes over gloo."""

import multiprocessing
import tempfile
import unittest

from tests.python.job_case import WAIT, JobCase
from tests.python.torch import node_job


class NodeTest(JobCase):

    @classmethod
    def setUpClass(cls):
        # One process imports torch, the others are forks of it.
        cls.processes = multiprocessing.get_context("forkserver")
        cls.processes.set_forkserver_preload(["tests.python.torch.node_job"])

    def run_nodes(self, bucket_mb):
        server = self.serve(shards=2, workers=2, rule="adasum",
                            optimizer="none")
        with tempfile.TemporaryDirectory() as folder:
            processes = [self.processes.Process(
                target=node_job.run,
                args=(rank, folder, server.address, bucket_mb))
                for rank in range(4)]
            for process in processes:
                process.start()
                self.addCleanup(process.kill)
            for process in processes:
                process.join(2 * WAIT)
            self.assertEqual([p.exitcode for p in processes], [0] * 4)

    def test_many_buckets(self):
        self.run_nodes(0.001)

    def test_one_bucket(self):
        self.run_nodes(25)


if __name__ == "__main__":
    unittest.main()
