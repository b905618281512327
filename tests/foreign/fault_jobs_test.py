"""Faults of pulls, epochs and the job's end that other clients met.

A marked test fails today; who removes the fault removes the mark.
"""

import re

import grpc
import numpy

from client import Reader, Worker, failure, round_of
from foreign_test_case import (REDUCE, TENSORS, Code, ForeignTestCase,
                               values)
from relay import Relay
from server_process import WAIT, wait_until
from stubs import ROOT, agg

# Longer than any test waits for an answer that is due at once.
SHORT = 3
REFUSED = (Code.FAILED_PRECONDITION, Code.OUT_OF_RANGE)


class NeverTest(ForeignTestCase):
    """Every wait ends when the job does; absurd ones do not begin."""

    def finished(self):
        job, (worker,) = self.seeded(1, REDUCE + "max_rounds: 1")
        self.assertTrue(round_of([worker], [values(1)])[0].finished)
        return job, worker

    def assert_refused(self, call, *args, **kwargs):
        try:
            result = call(*args, **kwargs)
            if hasattr(result, "__iter__"):
                list(result)
        except grpc.RpcError as error:
            self.assertIn(error.code(), REFUSED, error.details())
            return
        self.fail("it succeeded")

    def test_a_pull_after_the_end(self):
        job, _ = self.finished()
        reader = Reader(job).observe()
        self.assertTrue(reader.reply.finished)
        self.assert_refused(reader.pull_frames, 0, 2, timeout=SHORT)

    def test_a_pull_that_waits_while_the_job_ends(self):
        job, (worker,) = self.seeded()
        reader = Reader(job).observe()
        waiting = reader.pull_frames(0, 1, timeout=SHORT)
        worker.leave()
        self.assert_refused(lambda: waiting)

    def test_a_pull_far_above_the_version(self):
        _, (worker,) = self.seeded()
        self.assert_refused(worker.pull_frames, 0, 7, timeout=SHORT)

    def test_wait_round_after_the_end(self):
        _, worker = self.finished()
        self.assert_refused(worker.coordinator.WaitRound,
                            agg.WaitRequest(round=1), timeout=SHORT)

    def test_wait_round_while_the_job_ends(self):
        _, (worker,) = self.seeded()
        waiting = worker.coordinator.WaitRound.future(
            agg.WaitRequest(round=0), timeout=SHORT)
        worker.leave()
        self.assert_refused(waiting.result)

    def test_a_push_after_the_end(self):
        _, worker = self.finished()
        self.assert_refused(worker.push, values(1), 1)


class SecondShard0Test(ForeignTestCase):
    """The same configuration started twice: the first job goes on."""

    def test_the_first_job_goes_on(self):
        job, (worker,) = self.seeded(num_shards=2)
        self.start_second(job)
        self.assertEqual(self.status(job).epoch, worker.epoch)
        for round in range(3):
            self.assertTrue(round_of([worker], [values(1)], round)[0].included)
        self.assert_tensors(worker.pull(3), values(1))

    def test_the_second_one_is_no_coordinator(self):
        job, _ = self.seeded(num_shards=2)
        second, status = self.start_second(job)
        if second.alive():
            self.assertEqual(status.phase, "waiting_for_shards")

    def start_second(self, job):
        """(process, status), once it has ended, says for what it waits, or
        has taken the shards."""
        second = job.start_beside(0)
        coordinator = job.connect(second.address).coordinator

        def settled():
            if not second.alive():
                return (second, None)
            status = coordinator.GetStatus(agg.StatusRequest(), timeout=5)
            # "Waiting for all shards" is what it says before it has asked.
            waits = status.phase == "waiting_for_shards" and not re.search(
                "another|already|claim|standby|taken", status.message)
            return not waits and (second, status)
        return wait_until(settled, "the second one says what it does")


