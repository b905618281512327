"""The calls of Coordinator, and the rules about members."""

from client import Reader, Worker, round_of
from foreign_test_case import REDUCE, TENSORS, Code, ForeignTestCase, values
from server_process import WAIT, wait_until
from stubs import agg

Event = agg.JobEvent


class JoinTest(ForeignTestCase):

    def test_the_reply_describes_the_job(self):
        job = self.start('job: "j" workers: 2 lease_seconds: 9\n' + REDUCE, 2)
        reply = Worker(job, 1, TENSORS, client="test").reply
        self.assertNotEqual(reply.session, 0)
        self.assertEqual(
            (reply.job, reply.workers, reply.lease_ms, reply.rule),
            ("j", 2, 9000, "sum"))
        self.assertEqual(list(reply.shards), job.addresses)
        self.assertEqual([t.name for t in reply.manifest.tensors], ["a", "b"])
        self.assertTrue(reply.seed_role)
        self.assertFalse(reply.seeded or reply.finished or reply.committed)
        self.assertFalse(Worker(job, 0, TENSORS).reply.seed_role)

    def test_one_that_joins_late_takes_part_in_the_next_round(self):
        job, (first,) = self.seeded(1, REDUCE + "max_workers: 2")
        late = Worker(job, 1, TENSORS)
        self.assertEqual(late.reply.first_round, 1)
        self.assertTrue(late.reply.seeded)
        self.assertEqual(list(round_of([first], [values(1)])[0].ranks), [0])
        outcome = round_of([first, late], [values(1), values(2)], 1)[0]
        self.assertEqual(list(outcome.ranks), [0, 1])

    def test_round_0_waits_for_all_expected(self):
        job = self.start("workers: 2\n" + REDUCE)
        first = Worker(job, 0, TENSORS)
        first.seed(values(0))
        first.push(values(1))
        pending = self.commit_first(job, first)
        self.assertFalse(pending.done())
        second = Worker(job, 1, TENSORS)
        second.push(values(2))
        second.commit()
        self.assertEqual(list(pending.result().ranks), [0, 1])

    def test_start_timeout_begins_with_min_workers(self):
        job = self.start("workers: 3 min_workers: 1\n"
                         "start_timeout_seconds: 0.3\n" + REDUCE)
        worker = Worker(job, 2, TENSORS)
        worker.seed(values(0))
        worker.push(values(1))
        self.assertEqual(list(worker.commit().ranks), [2])

    def test_a_new_session_drops_what_was_not_committed(self):
        job, (old, other) = self.seeded(2)
        old.push(values(100))
        new = Worker(job, 0, TENSORS)
        self.assertFalse(new.reply.committed)
        round_of([new, other], [values(1), values(2)])
        self.assert_tensors(new.pull(1), values(3))

    def test_a_new_session_keeps_what_was_committed(self):
        job, (old, other) = self.seeded(2)
        old.push(values(100))
        pending = self.commit_first(job, old)
        new = Worker(job, 0, TENSORS)
        self.assertTrue(new.reply.committed)
        other.push(values(1))
        self.assertEqual(list(other.commit().ranks), [0, 1])
        self.assertTrue(pending.done())
        self.assert_tensors(new.pull(1), values(101))

    def test_observers_describe_and_pull(self):
        job, (worker,) = self.seeded()
        reader = Reader(job).observe()
        self.assertEqual(reader.reply.session, 0)
        self.assertFalse(reader.reply.seed_role)
        self.assert_tensors(reader.pull(0), values(0))
        round_of([worker], [values(4)])
        self.assert_tensors(reader.pull(latest=True), values(4))
        self.assertEqual(Reader(job).observe().reply.version, 1)

    def test_an_observer_before_the_first_worker(self):
        self.assert_fails(Code.FAILED_PRECONDITION, "no worker has joined",
                          Reader(self.start()).observe)


