"""Clients that vanish, stop half-way or speak something else."""

import random
import socket

import numpy

import frames
from client import Reader, failure, round_of
from foreign_test_case import REDUCE, Code, ForeignTestCase, values
from server_process import WAIT
from stubs import agg

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class ConnectionsTest(ForeignTestCase):

    def setUp(self):
        self.job, self.workers = self.seeded(2)

    def tearDown(self):
        self.assert_works(self.job)
        round_of(self.workers, [values(1), values(2)])
        self.assert_tensors(self.workers[0].pull(1), values(3))

    def connect(self):
        host, port = self.job.addresses[0].split(":")
        connection = socket.create_connection((host, int(port)), WAIT)
        self.addCleanup(connection.close)
        return connection

    def test_other_protocols(self):
        generator = random.Random(3)
        for text in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + bytes(99),
                     generator.randbytes(5000), PREFACE[:10],
                     PREFACE + generator.randbytes(5000),
                     PREFACE + b"\xff\xff\xff\x04\0\0\0\0\0",
                     PREFACE + b"\0\0\0\x04\0\0\0\0\0" + b"\0\0\x04\x01"
                     b"\x04\0\0\0\x01abcd"):
            connection = self.connect()
            connection.sendall(text)
            connection.close()

    def test_what_a_stream_may_send_ahead_is_what_the_memory_plan_counts(self):
        connection = self.connect()
        connection.sendall(PREFACE + b"\0\0\0\x04\0\0\0\0\0")
        received = connection.makefile("rb")
        header = received.read(9)
        self.assertEqual(header[3], 4)  # RFC 9113 6.5: SETTINGS
        settings = received.read(int.from_bytes(header[:3], "big"))
        windows = [int.from_bytes(settings[i + 2:i + 6], "big")
                   for i in range(0, len(settings), 6)
                   if settings[i:i + 2] == b"\0\x04"]
        self.assertEqual(windows, [8 << 20])

    def test_connections_that_say_nothing(self):
        for _ in range(50):
            self.connect()

    def test_streams_that_stop_half_way(self):
        whole = self.workers[0].frame_of([0, 1], values(1))
        for cut in (1, 10, len(whole) - 1):
            stream = self.workers[0].open_push()
            stream.send(whole[:cut])
            stream.cancel()
        half = self.workers[0].open_push()
        half.send(self.workers[0].frame_of([0], values(1)))
        half.half_close()
        self.assertEqual(half.rest(), [])
        self.assertEqual(half.code(), Code.OK)

    def test_channels_that_vanish_in_the_midst(self):
        for _ in range(5):
            peer = self.job.peer()
            reader = Reader(self.job).observe()
            reader.peers[0] = peer
            waiting = reader.pull_frames(0, 1)
            pending = peer.coordinator.WaitRound.future(
                agg.WaitRequest(round=0), timeout=WAIT)
            commit = peer.coordinator.Commit.future(
                self.workers[0].commit_request(), timeout=WAIT)
            peer.close()
            for call in (waiting, pending, commit):
                self.assertIn(call.code(), (Code.CANCELLED,
                                            Code.FAILED_PRECONDITION))

    def test_a_worker_that_vanishes(self):
        job, workers = self.seeded(2, REDUCE + "reconnect_grace_seconds: 0.2")
        round_of(workers, [values(1), values(1)])
        peer = job.peer()
        workers[1].coordinator = peer.coordinator
        workers[1].attend()
        workers[1].push(values(9), 1)
        peer.close()
        workers[0].push(values(1), 1)
        self.assertEqual(list(workers[0].commit(1).ranks), [0])

    def test_many_messages_over_the_limit(self):
        for _ in range(3):
            stream = self.workers[0].open_push()
            stream.send(bytes((8 << 20) + 1))
            self.assert_fails(Code.RESOURCE_EXHAUSTED, "^.", stream.rest)
        code, _ = failure(self.workers[0].coordinator.GetStatus,
                          bytes((8 << 20) + 1), timeout=WAIT)
        self.assertEqual(code, Code.RESOURCE_EXHAUSTED)

    def test_many_waiting_pulls(self):
        reader = Reader(self.job).observe()
        calls = [reader.pull_frames(0, 1) for _ in range(300)]
        for call in calls[::2]:
            call.cancel()
        round_of(self.workers, [values(1), values(2)])
        for call in calls[1::2]:
            self.assertEqual(len(list(call)), 1)
        self.workers[0].commit()
        # tearDown repeats round 0: that is harmless.


class ReceiveLimitTest(ForeignTestCase):

    def test_grpcs_default_is_too_small_for_a_full_slice(self):
        tensors = {"big": [frames.SLICE_ELEMENTS]}
        job, (worker,) = self.seeded(tensors=tensors)
        worker.peers[0] = job.peer(
            options=[("grpc.max_receive_message_length", 4 << 20)])
        self.assert_fails(Code.RESOURCE_EXHAUSTED, "4194304", worker.pull, 0)
        gradient = [numpy.ones(frames.SLICE_ELEMENTS, numpy.float32)]
        self.assertTrue(round_of([worker], [gradient])[0].included)
