"""Pipelined publication (P43), from what proto/README.md says of it."""

import numpy

import frames
from client import Reader, Worker
from foreign_test_case import REDUCE, ForeignTestCase
from stubs import agg

# Each tensor is a wave.
SHAPES = {"a": [1 << 20], "b": [1 << 20], "c": [(1 << 20) + 5]}
CONFIG = 'publish: "pipelined" replication: "none"\n' + REDUCE


class WaveWorker(Worker):
    """Pushes slice by slice in the manifest's order."""

    def begin(self, tensors, round):
        self.streams = self.open_trips()
        self.tensors = tensors
        self.round = round
        self.first = set(self.streams)  # shards that got no frame yet
        self.landed = [numpy.full(size, numpy.nan, numpy.float32)
                       for size in self.sizes]
        self.missing = set(range(len(self.slices)))
        self.ended = set()  # shards that have sent the last frame
        self.outcome = None

    def send(self, index):
        """A frame of one slice; the first one to a shard asks, too."""
        shard = self.slices[index].shard
        commit = pull = None
        if shard in self.first:
            self.first.remove(shard)
            pull = agg.PullRequest(
                epoch=self.epoch, version=self.round + 1,
                dtype=frames.F32).SerializeToString()
            if shard == 0:
                commit = self.commit_request(self.round).SerializeToString()
        meta, payload = frames.read_frame(self.frame_of(
            [index], self.tensors, self.round, report=True))
        self.streams[shard].send(frames.frame(meta, payload, commit, pull))

    def receive(self, shard):
        """One message of the shard; the slices that it brings."""
        ack = self.streams[shard].receive()
        if ack.HasField("outcome"):
            self.outcome = ack.outcome
            return set()
        assert ack.HasField("meta"), ack
        if ack.last:
            self.ended.add(shard)
        came = self._land(
            frames.frame(ack.meta.SerializeToString(), ack.payload), shard,
            self.round + 1, frames.F32, self.landed, False)
        assert came <= self.missing, "a slice came twice"
        self.missing -= came
        return came

    def receive_slice(self, index):
        while index in self.missing:
            self.receive(self.slices[index].shard)

    def finish(self):
        for shard in self.streams:
            while shard not in self.ended or (shard == 0 and
                                              self.outcome is None):
                self.receive(shard)
            self.streams[shard].cancel()
        assert not self.missing, self.missing


class PipelinedTest(ForeignTestCase):

    def members(self, num_shards):
        job = self.start("workers: 2\n" + CONFIG, num_shards)
        workers = [WaveWorker(job, rank, SHAPES) for rank in range(2)]
        for worker in workers:
            self.assertTrue(worker.reply.pipelined)
        workers[0].seed([numpy.zeros(size, numpy.float32)
                         for size in workers[0].sizes])
        return job, workers

    def row(self, worker, round):
        numbers = numpy.random.default_rng([worker.rank, round])
        return [numbers.integers(-99, 99, size).astype(numpy.float32)
                for size in worker.sizes]

    def test_each_wave_comes_back_before_the_next_one_is_sent(self):
        for num_shards in (1, 2):
            with self.subTest(num_shards=num_shards):
                self._check_waves(num_shards)

    def _check_waves(self, num_shards):
        job, workers = self.members(num_shards)
        rows = [self.row(worker, 0) for worker in workers]
        total = [a + b for a, b in zip(*rows)]
        for worker, mine in zip(workers, rows):
            worker.begin(mine, 0)
        # The first ones together: a commit waits for a frame on every shard.
        for tensor in range(num_shards - 1, 3):
            indices = [i for i, s in enumerate(workers[0].slices)
                       if s.tensor == tensor or
                       s.tensor < tensor == num_shards - 1]
            for worker in workers:
                for index in indices:
                    worker.send(index)
            if tensor == 2:
                break
            for worker in workers:
                for index in indices:
                    worker.receive_slice(index)
                self.assert_tensors(worker.landed[:tensor + 1],
                                    total[:tensor + 1])
            # There is no such version yet.
            self.assertEqual(self.status(job).version, 0)
        for worker in workers:
            worker.finish()
            self.assertTrue(worker.outcome.included)
            self.assertEqual(worker.outcome.version, 1)
            self.assertEqual(list(worker.outcome.ranks), [0, 1])
            self.assert_tensors(worker.landed, total)
        self.assert_tensors(Reader(job).observe().pull(1), total)

    def test_a_worker_that_is_lost_in_the_middle_is_in_its_waves(self):
        job, workers = self.members(1)
        rows = [self.row(worker, 0) for worker in workers]
        for worker, mine in zip(workers, rows):
            worker.begin(mine, 0)
            worker.send(0)
        workers[0].receive_slice(0)
        workers[1].leave()
        for index in range(1, len(workers[0].slices)):
            workers[0].send(index)
        workers[0].finish()
        outcome = workers[0].outcome
        self.assertTrue(outcome.included)
        self.assertEqual(list(outcome.excluded_ranks), [1])
        self.assertRegex(outcome.message, "rank 1 in 1 of 3 tensors")
        self.assert_tensors(workers[0].landed,
                            [rows[0][0] + rows[1][0], *rows[0][1:]])
