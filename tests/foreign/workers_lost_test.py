"""Jobs that lose workers: the floor of every round, as real processes see it."""

from client import Worker, round_of
from foreign_test_case import REDUCE, TENSORS, Code, ForeignTestCase, values
from server_process import WAIT, wait_until
from stubs import admin

FLOOR = REDUCE + "min_workers: 2 reconnect_grace_seconds: 0.2\n"


class FloorTest(ForeignTestCase):

    def lose_all(self, config):
        """Three workers do round 0 and are lost; rank 0 comes back and pushes
        round 1."""
        job, workers = self.seeded(3, config)
        streams = [worker.attend() for worker in workers]
        round_of(workers, [values(1), values(2), values(3)])
        for stream in streams:
            stream.cancel()
        wait_until(lambda: not self.status(job).workers, "they are lost", 10)
        back = Worker(job, 0, TENSORS)
        self.assertEqual(back.reply.first_round, 1)
        back.push(values(4), 1)
        return job, back

    def test_one_worker_waits_for_another(self):
        job, back = self.lose_all(FLOOR)
        pending = self.commit_first(job, back, 1)
        status = self.status(job)
        self.assertFalse(pending.done())
        self.assertEqual((status.round, status.min_workers), (1, 2))
        self.assertGreater(status.below_floor_seconds, 0)
        self.assertIn("waits: 1 of at least 2 workers", status.message)
        log = job.shards[0].log()
        self.assertEqual(log.count(") is lost: its connection broke"), 3)
        lost = [record for record in job.peer().admin.ListAudit(
            admin.ListAuditRequest(), timeout=WAIT).records
                if record.action == "lost"]
        self.assertEqual(sorted(record.rank for record in lost), [0, 1, 2])
        for record in lost:
            self.assertIn("is lost: its connection broke", record.detail)
            self.assertGreater(record.session, 0)
        # How many are left when it is said first: they leave one by one.
        self.assertRegex(log, "the job waits: [01] of at least 2 workers")
        other = Worker(job, 2, TENSORS)
        other.push(values(5), 1)
        self.assertEqual(list(other.commit(1).ranks), [0, 2])
        self.assertEqual(list(pending.result().ranks), [0, 2])
        self.assertEqual(self.status(job).message, "")

    def test_a_job_may_fail_instead(self):
        job, back = self.lose_all(
            FLOOR + 'floor_policy: "fail" floor_timeout_seconds: 3\n')
        self.assert_fails(Code.FAILED_PRECONDITION,
                          "it failed: .* only 1 of at least 2 workers",
                          back.commit, 1)
        self.assertEqual(self.status(job).phase, "finished")
        self.assertIn("the job has finished at version 1: it failed",
                      job.shards[0].log())

    def test_a_job_without_a_floor_goes_on(self):
        job, back = self.lose_all(REDUCE + "reconnect_grace_seconds: 0.2\n")
        self.assertEqual(list(back.commit(1).ranks), [0])
        # How many are left when it is said first: they leave one by one.
        self.assertRegex(job.shards[0].log(),
                         "the job goes on with [0-2] of at least 3 workers")
