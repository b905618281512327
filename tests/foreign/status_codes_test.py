"""Each row of the table "Status codes" in proto/README.md, provoked.

Here what the state of a session, round or job brings about;
status_codes_input_test.py has what a request itself does.
"""

import numpy

import frames
from client import SEED, Stream, Worker, failure, round_of
from foreign_test_case import (REDUCE, TENSORS, WAITS, Code, ForeignTestCase,
                               values)
from server_process import WAIT, wait_until
from stubs import admin, agg, reduction


class AbortedTest(ForeignTestCase):

    def test_stale_epoch(self):
        _, (worker,) = self.seeded()
        epoch = worker.epoch
        worker.epoch -= 1
        text = f"stale epoch {epoch - 1}; current epoch {epoch}"
        for call in (lambda: worker.push(values(1)), worker.commit,
                     worker.leave, worker.pull, worker.attend,
                     lambda: worker.coordinator.WaitRound(
                         agg.WaitRequest(epoch=epoch - 1), timeout=WAIT)):
            self.assert_fails(Code.ABORTED, text, call)

    def assert_session_over(self, worker, text):
        self.assert_fails(Code.ABORTED, text, worker.commit)
        self.assert_fails(Code.ABORTED, text, worker.push, values(1))
        self.assert_fails(Code.ABORTED, text, worker.attend)

    def test_superseded(self):
        job, (worker,) = self.seeded()
        Worker(job, 0, TENSORS)
        self.assert_session_over(worker, "supersede|took|taken|another")

    def test_evicted(self):
        job, (worker,) = self.seeded()
        job.peer().admin.EvictWorker(admin.EvictWorkerRequest(
            rank=0, reason="too slow"), timeout=WAIT)
        self.assert_session_over(worker, "evicted: too slow")

    def test_left(self):
        _, workers = self.seeded(2)
        workers[0].leave()
        self.assert_fails(Code.ABORTED, "left", workers[0].commit)
        self.assert_fails(Code.ABORTED, "left", workers[0].attend)

    def test_version_replaced_while_it_is_pulled(self):
        size = 12 << 20
        job, (worker,) = self.seeded(tensors={"big": [size]})
        # One that reads nothing; what its connection may hold is far less.
        call = worker.pull_frames(0, 0)
        next(call)
        gradient = [numpy.zeros(size, numpy.float32)]
        for round in range(3):  # Three snapshots may be in use.
            round_of([worker], [gradient], round)
        code, details = failure(lambda: list(call))
        self.assertEqual(code, Code.ABORTED, details)
        self.assertIn("version 0 was replaced while it was being pulled",
                      details)


class NotFoundTest(ForeignTestCase):

    def test_the_lease_has_run_out(self):
        job = self.start("workers: 1 lease_seconds: 0.3\n" + REDUCE)
        worker = Worker(job, 0, TENSORS)
        wait_until(lambda: not self.status(job).workers, "it is lost")
        for call in (worker.commit, worker.attend, worker.leave):
            self.assert_fails(Code.NOT_FOUND, "Join again", call)
        self.assert_fails(Code.NOT_FOUND, "lease", worker.push_to, 0,
                          values(0), kind=SEED)
        Worker(job, 0, TENSORS)  # Join again.

    def test_a_session_that_never_was(self):
        job, (worker,) = self.seeded()
        worker.session ^= 1
        self.assert_fails(Code.NOT_FOUND, "session", worker.commit)
        self.assert_fails(Code.NOT_FOUND, "session", worker.push, values(1))


