"""Rounds of one trip (P41), from what proto/README.md says of them."""

import frames
from client import Reader
from foreign_test_case import Code, ForeignTestCase, values
from stubs import agg


class OneTripTest(ForeignTestCase):

    def test_rounds_of_several_workers(self):
        for num_shards in (1, 2):
            with self.subTest(num_shards=num_shards):
                job, workers = self.seeded(workers=3, num_shards=num_shards)
                streams = [worker.open_trips() for worker in workers]
                for round in range(4):
                    for rank, worker in enumerate(workers):
                        worker.begin_trip(streams[rank],
                                          values(round, 10 ** rank), round)
                    for worker, mine in zip(workers, streams):
                        outcome, tensors = worker.end_trip(mine, round)
                        self.assertEqual(outcome.kind, agg.RoundOutcome.APPLIED)
                        self.assertTrue(outcome.included)
                        self.assertEqual(list(outcome.ranks), [0, 1, 2])
                        self.assertEqual(outcome.version, round + 1)
                        self.assert_tensors(tensors, values(3 * round, 111))
                reader = Reader(job).observe()
                self.assert_tensors(reader.pull(4), values(9, 111))

    def test_beside_a_worker_of_ordinary_calls(self):
        job, (first, second) = self.seeded(workers=2, num_shards=2)
        streams = first.open_trips()
        first.begin_trip(streams, values(1))
        second.push(values(2))
        self.assertTrue(second.commit().included)
        outcome, tensors = first.end_trip(streams)
        self.assertTrue(outcome.included)
        self.assert_tensors(tensors, values(3))

    def test_what_the_commit_says_of_its_row_is_compared(self):
        job, (first, second) = self.seeded(workers=2, num_shards=2)
        streams = first.open_trips(), second.open_trips()
        first.begin_trip(streams[0], values(1))
        request = second.commit_request(row_crc32c=[1, 2]).SerializeToString()
        for shard, stream in streams[1].items():
            data = second.trip_frame(shard, values(2))
            if shard == 0:
                data = frames.frame(
                    *self._parts(data), commit=request,
                    pull=agg.PullRequest(version=1, dtype=frames.F32)
                    .SerializeToString())
            stream.send(data)
        outcome, tensors = first.end_trip(streams[0])
        self.assertEqual(list(outcome.excluded_ranks), [1])
        self.assert_tensors(tensors, values(1))
        self.assertFalse(second.end_trip(streams[1])[0].included)

    def _parts(self, data):
        """(meta's bytes, payload) of a frame of any fields."""
        frame = agg.PushFrame.FromString(data)
        return frame.meta.SerializeToString(), frame.payload

    def test_fields_out_of_their_order_are_refused(self):
        job, (worker,) = self.seeded()
        meta, payload = self._parts(worker.trip_frame(0, values(1)))
        commit = worker.commit_request().SerializeToString()
        pull = agg.PullRequest(version=1, dtype=1).SerializeToString()
        head, rest = frames.blob(1, meta), frames.blob(15, payload)
        for name, parts in {
                "pull first": [frames.blob(3, pull), frames.blob(2, commit)],
                "twice": [frames.blob(2, commit), frames.blob(2, commit)],
                "unknown": [frames.blob(4, b"")],
                "junk": [frames.blob(2, b"\xff\xff")],
                "long": [frames.blob(2, bytes(1 << 17))]}.items():
            with self.subTest(name):
                stream = worker.open_push()
                stream.send(head + b"".join(parts) + rest)
                self.assert_fails(Code.INVALID_ARGUMENT, "malformed frame",
                                  stream.rest)
        streams = worker.open_trips()
        worker.begin_trip(streams, values(1))
        self.assert_tensors(worker.end_trip(streams)[1], values(1))

    def test_a_stream_waits_for_one_version(self):
        job, (first, second) = self.seeded(workers=2)
        streams = first.open_trips()
        first.begin_trip(streams, values(1))
        # The same again joins it; in another dtype it is another pull.
        first.begin_trip(streams, values(1))
        other = agg.PushFrame.FromString(first.trip_frame(0, values(1)))
        other.pull.dtype = frames.BF16
        streams[0].send(other)
        self.assert_fails(Code.FAILED_PRECONDITION,
                          "this stream waits for version 1", streams[0].rest)
        # Its commit stands.
        second.push(values(2))
        self.assertEqual(list(second.commit().ranks), [0, 1])

    def test_a_version_that_is_gone_ends_the_stream(self):
        job, (worker,) = self.seeded()
        streams = worker.open_trips()
        for round in range(5):
            worker.begin_trip(streams, values(round), round)
            worker.end_trip(streams, round)
        streams[0].send(worker.trip_frame(0, values(0), 0))
        self.assertTrue(streams[0].receive().closed)
        self.assertTrue(streams[0].receive().outcome.included)
        self.assert_fails(Code.OUT_OF_RANGE, "version 1 is gone",
                          streams[0].rest)
