"""Numbers beside the model (P51), by the text and the proto file alone."""

import random

import grpc

from client import Worker
from foreign_test_case import REDUCE, TENSORS, Code, ForeignTestCase
from server_process import WAIT, wait_until
from stubs import reduction


class ReductionTest(ForeignTestCase):

    def request(self, worker, *given, number=1, **fields):
        fields = {"epoch": worker.epoch, "session": worker.session,
                  "giver": 100 + worker.rank, "call": number,
                  "what": "the sum of x", "values": given, **fields}
        return reduction.ReduceRequest(**fields)

    def begin(self, worker, *given, **fields):
        """Keep it: gRPC cancels a call whose future is dropped."""
        return worker.peers[0].reductions.Reduce.future(
            self.request(worker, *given, **fields), timeout=WAIT)

    def ask(self, worker, *given, **fields):
        return self.begin(worker, *given, **fields).result()

    def withdraw(self, worker, number=1):
        return self.ask(worker, number=number, what="", withdraw=True)

    def test_all_get_the_sums_and_whose_they_are(self):
        _, workers = self.seeded(3)
        # 1 + 2^53 - 2^53 is 0 in the order of ranks alone.
        given = [(1.0, 10), (2.0**53, 20), (-2.0**53, 30)]
        calls = [self.begin(workers[rank], *given[rank]) for rank in (2, 0, 1)]
        for reply in [call.result() for call in calls]:
            self.assertEqual(list(reply.sums), [0, 60])
            self.assertEqual(list(reply.ranks), [0, 1, 2])
            self.assertFalse(reply.waiting_for or reply.left_out
                             or reply.withdrawn)
        # Who asks again gets the same, beside the next one, too.
        later = self.begin(workers[1], 5, number=2)
        self.assertEqual(list(self.ask(workers[0], 7, 7).sums), [0, 60])
        calls = [self.begin(workers[rank], 5, number=2) for rank in (0, 2)]
        for reply in [call.result() for call in (later, *calls)]:
            self.assertEqual(list(reply.sums), [15])

    def test_who_waits_hears_for_whom(self):
        _, workers = self.seeded(2)
        self.assertEqual(list(self.ask(workers[1], 1).waiting_for), [0])
        # It has to ask again, and its values stay meanwhile.
        self.assertEqual(list(self.ask(workers[0], 2).sums), [3])
        self.assertEqual(list(self.ask(workers[1], 1).sums), [3])

    def test_who_gives_up_does_not_count(self):
        _, workers = self.seeded(3)
        call = self.begin(workers[0], 100)
        call.cancel()
        wait_until(lambda: list(self.ask(workers[1], 2).waiting_for) == [0, 2],
                   "a cancelled call is withdrawn")
        self.assertTrue(self.withdraw(workers[0]).withdrawn)
        self.assert_fails(Code.CANCELLED, "withdrawn", self.ask, workers[0],
                          100)
        calls = [self.begin(workers[0], 1, number=2), self.begin(workers[1], 2),
                 self.begin(workers[2], 4)]
        for reply in [call.result() for call in calls]:
            self.assertEqual(list(reply.sums), [7])
        # It was made.
        self.assertEqual(list(self.withdraw(workers[0], 2).sums), [7])

    def test_what_differs_is_refused_and_named(self):
        _, workers = self.seeded(2)
        self.assertEqual(list(self.ask(workers[0], 1).waiting_for), [1])
        self.assert_fails(Code.INVALID_ARGUMENT,
                          "rank 1 reduces the mean of y .*rank 0 waits for "
                          "the sum of x", self.ask, workers[1], 2, number=2,
                          what="the mean of y")
        reply = self.ask(workers[0], 1)
        self.assertEqual(list(reply.waiting_for), [1])
        self.assertIn("rank 1 has asked for the mean of y", reply.note)
        self.assertEqual(list(self.ask(workers[1], 2, number=3).sums), [3])

    def test_bounds(self):
        job, (worker,) = self.seeded()
        self.assertEqual(len(self.ask(worker, *[1.0] * 8192).sums), 8192)
        for fields, given, said in (
                ({}, [1.0] * 8193, "values is 8193"), ({}, [], "values is 0"),
                ({"what": "x" * 4097}, [1], "what is 4097 bytes"),
                ({"what": ""}, [1], "what is 0 bytes"),
                ({"giver": 0}, [1], "giver is 0"),
                ({"number": 0}, [1], "call is 0")):
            fields = {"number": 2, **fields}
            self.assert_fails(Code.INVALID_ARGUMENT, said, self.ask, worker,
                              *given, **fields)
        self.assert_fails(Code.NOT_FOUND, "not known", self.ask, worker, 1,
                          session=worker.session ^ 1)
        self.assert_fails(Code.ABORTED, "stale epoch", self.ask, worker, 1,
                          epoch=worker.epoch - 1)
        self.assert_works(job)

    def test_before_the_seed(self):
        job = self.start("workers: 1\n" + REDUCE)
        self.assert_fails(Code.FAILED_PRECONDITION, "no parameters yet",
                          self.ask, Worker(job, 0, TENSORS), 1)

    def test_many_calls_of_one_worker_leave_one(self):
        job, workers = self.seeded(2)
        calls = [self.begin(workers[0], 1, number=number)
                 for number in range(1, 501)]
        wait_until(lambda: sum(call.done() for call in calls) >= 499,
                   "all but one are over")
        codes = {call.code() for call in calls[:-1] if call.done()}
        self.assertLessEqual(codes, {Code.CANCELLED, Code.OK})
        self.assertEqual(list(self.ask(workers[1], 2).sums), [3])
        self.assert_works(job)

    def test_noise_instead_of_messages(self):
        job, (worker,) = self.seeded()
        generator = random.Random(3)
        for _ in range(20):
            noise = generator.randbytes(generator.randrange(1, 60))
            try:
                worker.peers[0].reductions.Reduce(noise, timeout=0.2)
            except grpc.RpcError as error:
                self.assertNotEqual(error.code(), Code.UNAVAILABLE)
        self.assertEqual(list(self.ask(worker, 1).sums), [1])
        self.assert_works(job)

    def test_one_that_has_left_is_not_waited_for(self):
        job, workers = self.seeded(2)
        first = self.begin(workers[0], 1)
        workers[1].leave()
        self.assertEqual(list(first.result().ranks), [0])
        self.assert_fails(Code.ABORTED, "left", self.ask, workers[1], 1)
        self.assertEqual(self.status(job).version, 0)

    def test_a_finished_job_reduces(self):
        job, (worker,) = self.seeded(1, REDUCE + "max_rounds: 1")
        worker.push([[1, 1], [1, 1, 1]])
        worker.commit()
        wait_until(lambda: self.status(job).phase == "finished", "finished")
        self.assertEqual(list(self.ask(worker, 4).sums), [4])
