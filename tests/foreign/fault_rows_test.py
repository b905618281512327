"""Faults of rows and members that other clients met, with what is wanted.

A marked test fails today; who removes the fault removes the mark.
"""

import grpc

from client import Worker, failure, manifest
from foreign_test_case import REDUCE, TENSORS, Code, ForeignTestCase, values
from server_process import WAIT, wait_until
from stubs import admin, agg

# gRPC's own limit of a message: what a tool in any language can read.
DEFAULT_LIMIT = [("grpc.max_receive_message_length", 4 << 20)]


class OneGradientTest(ForeignTestCase):
    """1s were pushed in part, then 5s: no result may have both."""

    def push_second(self, worker):
        """Pushes 5s; (None, "") or the refusal."""
        try:
            worker.push(values(5))
        except grpc.RpcError as error:
            return error.code(), error.details()
        return None, ""

    def assert_not_mixed(self, worker):
        """After a commit that includes the row: 1s or 5s."""
        try:
            included = worker.commit().included
        except grpc.RpcError as error:
            # Nothing complete was pushed: that is right, too.
            self.assertEqual(error.code(), Code.FAILED_PRECONDITION)
            return
        if included:
            got = {float(x) for tensor in worker.pull(1) for x in tensor}
            self.assertIn(got, ({1.0}, {5.0}))

    def half_pushed(self, num_shards=1):
        job, (worker,) = self.seeded(num_shards=num_shards)
        if num_shards == 1:
            stream = worker.open_push()
            stream.send(worker.frame_of([0], values(1)))
            stream.half_close()
            stream.rest()
        else:
            worker.push_to(0, values(1))
        return job, worker

    def test_one_shard(self):
        _, worker = self.half_pushed()
        self.push_second(worker)
        self.assert_not_mixed(worker)

    def test_two_shards(self):
        _, worker = self.half_pushed(num_shards=2)
        self.push_second(worker)
        self.assert_not_mixed(worker)

    def test_other_bytes_are_refused_with_what_to_do(self):
        _, worker = self.half_pushed()
        code, details = self.push_second(worker)
        self.assertIn(code, (Code.ABORTED, Code.ALREADY_EXISTS,
                             Code.FAILED_PRECONDITION, Code.INVALID_ARGUMENT))
        self.assertIn("slice 0", details)
        self.assertIn("attempt", details)

    def test_a_second_gradient_is_not_dropped_silently(self):
        _, (worker,) = self.seeded()
        worker.push(values(1))
        code, _ = self.push_second(worker)
        if code is None:
            worker.commit()
            self.assert_tensors(worker.pull(1), values(5))

    def test_a_higher_attempt_replaces_the_gradient(self):
        _, worker = self.half_pushed(num_shards=2)
        for ack in worker.push(values(5), attempt=1):
            self.assertEqual(ack.attempt, 1)
            self.assertFalse(ack.closed)
        self.assert_fails(Code.ABORTED, "replaced by attempt 1",
                          worker.push, values(1))
        self.assert_fails(Code.FAILED_PRECONDITION, "incomplete",
                          worker.commit)
        outcome = worker.commit(attempt=1,
                                row_crc32c=worker.row_crc32c(values(5)))
        self.assertTrue(outcome.included)
        self.assert_tensors(worker.pull(1), values(5))

    def test_a_commit_is_replaced_until_the_round_closes(self):
        job, (first, second) = self.seeded(workers=2)
        first.push(values(1))
        pending = self.commit_first(job, first)
        first.push(values(5), attempt=1)
        replacing = first.commit_later(attempt=1)
        second.push(values(2))
        second.commit()
        # Each is answered about its own attempt. Which of the last two commits
        # comes first is open; a row of both gradients is not.
        self.assertFalse(pending.result().included)
        included = replacing.result().included
        self.assert_tensors(first.pull(1), values(7 if included else 2))
        self.assertFalse(first.coordinator.WaitRound(
            agg.WaitRequest(round=0, session=first.session),
            timeout=WAIT).included)

    def test_a_gradient_after_the_round_is_not_included(self):
        _, (worker,) = self.seeded()
        worker.push(values(1))
        self.assertTrue(worker.commit().included)
        for ack in worker.push(values(5), attempt=1):
            self.assertTrue(ack.closed)
        self.assertFalse(worker.commit(attempt=1).included)
        self.assertTrue(worker.commit().included)
        self.assert_tensors(worker.pull(1), values(1))

    def test_a_row_of_other_bytes_than_committed_is_left_out(self):
        """1s on one shard and 5s on the other, of one attempt."""
        _, (worker,) = self.seeded(num_shards=2)
        worker.push_to(0, values(1))
        worker.push_to(1, values(5))
        outcome = worker.commit(row_crc32c=worker.row_crc32c(values(5)))
        self.assertFalse(outcome.included)
        self.assertEqual(list(outcome.excluded_ranks), [0])
        self.assertRegex(
            outcome.message, r"other bytes than the commit's checksum says: "
            r"rank 0 \(shard 0\)")
        self.assert_tensors(worker.pull(1), values(0))

    def test_checksums_are_one_per_shard(self):
        _, (worker,) = self.seeded()
        worker.push(values(1))
        self.assert_fails(Code.INVALID_ARGUMENT, "row_crc32c", worker.commit,
                          row_crc32c=[1, 2])

    def test_the_same_bytes_again_are_harmless(self):
        _, worker = self.half_pushed()
        worker.push(values(1))
        worker.push(values(1))
        self.assertTrue(worker.commit().included)
        self.assert_tensors(worker.pull(1), values(1))


