"""The calls of Admin."""

import math
import time

import numpy

from client import Reader, Worker, round_of
from foreign_test_case import REDUCE, TENSORS, Code, ForeignTestCase, values
from server_process import WAIT
from stubs import admin


class AdminTest(ForeignTestCase):

    def call(self, job, name, ordinal=0, **fields):
        request = getattr(admin, name + "Request")(**fields)
        return getattr(job.peer(ordinal).admin, name)(request, timeout=WAIT)

    def test_set_rule(self):
        job, workers = self.seeded(2)
        reply = self.call(job, "SetRule", rule="mean")
        self.assertEqual((reply.before.rule, reply.after.rule), ("sum", "mean"))
        self.assertEqual(reply.first_round, 1)
        self.assertEqual(self.status(job).next_combination.rule, "mean")
        outcome = round_of(workers, [values(2), values(4)])[0]
        self.assertEqual(outcome.combination.rule, "sum")
        outcome = round_of(workers, [values(2), values(4)], 1)[0]
        self.assertEqual(outcome.combination.rule, "mean")
        self.assert_tensors(workers[0].pull(1), values(6))
        self.assert_tensors(workers[0].pull(2), values(3))

    def test_set_rule_names_what_is_wrong(self):
        job, (worker,) = self.seeded()
        for field, value in (("rule", "median"), ("scope", "galaxy"),
                             ("step_scale", "huge"), ("learning_rate", -1.5)):
            self.assert_fails(Code.INVALID_ARGUMENT, str(value), self.call,
                              job, "SetRule", **{field: value})
        self.assert_fails(Code.INVALID_ARGUMENT, "adacons_beta", self.call,
                          job, "SetRule", adacons_beta=0.5)
        self.assert_fails(Code.INVALID_ARGUMENT,
                          'adacons_unsort is "sorted"; allowed: "scatter", '
                          '"gather"', self.call, job, "SetRule",
                          rule="adacons", adacons_unsort="sorted")
        self.assert_fails(Code.INVALID_ARGUMENT, "krum_selected is 2",
                          self.call, job, "SetRule", rule="krum",
                          krum_selected=2)
        worker.leave()
        self.assert_fails(Code.FAILED_PRECONDITION, "finished", self.call, job,
                          "SetRule", rule="mean")

    def test_evict_worker(self):
        job, workers = self.seeded(2)
        stream = workers[1].attend()
        workers[1].push(values(3))
        pending = self.commit_first(job, workers[1])
        reply = self.call(job, "EvictWorker", rank=1, reason="too hot")
        self.assertEqual((reply.session, reply.committed),
                         (workers[1].session, True))
        event = stream.receive()
        self.assertEqual((event.kind, "too hot" in event.message),
                         (event.EVICTED, True))
        self.assert_fails(Code.ABORTED, "evicted: too hot", pending.result)
        workers[0].push(values(1))
        # What it has committed stands.
        self.assertEqual(list(workers[0].commit().ranks), [0, 1])
        Worker(job, 1, TENSORS)  # It is no ban.
        self.assert_fails(Code.NOT_FOUND, "5", self.call, job, "EvictWorker",
                          rank=5)

    def test_drain(self):
        job = self.start(flags=["--drain_seconds=0.5"])
        stream = Worker(job, 0, TENSORS).attend()
        self.call(job, "Drain")
        event = stream.receive()
        self.assertEqual(event.kind, event.DRAINING)
        self.assertEqual(job.shards[0].process.wait(WAIT), 0)

    def test_take_checkpoint_without_a_path(self):
        job = self.start()
        self.assert_fails(Code.FAILED_PRECONDITION, "checkpoint", self.call,
                          job, "TakeCheckpoint")
        for checkpoint in ("", "none", "3"):
            self.assert_fails(Code.FAILED_PRECONDITION, "checkpoint.path",
                              self.call, job, "Restore", checkpoint=checkpoint)
        self.assert_fails(Code.INVALID_ARGUMENT, "MADE-VERSION", self.call,
                          job, "Restore", checkpoint="newest")

    def test_resume_without_checkpoints(self):
        job, (worker,) = self.seeded()
        for dry_run in (True, False):
            self.assert_fails(Code.FAILED_PRECONDITION, "has not finished",
                              self.call, job, "Resume", dry_run=dry_run)
        round_of([worker], [values(1)], 0)
        worker.leave()
        for dry_run in (True, True, False):
            reply = self.call(job, "Resume", dry_run=dry_run)
            self.assertEqual((reply.version, reply.ended),
                             (1, "the last worker has left"))
        again = Worker(job, 0, TENSORS)
        round_of([again], [values(1)], 1)

    def test_a_drain_request_is_no_signal(self):
        """So the first signal after it is not the second, which kills."""
        size = 12 << 20
        job = self.start(flags=["--drain_seconds=2"])
        worker = Worker(job, 0, {"big": [size]})
        worker.seed([numpy.zeros(size, numpy.float32)])
        stream = worker.attend()
        # A pull that nobody reads: the drain waits for it.
        pull = Reader(job).observe().pull_frames(0, 0)
        next(pull)
        self.call(job, "Drain")
        event = stream.receive()
        self.assertEqual(event.kind, event.DRAINING)
        job.shards[0].terminate()
        self.assertEqual(job.shards[0].process.wait(WAIT), 0)
        self.assertIn("drain request: draining", job.shards[0].log())
        self.assertNotIn("second signal", job.shards[0].log())

    def test_each_shard_describes_itself(self):
        job = self.start(num_shards=2)
        replies = [self.call(job, "Describe", ordinal) for ordinal in range(2)]
        for ordinal, reply in enumerate(replies):
            self.assertLess(abs(reply.time_seconds - time.time()), WAIT)
            self.assertIn(f'shard="{ordinal}"', reply.metrics)
            self.assertIn("aggserver_memory_planned_bytes{", reply.metrics)
            fields = {field.path: field for field in reply.config}
            self.assertEqual(fields["workers"].value, "1")
            self.assertTrue(fields["workers"].compared)
            self.assertFalse(fields["shards[0]"].compared)
        shared = [[field for field in reply.config if field.compared]
                  for reply in replies]
        self.assertEqual(*shared)

    def test_set_log_level(self):
        job = self.start(num_shards=2)
        for ordinal in range(2):
            self.assertEqual(
                self.call(job, "SetLogLevel", ordinal, level="debug").before,
                "info")
            self.assertEqual(
                self.call(job, "SetLogLevel", ordinal, level="info").before,
                "debug")
        self.assert_fails(Code.INVALID_ARGUMENT, "loud", self.call, job,
                          "SetLogLevel", level="loud")

    def test_list_tensors(self):
        job = self.start("workers: 1\n" + REDUCE, 2)
        self.assert_fails(Code.FAILED_PRECONDITION, "^.", self.call, job,
                          "ListTensors")
        Worker(job, 0, TENSORS)
        reply = self.call(job, "ListTensors")
        self.assertEqual(reply.elements, 5)
        self.assertEqual(
            [(e.tensor.name, e.elements, list(e.shards), e.slices)
             for e in reply.tensors], [("a", 2, [1], 1), ("b", 3, [0], 1)])
        self.assertTrue(math.isnan(reply.tensors[0].orthogonality))

    def test_list_rounds(self):
        job, (worker,) = self.seeded()
        for round in range(3):
            round_of([worker], [values(1)], round)

        def listed(**fields):
            return [r.outcome.round
                    for r in self.call(job, "ListRounds", **fields).rounds]
        self.assertEqual(listed(limit=2), [1, 2])
        self.assertEqual(listed(after_epoch=worker.epoch, after_round=0),
                         [1, 2])
        records = self.call(job, "ListRounds").rounds
        self.assertGreater(records[-1].ended_at_seconds, 1e9)

    def test_get_version(self):
        job = self.start('job: "j" workers: 1\n' + REDUCE, 2)
        first, second = (self.call(job, "GetVersion", i) for i in range(2))
        self.assertEqual((first.job, first.ordinal, first.num_shards,
                          first.protocol_version, first.backend,
                          first.log_level), ("j", 0, 2, 1, "cpu", "info"))
        self.assertEqual(second.ordinal, 1)
        self.assertEqual(first.fingerprint, second.fingerprint)

    def test_only_shard_0_answers_for_the_job(self):
        job = self.start(num_shards=2)
        for name in ("SetRule", "EvictWorker", "Drain", "TakeCheckpoint",
                     "Restore", "Resume", "ListTensors", "ListRounds"):
            self.assert_fails(Code.FAILED_PRECONDITION, "shard 0|127",
                              self.call, job, name, 1)

    def test_without_admin(self):
        job = self.start(flags=["--admin=false"])
        self.assert_fails(Code.UNIMPLEMENTED, "^", self.call, job, "GetVersion")
