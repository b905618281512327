"""Push and Pull, and what proto/README.md says about frames and the plan."""

import unittest

import numpy

import frames
from arithmetic import to_bf16, to_f16
from client import SEED, Reader, Stream, Worker, round_of
from foreign_test_case import REDUCE, TENSORS, Code, ForeignTestCase, values
from server_process import WAIT, wait_until


class FrameTest(unittest.TestCase):

    def test_the_worked_example(self):
        payload = numpy.array([1, -2], "<f4").tobytes()
        self.assertEqual(frames.crc32c(payload), 0xAA36F2C9)
        got = frames.frame(frames.meta(
            epoch=5, session=0x0102030405060708, round=3, slices=[0],
            crcs=[0xAA36F2C9]), payload)
        self.assertEqual(got.hex(" "), (
            "0a 18 08 05 11 08 07 06 05 04 03 02 01 18 03 28 01 32 01 00 "
            "3a 04 c9 f2 36 aa 7a 08 00 00 80 3f 00 00 00 c0"))

    def test_the_worked_example_of_int8(self):
        payload = frames.encode([1, -1, 63.5, -63.5], frames.I8)
        self.assertEqual(payload.hex(" "), "00 00 00 3f 02 fe 7f 81")
        self.assertEqual(frames.crc32c(payload), 0xD62D9F8D)
        self.assertEqual(list(frames.decode_int8(payload, 4)),
                         [1, -1, 63.5, -63.5])

    def test_crc32c_of_long_data(self):
        data = bytes(range(256)) * 100
        state = 0xFFFFFFFF
        for byte in data:  # Bit by bit, by the definition.
            state ^= byte
            for _ in range(8):
                state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
        self.assertEqual(frames.crc32c(data), state ^ 0xFFFFFFFF)
        self.assertEqual(frames.crc32c(b"123456789"), 0xE3069283)


class PushTest(ForeignTestCase):

    def test_one_stream_serves_many_rounds(self):
        job, (worker,) = self.seeded()
        stream = worker.open_push()
        for round in range(3):
            stream.send(worker.frame_of([0, 1], values(round), round))
            ack = stream.receive()
            self.assertEqual((ack.round, ack.epoch, ack.closed),
                             (round, worker.epoch, False))
            worker.commit(round)
        self.assert_tensors(worker.pull(3), values(2))

    def test_slices_in_any_order_of_frames(self):
        job, (worker,) = self.seeded()
        stream = worker.open_push()
        stream.send(worker.frame_of([1], values(1, 2)))
        stream.send(worker.frame_of([0], values(1, 2)))
        self.assertFalse(stream.receive().closed)
        worker.commit()
        self.assert_tensors(worker.pull(1), values(1, 2))

    def test_a_row_from_two_streams(self):
        job, (worker,) = self.seeded()
        streams = [worker.open_push() for _ in range(2)]
        for index, stream in enumerate(streams):
            stream.send(worker.frame_of([index], values(3, 4)))
        # Whichever came last; the other's stream may be acknowledged, too.
        for stream in streams:
            stream.half_close()
        acks = [ack for stream in streams for ack in stream.rest()]
        self.assertGreaterEqual(len(acks), 1)
        worker.commit()
        self.assert_tensors(worker.pull(1), values(3, 4))

    def test_duplicates_are_dropped_and_acknowledged(self):
        job, (worker,) = self.seeded()
        stream = worker.open_push()
        for indices in ([0], [0], [0], [1], [0], [1], [0, 1]):
            stream.send(worker.frame_of(indices, values(3, 4)))
        self.assertFalse(stream.receive().closed)
        worker.push(values(3, 4))
        worker.commit()
        self.assert_tensors(worker.pull(1), values(3, 4))

    def test_a_retry_after_a_broken_stream(self):
        job, (worker,) = self.seeded()
        broken = worker.open_push()
        broken.send(worker.frame_of([0], values(3, 4)))
        broken.cancel()
        worker.push(values(3, 4))
        worker.commit()
        self.assert_tensors(worker.pull(1), values(3, 4))

    def test_a_late_push_is_closed_and_not_included(self):
        job, (fast, slow) = self.seeded(
            2, REDUCE + "round_timeout_seconds: 0.2")
        fast.push(values(1))
        self.assertEqual(list(fast.commit().ranks), [0])
        self.assertTrue(slow.push(values(9))[0].closed)
        outcome = slow.commit()
        self.assertFalse(outcome.included)
        self.assertEqual(outcome.version, 1)
        self.assert_tensors(slow.pull(1), values(1))

    def test_optional_tensors_count_as_zero(self):
        tensors = {"a": ([2], True), "b": ([3], False)}
        job, workers = self.seeded(2, tensors=tensors)
        workers[0].push(values(1, 2), absent=[0])
        workers[1].push(values(5, 6))
        commits = [worker.commit_later() for worker in workers]
        self.assertTrue(all(c.result().included for c in commits))
        self.assert_tensors(workers[0].pull(1), values(5, 8))

    def test_a_tensor_without_elements_and_a_scalar(self):
        job, (worker,) = self.seeded(tensors={"none": [0, 7], "one": []})
        self.assertEqual(len(worker.slices), 1)
        gradient = [numpy.zeros(0, numpy.float32), numpy.float32([4])]
        round_of([worker], [gradient])
        self.assert_tensors(worker.pull(1), gradient)

    def test_a_shard_without_slices(self):
        job, (worker,) = self.seeded(num_shards=2, tensors={"one": [2]})
        self.assertEqual(worker.indices(1), [])
        replies = list(worker.pull_frames(1, 0))
        self.assertEqual(len(replies), 1)
        self.assertEqual(frames.read_frame(replies[0])[1], b"")
        round_of([worker], [[numpy.float32([1, 2])]])
        self.assert_tensors(worker.pull(1), [[1, 2]])

    def test_an_empty_stream(self):
        job, (worker,) = self.seeded()
        stream = worker.open_push()
        stream.half_close()
        self.assertEqual(stream.rest(), [])
        self.assertEqual(stream.code(), Code.OK)


