"""Malformed frames and requests: a code that the table allows, and life."""

import random

import grpc

import frames
from client import Reader, Stream, Worker, failure, round_of
from foreign_test_case import REDUCE, Code, ForeignTestCase, values
from server_process import WAIT
from stubs import agg

HUGE = 2 ** 64 - 1


class FramesTest(ForeignTestCase):
    """All on one job: no frame may disturb the ones after it."""

    def setUp(self):
        # Nobody renews it here, however slow the machine is.
        self.job, (self.worker,) = self.seeded(
            config=REDUCE + "lease_seconds: 600\n")
        worker = self.worker
        self.payload = frames.encode([1, 1], 1) + frames.encode([2, 2, 2], 1)
        crcs = [frames.crc32c(part)
                for part in (self.payload[:8], self.payload[8:])]
        self.fields = dict(epoch=worker.epoch, session=worker.session,
                           slices=[0, 1], crcs=crcs)

    def push(self, *messages):
        stream = self.worker.open_push()
        for message in messages:
            stream.send(message)
        stream.half_close()
        return stream.rest()

    def frame(self, payload=None, **fields):
        return frames.frame(frames.meta(**{**self.fields, **fields}),
                            self.payload if payload is None else payload)

    def assert_refused(self, message, code=Code.INVALID_ARGUMENT):
        got, details = failure(self.push, message)
        self.assertEqual(got, code, f"{details}; {message[:60].hex(' ')}")
        self.assertNotEqual(details, "")
        self.assertLess(len(details), 1000)
        return details

    def tearDown(self):
        """The round is as if nothing had come."""
        self.assert_works(self.job)
        self.assertEqual(len(self.push(self.frame())), 1)
        self.assertTrue(self.worker.commit().included)
        self.assert_tensors(self.worker.pull(1), [[1, 1], [2, 2, 2]])

    def test_truncated_frames(self):
        whole = self.frame()
        meta_end = whole.index(b"\x7a")
        for length in range(1, len(whole), 3):
            # Without payload the frame is well-formed, and lacks it.
            with self.subTest(length=length, meta_end=meta_end):
                self.assert_refused(whole[:length])

    def test_an_empty_message(self):
        self.assert_refused(b"")

    def test_wrong_order_and_repeats(self):
        meta = frames.blob(1, frames.meta(**self.fields))
        payload = frames.blob(15, self.payload)
        for message in (payload + meta, meta + meta + payload,
                        meta + payload + payload, payload, meta,
                        b"\0" + meta + payload, meta + payload + b"\0"):
            self.assert_refused(message)

    def test_unknown_fields_beside_meta(self):
        for extra in (frames.number(9, 1), frames.blob(9, b"x"),
                      b"\x4b\x4c", b"\xff" * 10):
            self.assert_refused(extra + self.frame())
            self.assert_refused(self.frame() + extra)

    def test_unknown_fields_in_meta_are_ignored(self):
        meta = frames.meta(**self.fields) + frames.blob(99, b"later") + (
            frames.number(98, 5))
        self.assertEqual(len(self.push(frames.frame(meta, self.payload))), 1)

    def test_bad_varints(self):
        for length in (b"\xff" * 10, b"\xff" * 9 + b"\x01", b"\x80" * 10,
                       b"\xff\xff\xff\xff\x0f"):
            self.assert_refused(b"\x0a" + length + self.frame()[2:])
            self.assert_refused(self.frame()[:-22] + b"\x7a" + length)

    def test_payload_sizes(self):
        for payload in (b"", self.payload[:-1], self.payload + b"\0",
                        self.payload[:8], self.payload * 2):
            self.assert_refused(self.frame(payload))
        self.assert_refused(self.frame(bytes(frames.MAX_PAYLOAD + 4)))

    def test_slices(self):
        for slices in ([1, 0], [0, 0], [0, 2], [2 ** 32 - 1, 1], [5], [0],
                       [2 ** 31], []):
            self.assert_refused(self.frame(slices=slices))

    def test_counts_of_checksums(self):
        for crcs in ([], [1], [1, 2, 3], [0] * 1000):
            self.assert_refused(self.frame(crcs=crcs))

    def test_huge_counts(self):
        many = list(range(200000))  # In one meta below 1 MiB.
        self.assert_refused(self.frame(slices=many))
        self.assert_refused(self.frame(absent=many))
        self.assert_refused(self.frame(crcs=many))
        self.assert_refused(self.frame(slices=[0] * 500000))

    def test_a_meta_over_1_mib(self):
        meta = frames.meta(**self.fields) + frames.blob(99, bytes(1 << 20))
        self.assert_refused(frames.frame(meta, self.payload))

    def test_absent_slices_of_tensors_that_are_not_optional(self):
        self.assert_refused(self.frame(
            self.payload[:8], slices=[0], crcs=self.fields["crcs"][:1],
            absent=[1]))
        self.assert_refused(self.frame(absent=[0]))

    def test_dtypes(self):
        for dtype in (0, 2, 3, 4, 2 ** 31, HUGE):
            self.assert_refused(self.frame(dtype=dtype))

    def test_epochs_sessions_and_rounds(self):
        self.assert_refused(self.frame(epoch=0), Code.ABORTED)
        self.assert_refused(self.frame(epoch=HUGE), Code.ABORTED)
        self.assert_refused(self.frame(session=0))
        # Not before any epoch either, nor by whom no session has been asked.
        self.assert_refused(self.frame(session=0, epoch=0))
        self.assert_refused(self.frame(session=HUGE), Code.NOT_FOUND)
        self.assert_refused(self.frame(round=1), Code.FAILED_PRECONDITION)
        self.assert_refused(self.frame(round=HUGE), Code.FAILED_PRECONDITION)

    def test_wrong_wire_types(self):
        meta = frames.meta(**self.fields)
        for extra in (b"\x0d\0\0\0\0", b"\x12\x01x", b"\x30\x01", b"\x3d\1\2"):
            # A parser takes a known field of another type for an unknown one.
            try:
                self.push(frames.frame(meta + extra, self.payload))
            except grpc.RpcError as error:
                self.assertEqual(error.code(), Code.INVALID_ARGUMENT)

    def test_noise(self):
        allowed = (Code.INVALID_ARGUMENT, Code.ABORTED, Code.NOT_FOUND,
                   Code.FAILED_PRECONDITION, Code.DATA_LOSS)
        generator = random.Random(1)
        whole = self.frame()
        for _ in range(150):
            message = bytearray(whole)
            # Not the payload: it must not land as another gradient.
            for _ in range(generator.randrange(1, 4)):
                message[generator.randrange(len(whole) - 22)] = (
                    generator.randrange(256))
            try:
                self.push(bytes(message))
            except grpc.RpcError as error:
                self.assertIn(error.code(), allowed, error.details())


