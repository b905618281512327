"""Rows of the table "Status codes" that a request's own contents bring about.

status_codes_test.py has the others.
"""

import frames
from client import SEED, Worker, round_of
from foreign_test_case import REDUCE, TENSORS, Code, ForeignTestCase, values
from server_process import WAIT, wait_until
from stubs import agg


class InvalidArgumentTest(ForeignTestCase):

    def test_protocol_version(self):
        job = self.start()
        for version in (0, 2, 2 ** 32 - 1):
            details = self.assert_fails(
                Code.INVALID_ARGUMENT, r"\b1\b", Worker, job, 0, TENSORS,
                protocol_version=version)
            self.assertIn(str(version), details)
        Worker(job, 0, TENSORS)
        self.assert_fails(
            Code.INVALID_ARGUMENT, r"\b2\b", job.peer().coordinator.Observe,
            agg.ObserveRequest(protocol_version=2), timeout=WAIT)

    def test_another_manifest(self):
        job = self.start("workers: 2\n" + REDUCE)
        Worker(job, 0, TENSORS)
        for tensors, name in (({"a": [2], "b": [4]}, "b"),
                              ({"a": [2]}, "b"),
                              ({"b": [3], "a": [2]}, "a|b"),
                              ({"a": [2], "b": ([3], True)}, "b")):
            self.assert_fails(Code.INVALID_ARGUMENT, name, Worker, job, 1,
                              tensors)

    def test_ranks(self):
        job = self.start()
        for rank in (-1, 1, 2 ** 31 - 1, -2 ** 31):
            self.assert_fails(Code.INVALID_ARGUMENT, str(rank), Worker, job,
                              rank, TENSORS)

    def test_malformed_frames(self):
        _, (worker,) = self.seeded()
        stream = worker.open_push()
        stream.send(b"\x0a\x05")
        self.assert_fails(Code.INVALID_ARGUMENT, "^.", stream.rest)

    def test_unknown_field_values(self):
        _, (worker,) = self.seeded()
        for field in ({"kind": 7}, {"dtype": 9}):
            stream = worker.open_push()
            stream.send(worker.frame_of(
                [0, 1], values(1), **field) if "kind" in field else
                frames.frame(frames.meta(
                    worker.epoch, worker.session, 0, 0, 9, [0, 1], [0, 0]),
                    b"\0" * 20))
            self.assert_fails(Code.INVALID_ARGUMENT, "^.", stream.rest)
        self.assert_fails(Code.INVALID_ARGUMENT, "^.", worker.commit, kind=7)
        for dtype in (0, 7, frames.F16):
            self.assert_fails(Code.INVALID_ARGUMENT, "^.", list,
                              worker.pull_frames(0, 0, dtype))


class OthersTest(ForeignTestCase):

    def test_already_exists(self):
        _, workers = self.seeded(2)
        for worker in workers:
            self.assert_fails(Code.ALREADY_EXISTS, "[Ss]eed", worker.push_to, 0,
                              values(1), kind=SEED)
        self.assert_fails(Code.ALREADY_EXISTS, "[Ss]eed", workers[1].commit,
                          kind=SEED)

    def test_a_seed_from_another_than_the_seed_role(self):
        job = self.start("workers: 2\n" + REDUCE)
        first, second = (Worker(job, rank, TENSORS) for rank in range(2))
        self.assert_fails(Code.ALREADY_EXISTS, "[Ss]eed", second.seed,
                          values(1))
        first.seed(values(0))
        self.assert_tensors(second.pull(0), values(0))

    def test_data_loss(self):
        _, (worker,) = self.seeded()
        stream = worker.open_push()
        stream.send(worker.frame_of([0], values(3)))
        stream.send(worker.frame_of([1], values(4), crcs=[1]))
        self.assert_fails(Code.DATA_LOSS, "slice 1", stream.rest)
        worker.push(values(3))
        self.assertTrue(worker.commit().included)
        self.assert_tensors(worker.pull(1), values(3))

    def test_a_message_over_8_mib(self):
        job, (worker,) = self.seeded()
        stream = worker.open_push()
        stream.send(b"\0" * ((8 << 20) + 1))
        self.assert_fails(Code.RESOURCE_EXHAUSTED, "8388608", stream.rest)
        self.assert_works(job)

    def test_acknowledgements_that_are_not_read(self):
        job, (worker,) = self.seeded()
        frame = worker.frame_of([0, 1], values(1))
        # A small window, or gRPC itself takes what the client does not read.
        worker.peers[0] = job.peer(options=[
            ("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)])
        stream = worker.open_push()
        for _ in range(10000):
            stream.send(frame)
        wait_until(stream.all_sent, "the server takes no more or all of it")
        self.assert_fails(Code.RESOURCE_EXHAUSTED, "not being read",
                          stream.rest)
        self.assert_works(job)

    def test_a_join_without_memory(self):
        job = self.start(address_space=1 << 30)
        self.assert_fails(Code.RESOURCE_EXHAUSTED, "needs .* MiB", Worker, job,
                          0, {"big": [1 << 27]})
        Worker(job, 0, TENSORS)

    def test_the_clients_own_limits(self):
        job, (worker,) = self.seeded()
        self.assert_fails(Code.DEADLINE_EXCEEDED, "^.", list,
                          worker.pull_frames(0, 1, timeout=0.1))
        wait = worker.coordinator.WaitRound.future(
            agg.WaitRequest(round=0), timeout=WAIT)
        wait.cancel()
        self.assertEqual(wait.code(), Code.CANCELLED)
        # They did no harm.
        round_of([worker], [values(1)])
        self.assert_tensors(worker.pull(1), values(1))

    def test_internal(self):
        self.skipTest("a failure of the computation cannot be provoked by a "
                      "client or a configuration")
