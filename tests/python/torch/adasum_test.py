"""Adasum's properties through agg.allreduce, with four processes."""

import unittest

import torch

from tests.python.job_case import WAIT, JobCase
from tests.python.torch import adasum_job

# Of the result's length: some roundings to float32 of the coefficients and of
# the sum of four rows; f16 has a rounding of the result, and none of its own.
F32_BOUND = 1e-6
F16_BOUND = 1e-3


class AdasumTest(JobCase):

    def run_cases(self, *cases):
        """(case, dtype, bound), each a round."""
        server = self.serve(shards=2, workers=adasum_job.WORKERS,
                            rule="adasum", optimizer="none")
        self.run_processes(
            adasum_job.run, [(rank, server.address, cases)
                             for rank in range(adasum_job.WORKERS)], 4 * WAIT)

    def test_orthogonal_rows_add_up_and_parallel_ones_average(self):
        self.run_cases(*[
            (case, dtype, bound)
            for case in ("orthogonal", "parallel", "random")
            for dtype, bound in ((torch.float32, F32_BOUND),
                                 (torch.float16, F16_BOUND))])

    def test_lengths_that_differ_by_much_and_a_zero_row(self):
        self.run_cases(("unequal", torch.float32, F32_BOUND))

    def test_subnormal_rows_stay_finite(self):
        # 1e-40 has 17 bits.
        self.run_cases(("subnormal", torch.float32, 1e-4))


if __name__ == "__main__":
    unittest.main()