class FrozenShardTest(ForeignTestCase):

    def test_time_that_shard_0_was_frozen_counts_for_no_lease(self):
        """A worker of 3 s lease; shard 0 is frozen for 4 s."""
        job = self.start("workers: 1 lease_seconds: 3\n" + REDUCE)
        stream = Worker(job, 0, TENSORS).attend()
        job.shards[0].freeze()
        code, _ = failure(job.peer().coordinator.GetStatus,
                          agg.StatusRequest(), timeout=4)
        self.assertEqual(code, Code.DEADLINE_EXCEEDED)
        job.shards[0].thaw()
        try:
            wait_until(lambda: not self.status(job).workers, "lost", 0.7)
        except AssertionError:
            stream.half_close()
            return
        self.fail("its time counted")


    def test_a_shard_that_answers_no_phase_is_named(self):
        """Its connection stays: keepalive would take 15 s to notice."""
        job, (worker,) = self.seeded(
            1, "phase_timeout_seconds: 1\n" + REDUCE, num_shards=2)
        worker.push(values(1), 0)
        job.shards[1].freeze()
        code, details = failure(worker.coordinator.Commit,
                                worker.commit_request(0), timeout=WAIT)
        self.assertEqual(code, Code.UNAVAILABLE)
        self.assertRegex(details, r"shard 1 \(127\.0\.0\.1:\d+\) has not "
                         r"answered phase close of round 0 within 1s")
        self.assertIn("has not answered phase close", job.shards[0].log())
        job.shards[1].thaw()
        # Another epoch, and the job goes on where it was: no memory is lost.
        wait_until(lambda: self.status(job).phase == "open", "goes on")
        again = Worker(job, 0, TENSORS)
        self.assertNotEqual(again.epoch, worker.epoch)
        self.assertEqual(again.reply.version, 0)
        self.assertTrue(round_of([again], [values(1)])[0].included)


class BrokenConnectionTest(ForeignTestCase):

    def test_the_same_epoch_goes_on(self):
        job = self.start("workers: 1\n" + REDUCE, 2, first_shard=1)
        relay = Relay(job.addresses[1])
        self.addCleanup(relay.close)
        direct, job.addresses[1] = job.addresses[1], relay.address
        job.start(0)  # It reaches shard 1 by the relay only.
        job.await_attached()
        job.addresses[1] = direct
        worker = Worker(job, 0, TENSORS)
        worker.seed(values(0))
        stream = worker.attend()
        relay.cut()
        # Attended in the same epoch, or told of the loss.
        wait_until(lambda: relay.num_connections > 1 or
                   self.status(job).phase == "shard_lost", "it notices")
        stream.send(agg.LeaseRenewal(epoch=worker.epoch,
                                     session=worker.session))
        event = stream.receive()
        self.assertEqual(event.kind, event.RENEWED, event.message)
        self.assertTrue(round_of([worker], [values(1)])[0].included)
        self.assertEqual(self.status(job).epoch, worker.epoch)


class FrozenPullerTest(ForeignTestCase):

    def test_rounds_go_on(self):
        """Two pulls of each version that nobody reads; rounds of 48 MB."""
        size = 12 << 20
        job, (worker,) = self.seeded(tensors={"big": [size]})
        gradient = [numpy.ones(size, numpy.float32)]
        frozen = []
        for round in range(4):
            for _ in range(2):
                reader = Reader(job).observe()
                frozen.append(reader.pull_frames(0, round))
                next(frozen[-1])
            worker.push(gradient, round)
            # A bound that no stalled round keeps.
            outcome = worker.coordinator.Commit(
                worker.commit_request(round), timeout=10)
            self.assertTrue(outcome.included)


class DocumentTest(ForeignTestCase):
    """Where proto/README.md and the servers differ."""

    def test_the_receive_limit_is_documented(self):
        text = (ROOT / "proto" / "README.md").read_text(encoding="utf-8")
        self.assertRegex(text, r"receive (message )?limit|max_receive_message")

    def test_a_push_of_a_session_that_has_left(self):
        _, workers = self.seeded(2)
        workers[0].leave()
        self.assert_fails(Code.ABORTED, "left", workers[0].push, values(1))

    def test_a_pull_of_epoch_0(self):
        _, (worker,) = self.seeded()
        self.assert_tensors(worker.pull(0, epoch=0), values(0))

    def test_a_negative_sum_of_squared_norms(self):
        _, (worker,) = self.seeded()
        worker.push(values(1))
        self.assert_fails(Code.INVALID_ARGUMENT, "micro_norm_squared_sum",
                          worker.commit, micro_norm_squared_sum=-1.0)