class DtypeTest(ForeignTestCase):

    def check(self, push, pull, narrow):
        config = REDUCE + f'push_dtype: "{push}" pull_dtype: "{pull}"\n'
        job, workers = self.seeded(2, config)
        rows = [values(1.5, 1), values(-0.25, 2 ** -10)]
        round_of(workers, rows)
        total = [rows[0][i] + rows[1][i] for i in range(2)]
        self.assert_tensors(workers[0].pull(1), total)  # F32 always can.
        self.assert_tensors(workers[0].pull(1, frames.DTYPES[pull]),
                            [narrow(tensor) for tensor in total])

    def test_bf16(self):
        self.check("bf16", "bf16", to_bf16)

    def test_f16(self):
        self.check("f16", "f16", to_f16)

    def test_bf16_rows_and_f16_pulls(self):
        self.check("bf16", "f16", to_f16)


class Int8Test(ForeignTestCase):

    CONFIG = REDUCE + 'push_dtype: "int8"\n'

    def test_a_round(self):
        sizes = {"a": [3, 300], "b": [5]}
        job, workers = self.seeded(2, self.CONFIG, num_shards=2,
                                   tensors=sizes)
        random = numpy.random.default_rng(7)
        rows = [[random.standard_normal(n).astype(numpy.float32)
                 for n in (900, 5)] for _ in workers]
        for worker, row in zip(workers, rows):
            worker.push(row)
        pending = [worker.commit_later(row_crc32c=worker.row_crc32c(row))
                   for worker, row in zip(workers, rows)]
        self.assertTrue(all(p.result().included for p in pending))
        total = [sum(frames.decode_int8(frames.encode(row[t], frames.I8),
                                        len(row[t])) for row in rows)
                 for t in range(2)]
        self.assert_tensors(workers[0].pull(1),
                            [t.astype(numpy.float32) for t in total])

    def frame(self, worker, scale, elements, slices=(0,)):
        payload = (numpy.array(scale, "<f4").tobytes() +
                   numpy.array(elements, "i1").tobytes())
        return frames.frame(frames.meta(
            epoch=worker.epoch, session=worker.session, dtype=frames.I8,
            slices=slices, crcs=[frames.crc32c(payload)]), payload)

    def test_every_byte_and_scale_has_a_value(self):
        job, (worker,) = self.seeded(config=self.CONFIG, tensors={"a": [4]})
        stream = worker.open_push()
        stream.send(self.frame(worker, [-0.5], [-128, 127, -1, 0]))
        stream.receive()
        worker.commit()
        self.assert_tensors(worker.pull(1), [[64, -63.5, 0.5, 0]])

    def test_a_scale_that_is_not_finite_excludes_the_row(self):
        job, workers = self.seeded(2, self.CONFIG, tensors={"a": [4]})
        for worker, scale in zip(workers, (1, float("nan"))):
            stream = worker.open_push()
            stream.send(self.frame(worker, [scale], [1, 2, 3, 0]))
            stream.receive()
        pending = [worker.commit_later() for worker in workers]
        outcomes = [p.result() for p in pending]
        self.assertEqual(list(outcomes[0].excluded_ranks), [1])
        self.assertEqual([o.included for o in outcomes], [True, False])
        self.assert_tensors(workers[0].pull(1), [[1, 2, 3, 0]])

    def test_a_payload_without_scales_is_refused(self):
        job, (worker,) = self.seeded(config=self.CONFIG, tensors={"a": [4]})
        stream = worker.open_push()
        stream.send(self.frame(worker, [], [1, 2, 3, 0]))
        self.assert_fails(Code.INVALID_ARGUMENT, "payload has 4 bytes",
                          stream.receive)