class ReconnectTest(ForeignTestCase):
    """A session's newest Attend stream speaks for it, and no other."""

    def setUp(self):
        self.job = self.start(
            "workers: 1 reconnect_grace_seconds: 0.3\n" + REDUCE)
        self.worker = Worker(self.job, 0, TENSORS)
        self.old = self.worker.attend()
        self.new = self.worker.attend()

    def await_loss(self):
        wait_until(lambda: not self.status(self.job).workers,
                   "the worker is lost within the grace", 5)

    def test_the_old_streams_end_does_no_harm(self):
        self.old.cancel()
        self.new.send(agg.LeaseRenewal(epoch=self.worker.epoch,
                                       session=self.worker.session))
        self.new.receive()
        worker, = self.status(self.job).workers
        self.assertTrue(worker.attending)
        self.assertGreater(worker.lease_remaining_seconds, 1)

    def test_then_the_new_ones_end_shortens_the_lease(self):
        self.old.cancel()
        self.new.send(agg.LeaseRenewal(epoch=self.worker.epoch,
                                       session=self.worker.session))
        self.new.receive()
        self.new.cancel()
        self.await_loss()

    def test_the_new_ones_end_shortens_the_lease_though_the_old_is_open(self):
        self.new.cancel()
        self.await_loss()


class BoundsTest(ForeignTestCase):
    """What a peer sends is bounded before it is kept, logged or shown."""

    def assert_readable(self, job):
        """GetStatus fits gRPC's default, and the log is of a sane size."""
        job.peer(options=DEFAULT_LIMIT).coordinator.GetStatus(
            agg.StatusRequest(), timeout=WAIT)
        self.assertLess(len(job.shards[0].log()), 100_000)

    def test_a_client_of_3_9_megabytes(self):
        job = self.start("workers: 3\n" + REDUCE)
        for rank in range(3):
            try:  # Refused or cut, both are right.
                Worker(job, rank, TENSORS, client="x" * 3_900_000)
            except grpc.RpcError as error:
                self.assertEqual(error.code(), Code.INVALID_ARGUMENT)
        self.assert_readable(job)

    def test_a_reason_of_3_9_megabytes(self):
        job = self.start()
        worker = Worker(job, 0, TENSORS)
        try:
            job.peer().admin.EvictWorker(admin.EvictWorkerRequest(
                rank=0, reason="x" * 3_900_000), timeout=WAIT)
        except grpc.RpcError as error:
            self.assertEqual(error.code(), Code.INVALID_ARGUMENT)
        else:
            self.assert_fails(Code.ABORTED, "^evicted: x", worker.commit)
        self.assert_readable(job)

    def test_long_values_in_error_messages(self):
        job = self.start()
        code, details = failure(
            job.peer().admin.SetLogLevel,
            admin.SetLogLevelRequest(level="x" * 3_900_000), timeout=WAIT)
        self.assertEqual(code, Code.INVALID_ARGUMENT, details[:200])
        self.assertLess(len(details), 4000)

    def test_a_group_of_3_9_megabytes(self):
        job = self.start()
        request = agg.JoinRequest(protocol_version=1)
        request.manifest.tensors.add(name="a", shape=[2], group="x" * 3_900_000)
        code, details = failure(job.peer().coordinator.Join, request,
                                timeout=WAIT)
        self.assertEqual(code, Code.INVALID_ARGUMENT, details[:200])
        self.assert_readable(job)

    def test_streams_per_connection(self):
        """One connection holds some calls; the server lets no more in."""
        job, (worker,) = self.seeded()
        peer = job.peer()
        waiting = [peer.coordinator.WaitRound.future(
            agg.WaitRequest(round=0), timeout=WAIT) for _ in range(3000)]
        # A call beyond the server's limit stays in the client's gRPC.
        code, _ = failure(peer.coordinator.GetStatus, agg.StatusRequest(),
                          timeout=2)
        self.assertEqual(code, Code.DEADLINE_EXCEEDED)
        for call in waiting:
            call.cancel()
        self.status(job)

    def test_a_wait_for_an_absurd_round(self):
        job, (worker,) = self.seeded()
        code, _ = failure(worker.coordinator.WaitRound,
                          agg.WaitRequest(round=2 ** 60), timeout=2)
        self.assertIn(code, (Code.FAILED_PRECONDITION, Code.OUT_OF_RANGE,
                             Code.INVALID_ARGUMENT))


class JoinTest(ForeignTestCase):

    def test_a_join_whose_caller_has_gone(self):
        """Shard 1 is frozen until the caller of rank 0's Join gives up."""
        job = self.start("workers: 2\n" + REDUCE, 2)
        job.shards[1].freeze()
        request = agg.JoinRequest(protocol_version=1, rank=0,
                                  manifest=manifest(TENSORS))
        self.assert_fails(Code.DEADLINE_EXCEEDED, "^.",
                          job.peer().coordinator.Join, request, timeout=0.5)
        job.shards[1].thaw()
        Worker(job, 1, TENSORS)
        ranks = [worker.rank for worker in self.status(job).workers]
        self.assertEqual(ranks, [1])

    def test_many_tensors_and_workers_on_two_shards(self):
        job = self.start(
            "workers: 1 max_workers: 512\n" + REDUCE.replace(
                '"sum"', '"sum" scope: "per_tensor"'), 2)
        Worker(job, 0, {f"t{i}": [1] for i in range(2100)})
