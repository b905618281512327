"""node_hook with two nodes of two processes over gloo."""

import unittest

from tests.python.job_case import JobCase
from tests.python.torch import node_job


class NodeTest(JobCase):

    def run_nodes(self, bucket_mb):
        server = self.serve(shards=2, workers=2, rule="adasum",
                            optimizer="none")
        folder = str(self.temporary_folder())
        self.run_processes(node_job.run, [
            (rank, folder, server.address, bucket_mb) for rank in range(4)])

    def test_many_buckets(self):
        self.run_nodes(0.001)

    def test_one_bucket(self):
        self.run_nodes(25)


if __name__ == "__main__":
    unittest.main()