class FailedPreconditionTest(ForeignTestCase):

    def test_not_the_coordinator(self):
        job = self.start(num_shards=2)
        other = job.peer(1)
        for call, request in (
                (other.coordinator.Join, agg.JoinRequest(protocol_version=1)),
                (other.coordinator.Observe, agg.ObserveRequest()),
                (other.coordinator.Commit, agg.CommitRequest()),
                (other.coordinator.WaitRound, agg.WaitRequest()),
                (other.coordinator.Leave, agg.LeaveRequest()),
                (other.coordinator.GetStatus, agg.StatusRequest()),
                (other.reductions.Reduce, reduction.ReduceRequest()),
                (other.admin.ListTensors, admin.ListTensorsRequest())):
            self.assert_fails(Code.FAILED_PRECONDITION, r"127\.0\.0\.1:\d+",
                              call, request, timeout=WAIT)
        self.assert_fails(Code.FAILED_PRECONDITION, r"127\.0\.0\.1:\d+",
                          other.coordinator.Attend, iter(()), timeout=WAIT)

    def test_a_round_to_come(self):
        _, (worker,) = self.seeded()
        round_of([worker], [values(1)])
        for call in (lambda: worker.commit(2),
                     lambda: worker.push(values(1), 2)):
            self.assert_fails(Code.FAILED_PRECONDITION, r"\b1\b", call)

    def test_no_version_yet(self):
        job = self.start()
        worker = Worker(job, 0, TENSORS)
        for call in (lambda: worker.push(values(1)), worker.commit):
            self.assert_fails(Code.FAILED_PRECONDITION, "seed|version", call)

    def test_a_commit_of_what_was_not_pushed(self):
        _, (worker,) = self.seeded(num_shards=2)
        self.assert_fails(Code.FAILED_PRECONDITION, "push", worker.commit)
        worker.push_to(1, values(1))
        self.assert_fails(Code.FAILED_PRECONDITION, "push", worker.commit)
        worker.push(values(1))
        self.assertTrue(worker.commit().included)

    def test_the_job_has_finished(self):
        job, (worker,) = self.seeded(1, REDUCE + "max_rounds: 1")
        round_of([worker], [values(1)])
        for call in (lambda: Worker(job, 0, TENSORS),
                     lambda: worker.commit(1)):
            self.assert_fails(Code.FAILED_PRECONDITION, "finished", call)

    def test_a_memory_budget_that_is_too_small(self):
        job = self.start("workers: 1 memory_budget_bytes: 20000000\n" + REDUCE)
        self.assert_fails(Code.FAILED_PRECONDITION, "memory_budget_bytes",
                          Worker, job, 0, {"big": [1 << 24]})


class OutOfRangeTest(ForeignTestCase):

    def test_a_version_that_is_gone(self):
        _, (worker,) = self.seeded()
        for round in range(2):
            round_of([worker], [values(1)], round)
        self.assert_fails(Code.OUT_OF_RANGE, r"\b2\b", worker.pull, 0)


class UnavailableTest(ForeignTestCase):

    def test_a_lost_shard_is_named(self):
        job, workers = self.seeded(2, num_shards=2)
        workers[0].push(values(1))
        pending = workers[0].commit_later()
        job.shards[1].kill()
        self.assert_fails(Code.UNAVAILABLE, job.addresses[1], pending.result)
        self.assert_fails(Code.UNAVAILABLE, job.addresses[1],
                          workers[1].commit)
        self.assert_fails(Code.UNAVAILABLE, job.addresses[1], list,
                          workers[0].pull_frames(0, 0))

    def test_not_attached_yet(self):
        job = self.start(num_shards=2, first_shard=1)
        pull = job.peer(1).shard.Pull(agg.PullRequest(
            latest=True, dtype=frames.F32), timeout=WAIT)
        self.assert_fails(Code.UNAVAILABLE, WAITS, lambda: pull)
        push = Stream(job.peer(1).shard.Push)
        push.send(frames.frame(frames.meta(epoch=1, session=1)))
        self.assert_fails(Code.UNAVAILABLE, WAITS, push.rest)

    def test_a_coordinator_without_all_shards(self):
        job = self.start(num_shards=2, first_shard=2)
        job.start(0)
        self.assert_fails(Code.UNAVAILABLE, "shard", Worker, job, 0, TENSORS)

    def test_shutting_down(self):
        job, workers = self.seeded(2)
        waiting = workers[0].pull_frames(0, 1)
        workers[0].push(values(1))
        pending = self.commit_first(job, workers[0])
        job.peer().admin.Drain(admin.DrainRequest(), timeout=WAIT)
        self.assert_fails(Code.UNAVAILABLE, "shutting down", pending.result)
        self.assert_fails(Code.UNAVAILABLE, "shutting down", lambda: waiting)
