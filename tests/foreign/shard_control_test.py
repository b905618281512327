"""A coordinator of other origin: ShardControl, on a shard of its own."""

import grpc
import numpy

import frames
from client import SEED, Stream, manifest
from foreign_test_case import TENSORS, WAITS, Code, ForeignTestCase
from server_process import WAIT
from stubs import admin, agg, control


class ShardControlTest(ForeignTestCase):
    EPOCH = 1000
    SESSION = 77

    def setUp(self):
        # Shard 1 of 2, with no shard 0: nobody else coordinates it.
        config = ('workers: 1 replication: "none" optimizer { kind: "none" } '
                  'combination { rule: "sum" }\n')
        self.job = self.start(config, num_shards=2, first_shard=1)
        self.peer = self.job.peer(1)
        self.fingerprint = self.peer.admin.GetVersion(
            admin.GetVersionRequest(), timeout=WAIT).fingerprint

    def attach(self, **fields):
        request = dict(epoch=self.EPOCH, ordinal=1, num_shards=2,
                       config_fingerprint=self.fingerprint, protocol_version=1,
                       coordinator_life=7)
        stream = Stream(self.peer.control.Attach)
        stream.send(control.AttachRequest(**{**request, **fields}))
        return stream

    def join(self):
        """The manifest and one session with the seed role."""
        self.phase(set_manifest=manifest(TENSORS))
        self.phase(set_session=control.SessionChange(
            session=self.SESSION, rank=0, seed_role=True))

    def push(self, data, round=0, kind=0):
        payload = frames.encode(data, frames.F32)
        stream = Stream(self.peer.shard.Push)
        # Tensor a, slice 0, is shard 1's.
        stream.send(frames.frame(frames.meta(
            self.EPOCH, self.SESSION, round, kind, frames.F32, [0],
            [frames.crc32c(payload)]), payload))
        stream.half_close()
        return stream.rest()

    def phase(self, epoch=EPOCH, round=0, **phase):
        return list(self.peer.control.RunPhase(iter([control.PhaseRequest(
            epoch=epoch, round=round, **phase)]), timeout=WAIT))

    def pull(self, version):
        data, = self.peer.shard.Pull(agg.PullRequest(
            epoch=self.EPOCH, version=version, dtype=frames.F32), timeout=WAIT)
        return frames.decode(frames.read_frame(data)[1], frames.F32)

    def test_a_round(self):
        reply = (stream := self.attach()).receive()
        self.assertEqual((reply.epoch, reply.backend), (self.EPOCH, "cpu"))
        self.join()
        self.push([10, 20], kind=SEED)
        publish = control.PhaseRequest.Publish(version=0, seed=True,
                                           seed_session=self.SESSION)
        self.phase(publish=publish)
        numpy.testing.assert_array_equal(self.pull(0), [10, 20])
        self.push([3, 4])
        close = control.PhaseRequest.Close(rows=[
            control.RoundRow(rank=0, session=self.SESSION)])
        first = self.phase(close=close)
        gram, = [gram for reply in first for gram in reply.grams]
        self.assertEqual((gram.slice, list(gram.hi)), (0, [25]))
        again = self.phase(close=close)  # Idempotent.
        self.assertEqual([g for r in again for g in r.grams], [gram])
        update = control.StepPlan(per_tensor=True, coefficients=[1, 1], step=1,
                              learning_rate=1)
        self.phase(update=update)
        self.phase(publish=control.PhaseRequest.Publish(version=1))
        numpy.testing.assert_array_equal(self.pull(1), [3, 4])
        stream.half_close()

    def test_a_row_is_reserved_before_its_session(self):
        stream = self.attach()
        stream.receive()
        row = control.PhaseRequest.ReserveRow(rank=0)
        self.assert_fails(Code.FAILED_PRECONDITION, "no manifest", self.phase,
                          reserve_row=row)
        self.join()
        for _ in range(2):  # Idempotent, with a session or without.
            self.phase(reserve_row=row)
        self.assert_fails(
            Code.INVALID_ARGUMENT, "rank is 9; allowed: 0 to", self.phase,
            reserve_row=control.PhaseRequest.ReserveRow(rank=9))

    def test_a_row_that_is_not_complete(self):
        stream = self.attach()
        stream.receive()
        self.join()
        self.push([1, 2], kind=SEED)
        self.phase(publish=control.PhaseRequest.Publish(
            version=0, seed=True, seed_session=self.SESSION))
        replies = self.phase(close=control.PhaseRequest.Close(rows=[
            control.RoundRow(rank=0, session=self.SESSION)]))
        self.assertEqual(list(replies[-1].incomplete_ranks), [0])
        self.assertFalse(any(reply.grams for reply in replies))

    def test_one_that_believes_otherwise_is_refused(self):
        for field, wrong, mine in (
                ("config_fingerprint", "abc", self.fingerprint),
                ("ordinal", 0, "1"), ("num_shards", 3, "2"),
                ("protocol_version", 9, "1")):
            details = self.assert_fails(
                Code.FAILED_PRECONDITION, "^.",
                self.attach(**{field: wrong}).rest)
            self.assertIn(str(wrong), details)
            self.assertIn(mine, details)

    def test_a_stale_epoch(self):
        stream = self.attach()
        stream.receive()
        text = f"stale epoch {self.EPOCH - 1}; current epoch {self.EPOCH}"
        self.assert_fails(Code.ABORTED, text, self.phase, self.EPOCH - 1,
                          set_manifest=manifest(TENSORS))
        self.assert_fails(Code.ABORTED, text, self.attach(
            epoch=self.EPOCH - 1).rest)

    def test_the_streams_end_ends_the_epoch(self):
        stream = self.attach()
        stream.receive()
        self.join()
        waiting = self.peer.shard.Pull(agg.PullRequest(
            epoch=self.EPOCH, version=0, dtype=frames.F32), timeout=WAIT)
        stream.cancel()
        self.assert_fails(Code.UNAVAILABLE, "^.", lambda: waiting)

    def test_lost_ends_the_epoch(self):
        stream = self.attach()
        stream.receive()
        self.join()
        waiting = self.peer.shard.Pull(agg.PullRequest(
            epoch=self.EPOCH, version=0, dtype=frames.F32), timeout=WAIT)
        stream.send(control.AttachRequest(epoch=self.EPOCH,
                                          lost="shard 0 burns"))
        self.assert_fails(Code.UNAVAILABLE, "shard 0 burns", lambda: waiting)

    def test_before_attach(self):
        self.assert_fails(
            Code.UNAVAILABLE, WAITS, self.phase, 1,
            set_manifest=manifest(TENSORS))
        self.assert_fails(Code.UNAVAILABLE, WAITS, self.phase,
                          abandon=control.PhaseRequest.Abandon())

    def test_absurd_phases(self):
        stream = self.attach()
        stream.receive()
        self.join()
        for phase in ({}, {"close": control.PhaseRequest.Close(rows=[
                control.RoundRow(rank=5, session=9)] * 3)},
                {"update": control.StepPlan(coefficients=[1.0] * 99)},
                {"compensated_gram": control.PhaseRequest.CompensatedGram(
                    tensors=[-1, 10 ** 9])},
                {"publish": control.PhaseRequest.Publish(version=2 ** 63)}):
            try:
                self.phase(**phase)
            except grpc.RpcError as error:
                self.assertNotEqual(error.code(), Code.UNKNOWN)
            self.assertTrue(self.job.shards[1].alive(),
                            self.job.shards[1].log())
