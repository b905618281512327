"""CPU quotas of control groups, in a file system of the test's own."""

import pathlib
import tempfile
import unittest

from tests.python import job_case  # pylint: disable=unused-import
from agg_server._cpus import granted_cpus


class CpusTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def granted(self, affinity=32):
        return granted_cpus(affinity, str(self.root))

    def test_version_two_and_parents(self):
        self.assertEqual(self.granted(), 32)
        self.write("proc/self/cgroup", "0::/pod/container\n")
        self.write("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n")
        self.assertEqual(self.granted(), 32)
        self.write("sys/fs/cgroup/pod/cpu.max", "250000 100000\n")
        self.assertEqual(self.granted(), 3)
        self.write("sys/fs/cgroup/pod/container/cpu.max", "1000 100000\n")
        self.assertEqual(self.granted(), 1)
        self.assertEqual(self.granted(1), 1)

    def test_the_root_that_a_container_sees(self):
        self.write("proc/self/cgroup", "0::/\n")
        self.write("sys/fs/cgroup/cpu.max", "200000 100000\n")
        self.assertEqual(self.granted(), 2)

    def test_version_one_whose_path_is_the_hosts(self):
        self.write("proc/self/cgroup", "4:cpu,cpuacct:/docker/x\n5:memory:/\n")
        self.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
        self.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
        self.assertEqual(self.granted(), 32)
        self.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n")
        self.assertEqual(self.granted(), 4)

    def test_junk_is_no_quota(self):
        self.write("proc/self/cgroup", "junk\n0::/a\n")
        for text in ("", "junk", "100000", "100000 0", "-1 100000", "1 2 3"):
            self.write("sys/fs/cgroup/a/cpu.max", text)
            self.assertEqual(self.granted(), 32, text)

    def test_of_this_process(self):
        self.assertGreaterEqual(granted_cpus(), 1)


if __name__ == "__main__":
    unittest.main()
