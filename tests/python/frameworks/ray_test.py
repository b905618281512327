"""agg_server.ray on a cluster of two nodes, both on this machine."""

import importlib.util
import logging
import os
import pathlib
import tempfile
import unittest

import numpy as np

from tests.python.job_case import ROOT, JobCase, agg
from tests.python.frameworks import ray_job


def folder_of(pid):
    """Where an agg_server has its configuration and log."""
    options = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    config = [o for o in options if o.startswith("--config=")][0]
    return pathlib.Path(config.partition("=")[2]).parent


@unittest.skipUnless(importlib.util.find_spec("ray"), "ray is not installed")
class RayTest(JobCase):

    @classmethod
    def setUpClass(cls):
        # Ray on loopback: so it finds 127.0.0.1 for its own address.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        import ray  # pylint: disable=import-outside-toplevel
        from ray.cluster_utils import Cluster
        # The cluster's processes inherit it.
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [str(ROOT), str(ROOT / "worker_client" / "python")])
        node = {"num_cpus": 3, "include_dashboard": False,
                "object_store_memory": 100 * 2**20}
        cls.cluster = Cluster(initialize_head=True, head_node_args=node)
        cls.addClassCleanup(cls.cluster.shutdown)
        cls.cluster.add_node(**node)
        ray.init(cls.cluster.address, logging_level=logging.ERROR)
        cls.addClassCleanup(ray.shutdown)

    def test_what_is_killed_comes_back(self):
        from agg_server.ray import RayJob
        with RayJob(shards=2, workers=2, lr=0.5) as job, \
                tempfile.TemporaryDirectory() as folder:
            places = job.places()
            self.assertEqual(len({node for node, _ in places}), 2)
            folders = [folder_of(pid) for _, pid in places]
            (_, once, first), (_, twice, second) = job.run(
                ray_job.train, folder, [pid for _, pid in places])
            self.assertEqual((once, twice), (1, 2))
            self.assertEqual(job.places()[0], places[0])
            self.assertEqual(job.places()[1][0], places[1][0])  # its node
            self.assertNotEqual(job.places()[1][1], places[1][1])
            self.assertEqual([f.exists() for f in folders], [True, False])
        self.assertFalse(folders[0].exists())
        np.testing.assert_array_equal(first, second)
        # 1 - 0.5^12 if every round was applied once, in order.
        np.testing.assert_allclose(first, 1 - 0.5 ** ray_job.ROUNDS,
                                   rtol=1e-6)

    def test_an_exception_ends_all(self):
        from agg_server.ray import RayJob
        with RayJob(workers=2, lr=0.5) as job:
            with self.assertRaises(LookupError):
                job.run(ray_job.fail)

    def test_no_room(self):
        from agg_server.ray import RayJob
        with self.assertRaisesRegex(agg.Error, "no room"):
            RayJob(workers=2, lr=0.5, worker_resources={"CPU": 50},
                   start_timeout=0.5)

    def test_a_wrong_rule(self):
        from agg_server.ray import RayJob
        with self.assertRaisesRegex(agg.Error, 'rule is "median"'):
            RayJob(rule="median", lr=0.5, start_timeout=60)


if __name__ == "__main__":
    unittest.main()
