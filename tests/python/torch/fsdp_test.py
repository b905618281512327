"""What the example of FSDP does when the leader of a node fails."""

import multiprocessing
import tempfile
import unittest

from tests.python.job_case import WAIT
from tests.python.torch import fsdp_job


class FsdpTest(unittest.TestCase):

    def test_an_error_of_the_leader_ends_the_step_everywhere(self):
        processes = multiprocessing.get_context("forkserver")
        processes.set_forkserver_preload(["tests.python.torch.fsdp_job"])
        with tempfile.TemporaryDirectory() as folder:
            node = [processes.Process(target=fsdp_job.run, args=(rank, folder))
                    for rank in range(2)]
            for process in node:
                process.start()
                self.addCleanup(process.kill)
            for process in node:
                process.join(2 * WAIT)
            self.assertEqual([p.exitcode for p in node], [0, 0])


if __name__ == "__main__":
    unittest.main()