class PullTest(ForeignTestCase):

    def test_two_versions_can_be_pulled(self):
        job, (worker,) = self.seeded()
        for round in range(3):
            round_of([worker], [values(round + 1)], round)
        self.assert_tensors(worker.pull(2), values(2))
        self.assert_tensors(worker.pull(3), values(3))
        self.assert_fails(Code.OUT_OF_RANGE, "3", worker.pull, 1)

    def test_a_pull_waits_for_the_next_version(self):
        job, (worker,) = self.seeded()
        reader = Reader(job).observe()
        call = reader.pull_frames(0, 1)
        round_of([worker], [values(6)])
        meta, _ = frames.read_frame(next(call))
        self.assertEqual(meta, frames.read_frame(
            next(worker.pull_frames(0, 1)))[0])

    def test_many_slices(self):
        sizes = {"big": [2, frames.SLICE_ELEMENTS + 5], "small": [9]}
        seed = [numpy.arange(size, dtype=numpy.float32) % 4096
                for size in (2 * frames.SLICE_ELEMENTS + 10, 9)]
        for num_shards in (1, 2):
            job, (worker,) = self.seeded(num_shards=num_shards, tensors=sizes,
                                         seed=seed)
            self.assertEqual(len(worker.slices), 4)
            self.assert_tensors(worker.pull(0), seed)

    def test_a_late_seed_is_waited_for(self):
        job = self.start("workers: 2\n" + REDUCE)
        first, second = (Worker(job, rank, TENSORS) for rank in range(2))
        call = second.pull_frames(0, 0)
        first.push_to(0, values(8), kind=SEED)
        first.commit(kind=SEED)
        self.assertEqual(frames.read_frame(next(call))[1][-4:],
                         numpy.float32(8).tobytes())


class ServicesTest(ForeignTestCase):

    def test_health(self):
        job = self.start(num_shards=2)
        for ordinal in range(2):
            check = job.peer(ordinal).channel.unary_unary(
                "/grpc.health.v1.Health/Check")
            serving = b"\x08\x01"
            wait_until(lambda: check(b"", timeout=WAIT) == serving, "serving")

    def test_reflection(self):
        job = self.start()
        stream = Stream(job.peer().channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"))
        stream.send(b"\x3a\x00")  # list_services
        names = stream.receive()
        for service in (b"Coordinator", b"Shard", b"ShardControl", b"Admin"):
            self.assertIn(b"agg.v1." + service, names)
        stream.half_close()
        stream.rest()

    def test_an_unknown_method(self):
        job = self.start()
        call = job.peer().channel.unary_unary("/agg.v1.Coordinator/Nothing")
        self.assert_fails(Code.UNIMPLEMENTED, "^", call, b"", timeout=WAIT)
        self.assert_works(job)