class RoundTest(ForeignTestCase):

    def test_outcomes(self):
        job, (worker,) = self.seeded()
        worker.push(values(1))
        outcome = worker.commit(examples=4, loss=2.5)
        self.assertEqual(
            (outcome.kind, outcome.round, outcome.version, outcome.included,
             outcome.loss, outcome.epoch, outcome.combination.rule),
            (agg.RoundOutcome.APPLIED, 0, 1, True, 2.5, worker.epoch, "sum"))
        self.assertEqual(worker.commit(), outcome)  # May be repeated.

    def test_wait_round(self):
        job, (worker,) = self.seeded()
        waiting = worker.coordinator.WaitRound.future(
            agg.WaitRequest(round=0), timeout=WAIT)
        round_of([worker], [values(1)])
        self.assertFalse(waiting.result().included)  # It names no session.
        self.assertEqual(waiting.result().version, 1)
        outcome = worker.coordinator.WaitRound(agg.WaitRequest(
            round=0, epoch=worker.epoch, session=worker.session), timeout=WAIT)
        self.assertTrue(outcome.included)

    def test_the_last_16_outcomes_are_kept(self):
        job, (worker,) = self.seeded()
        for round in range(17):
            round_of([worker], [values(round)], round)
        wait = worker.coordinator.WaitRound
        self.assertEqual(wait(agg.WaitRequest(round=1), timeout=WAIT).round, 1)
        self.assert_fails(Code.OUT_OF_RANGE, "17", wait,
                          agg.WaitRequest(round=0), timeout=WAIT)

    def test_get_status(self):
        job = self.start("workers: 2\n" + REDUCE)
        self.assertEqual(self.status(job).phase, "unseeded")
        workers = [Worker(job, rank, TENSORS, client=f"c{rank}")
                   for rank in range(2)]
        workers[0].seed(values(0))
        workers[0].push(values(1))
        pending = self.commit_first(job, workers[0])
        status = self.status(job)
        self.assertFalse(pending.done())
        self.assertEqual(
            (status.phase, status.round, status.version, status.epoch),
            ("open", 0, 0, workers[0].epoch))
        self.assertEqual([w.client for w in status.workers], ["c0", "c1"])
        self.assertEqual(list(status.missing_ranks), [1])
        self.assertEqual(status.expected_workers, 2)


class AttendTest(ForeignTestCase):

    def test_renewals_are_answered(self):
        job = self.start()
        worker = Worker(job, 0, TENSORS)
        stream = worker.attend()
        self.assertTrue(self.status(job).workers[0].attending)
        for _ in range(3):
            stream.send(agg.LeaseRenewal(epoch=worker.epoch,
                                         session=worker.session))
            self.assertEqual(stream.receive().kind, Event.RENEWED)

    def test_the_streams_end_shortens_the_lease(self):
        job = self.start("workers: 1 reconnect_grace_seconds: 0.2\n" + REDUCE)
        worker = Worker(job, 0, TENSORS)
        worker.attend().cancel()
        wait_until(lambda: not self.status(job).workers, "it is lost", 5)

    def test_a_lease_that_runs_out_is_told(self):
        job = self.start("workers: 1 lease_seconds: 0.3\n" + REDUCE)
        worker = Worker(job, 0, TENSORS)
        self.assertEqual(worker.attend().receive().kind, Event.EXPIRED)

    def test_events(self):
        job = self.start("workers: 2\n" + REDUCE)
        first, second = (Worker(job, rank, TENSORS) for rank in range(2))
        streams = [first.attend(), second.attend()]
        first.leave()
        self.assertEqual(streams[1].receive().kind, Event.SEED_ROLE)
        third = Worker(job, 1, TENSORS)
        self.assertEqual(streams[1].receive().kind, Event.SUPERSEDED)
        self.assertTrue(third.reply.seed_role)
        self.assertEqual([w.rank for w in self.status(job).workers], [1])

    def test_the_end_is_told(self):
        job, workers = self.seeded(2, REDUCE + "max_rounds: 1")
        streams = [worker.attend() for worker in workers]
        outcomes = round_of(workers, [values(1), values(2)])
        self.assertTrue(outcomes[0].finished)
        for stream in streams:
            event = stream.receive()
            self.assertEqual((event.kind, event.version), (Event.FINISHED, 1))

    def test_draining_is_told(self):
        job = self.start(flags=["--drain_seconds=0.5"])
        stream = Worker(job, 0, TENSORS).attend()
        job.shards[0].terminate()
        self.assertEqual(stream.receive().kind, Event.DRAINING)
        self.assertEqual(job.shards[0].process.wait(WAIT), 0)

    def test_a_lost_shard_is_told(self):
        job, (worker,) = self.seeded(num_shards=2)
        stream = worker.attend()
        job.shards[1].kill()
        event = stream.receive()
        self.assertEqual(event.kind, Event.SHARD_LOST)
        self.assertIn(job.addresses[1], event.message)


class LeaveTest(ForeignTestCase):

    def test_the_open_round_goes_on_without_it(self):
        job, workers = self.seeded(2)
        round_of(workers, [values(1), values(5)])
        workers[1].push(values(7), 1)
        workers[0].push(values(1), 1)
        pending = workers[0].commit_later(1)
        workers[1].leave()
        self.assertEqual(list(pending.result().ranks), [0])
        self.assert_tensors(workers[0].pull(2), values(1))

    def test_what_it_has_committed_counts(self):
        job, workers = self.seeded(2)
        workers[1].push(values(5))
        pending = self.commit_first(job, workers[1])
        workers[1].leave()
        workers[0].push(values(1))
        self.assertEqual(list(workers[0].commit().ranks), [0, 1])
        self.assertEqual(pending.code(), Code.ABORTED)  # It has left.

    def test_the_last_one_ends_the_job(self):
        job, (worker,) = self.seeded()
        worker.leave()
        wait_until(lambda: self.status(job).phase == "finished", "finished")
        reader = Reader(job).observe()
        self.assertTrue(reader.reply.finished)
        self.assert_tensors(reader.pull(0), values(0))