class RequestsTest(ForeignTestCase):

    def test_absurd_manifests(self):
        job = self.start()
        for tensors in ({}, {"": [2]}, {"x" * 513: [2]}, {"a": [-1]},
                        {"a": [2 ** 63 - 1, 2 ** 63 - 1]}, {"a": [2 ** 62] * 8},
                        {"a": [1] * 9}, {"a": [2 ** 41]}):
            with self.subTest(str(tensors)[:40]):
                code, details = failure(Worker, job, 0, tensors)
                self.assertIn(code, (Code.INVALID_ARGUMENT,
                                     Code.FAILED_PRECONDITION), details)
        twice = agg.JoinRequest(protocol_version=1)
        for _ in range(2):
            twice.manifest.tensors.add(name="a", shape=[1])
        self.assert_fails(Code.INVALID_ARGUMENT, "a", job.peer(
            ).coordinator.Join, twice, timeout=WAIT)
        Worker(job, 0, {"a": [1] * 8})
        self.assert_works(job)

    def test_too_many_tensors(self):
        job = self.start()
        self.assert_fails(Code.INVALID_ARGUMENT, "100000", Worker, job, 0,
                          {str(i): [1] for i in range(100001)})

    def test_noise_instead_of_messages(self):
        job, (worker,) = self.seeded()
        peer = job.peer()
        generator = random.Random(2)
        for name in ("Join", "Observe", "Commit", "WaitRound", "Leave"):
            call = getattr(peer.coordinator, name)
            for _ in range(10):
                noise = generator.randbytes(generator.randrange(1, 60))
                try:
                    call(noise, timeout=0.2)
                except grpc.RpcError as error:
                    self.assertNotEqual(error.code(), Code.UNAVAILABLE)
        self.assert_works(job)

    def test_absurd_commits(self):
        job, (worker,) = self.seeded()
        worker.push(values(1))
        for fields in ({"examples": -1}, {"accumulation": -5},
                       {"loss_scale": -1.0},
                       {"loss_scale": float("nan")},
                       {"loss_scale": float("inf")}):
            with self.subTest(str(fields)):
                self.assert_fails(Code.INVALID_ARGUMENT, next(iter(fields)),
                                  worker.commit, **fields)
        self.assertTrue(worker.commit().included)

    def test_absurd_pulls(self):
        job, (worker,) = self.seeded()
        self.assert_fails(Code.ABORTED, "stale epoch", worker.pull, 0,
                          epoch=HUGE)
        self.assert_tensors(worker.pull(HUGE, latest=True), values(0))

    def test_renewals_of_another_session(self):
        job, workers = self.seeded(2)
        stream = workers[0].attend()
        stream.send(agg.LeaseRenewal(epoch=workers[0].epoch,
                                     session=workers[1].session))
        code, _ = failure(stream.rest)
        self.assertIn(code, (Code.INVALID_ARGUMENT, Code.NOT_FOUND,
                             Code.ABORTED))

    def test_a_stream_that_renews_nothing(self):
        job, (worker,) = self.seeded()
        stream = Stream(worker.coordinator.Attend)
        stream.half_close()
        try:
            self.assertEqual(stream.rest(), [])
        except grpc.RpcError as error:
            self.assertEqual(error.code(), Code.INVALID_ARGUMENT)
        self.assert_works(job)
        self.assertEqual(Reader(job).observe().reply.version, 0)
        round_of([worker], [values(1)])
