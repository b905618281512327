"""Whose namespaces are removed."""

import os
import shutil
import subprocess
import unittest

from tests import netns_leftovers

# Below every process of a test, above every process id of Linux.
NOBODY = 2 ** 22 + 17


def namespace(name):
    """Whether it could be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    return subprocess.run(["ip", "netns", "add", name], check=False,
                          capture_output=True).returncode == 0


class NetnsLeftoversTest(unittest.TestCase):

    def test_names_say_who_made_them(self):
        for name, pid in {
                "agg123n2": 123, "agg123nbr": 123, "agg123try": 123,
                "aggs77": 77, "aggw77": 77, "agg": None, "agg123": None,
                "aggs77x": None, "agg-12": None, "xagg123n2": None,
                "aggsn2": None, "cni-123": None}.items():
            self.assertEqual(netns_leftovers.maker(name), pid, name)

    def test_those_of_the_living_stay(self):
        names = ["agg1n1", "aggw2", "agg3try", "docker", "aggs1"]
        self.assertEqual(netns_leftovers.leftovers(names, {1, 3}.__contains__),
                         ["aggw2"])

    def test_a_namespace_without_maker_is_removed(self):
        gone, here = f"agg{NOBODY}n1", f"agg{os.getpid()}n1"
        if not namespace(gone):
            self.skipTest("cannot make network namespaces")
        self.addCleanup(subprocess.run, ["ip", "netns", "del", here],
                        check=True)
        self.assertTrue(namespace(here))
        netns_leftovers.remove()
        names = os.listdir("/run/netns")
        self.assertNotIn(gone, names)
        self.assertIn(here, names)


if __name__ == "__main__":
    unittest.main()
