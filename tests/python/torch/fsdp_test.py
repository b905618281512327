"""What the example of FSDP does when the leader of a node fails."""

import unittest

from tests.python.job_case import JobCase
from tests.python.torch import fsdp_job


class FsdpTest(JobCase):

    def test_an_error_of_the_leader_ends_the_step_everywhere(self):
        folder = str(self.temporary_folder())
        self.run_processes(fsdp_job.run, [(rank, folder) for rank in range(2)])


if __name__ == "__main__":
    unittest.main()
