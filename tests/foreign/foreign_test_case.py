"""What the suites share: jobs that end with their test, and statuses."""

import re
import unittest

import grpc
import numpy

from client import Worker, failure
from server_process import Job, wait_until
from stubs import agg

Code = grpc.StatusCode

# An all-reduce: a version's parameters are the combined gradient.
REDUCE = 'combination { rule: "sum" } optimizer { kind: "none" }\n'
WAITS = "waits for its coordinator"  # A shard that is not attached says so.
# With two shards the second tensor, which is larger, is on shard 0.
TENSORS = {"a": [2], "b": [3]}


def values(*numbers):
    """One flat array per tensor of TENSORS: values(1, 2) is 1 1 and 2 2 2."""
    a, b = numbers if len(numbers) == 2 else numbers * 2
    return [numpy.full(2, a, numpy.float32), numpy.full(3, b, numpy.float32)]


class ForeignTestCase(unittest.TestCase):

    def start(self, config="workers: 1\n" + REDUCE, num_shards=1, flags=(),
              **kwargs):
        """A job that ends with the test; kwargs as of Job."""
        job = Job(config, num_shards, flags, **kwargs)
        self.addCleanup(job.stop)
        return job

    def seeded(self, workers=1, config=REDUCE, num_shards=1, tensors=None,
               seed=None):
        """A new job and its workers, after version 0 (zeros) was published."""
        job = self.start(f"workers: {workers}\n{config}", num_shards)
        members = [Worker(job, rank, tensors or TENSORS)
                   for rank in range(workers)]
        if seed is None:
            seed = [numpy.zeros(size, numpy.float32)
                    for size in members[0].sizes]
        members[0].seed(seed)
        return job, members

    def assert_fails(self, code, text, call, *args, **kwargs):
        """call ends with the code; its message matches the pattern."""
        got, details = failure(call, *args, **kwargs)
        self.assertEqual(got, code, details)
        self.assertRegex(details, text)
        return details

    def assert_tensors(self, got, wanted):
        self.assertEqual(len(got), len(wanted))
        for one, other in zip(got, wanted):
            numpy.testing.assert_array_equal(one, numpy.asarray(
                other, numpy.float32))

    def status(self, job):
        return job.peer().coordinator.GetStatus(agg.StatusRequest(), timeout=10)

    def assert_works(self, job):
        """All shards live, and shard 0 answers on a new connection."""
        for shard in job.shards:
            self.assertTrue(shard.alive(), shard.log())
        self.status(job)

    def commit_first(self, job, worker, round=0):
        """Commits a round that others hold open; returns the future.

        Keep it: gRPC cancels a call whose future is dropped.
        """
        future = worker.commit_later(round)
        wait_until(lambda: any(w.committed for w in self.status(job).workers
                               if w.rank == worker.rank),
                   f"rank {worker.rank} has committed")
        return future
