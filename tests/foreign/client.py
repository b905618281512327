"""A worker written from proto/README.md and proto/*.proto alone."""

import math
import queue
import struct

import grpc
import numpy

import frames
from server_process import WAIT
from stubs import agg

GRADIENT, SEED = 0, 1


class Stream:
    """A call that sends: messages go in by send(), replies are iterated.

    Each stream ends after WAIT seconds at the latest.
    """

    def __init__(self, method, timeout=WAIT):
        self._outbox = queue.SimpleQueue()
        self._call = method(iter(self._outbox.get, None), timeout=timeout)

    def send(self, message):
        self._outbox.put(message)

    def half_close(self):
        self._outbox.put(None)

    def receive(self):
        """The next reply; grpc.RpcError when the stream has failed.

        WAITING is left out: a slow machine may get it at any time.
        """
        while True:
            reply = next(self._call)
            if not (isinstance(reply, agg.JobEvent)
                    and reply.kind == agg.JobEvent.WAITING):
                return reply

    def rest(self):
        """All replies until the end."""
        return list(self._call)

    def cancel(self):
        self._call.cancel()
        self._outbox.put(None)

    def code(self):
        """The status at the end; waits for it."""
        return self._call.code()

    def ended(self):
        return not self._call.is_active()

    def all_sent(self):
        """gRPC has taken all messages, or the stream has ended."""
        return self._outbox.empty() or not self._call.is_active()


def manifest(tensors):
    """A Manifest of {name: shape} or of {name: (shape, optional)}."""
    message = agg.Manifest()
    for name, entry in tensors.items():
        optional = isinstance(entry, tuple)
        message.tensors.add(name=name, shape=entry[0] if optional else entry,
                            optional=optional and entry[1])
    return message


class Reader:
    """What an observer does: it pulls."""

    def __init__(self, job):
        self.job = job
        self.peers = [job.peer(i) for i in range(len(job.addresses))]
        self.coordinator = self.peers[0].coordinator
        self.reply = None

    def observe(self):
        self._take(self.coordinator.Observe(
            agg.ObserveRequest(protocol_version=1), timeout=WAIT))
        return self

    def _take(self, reply):
        self.reply = reply
        self.epoch = reply.epoch
        self.shapes = [tuple(t.shape) for t in reply.manifest.tensors]
        self.sizes = [math.prod(shape) for shape in self.shapes]
        self.slices = frames.plan(self.sizes, len(self.peers))

    def pull_frames(self, shard, version=0, dtype=frames.F32, **fields):
        """The call that streams one shard's part."""
        timeout = fields.pop("timeout", WAIT)
        fields.setdefault("epoch", self.epoch)
        return self.peers[shard].shard.Pull(
            agg.PullRequest(version=version, dtype=dtype, **fields),
            timeout=timeout)

    def pull(self, version=0, dtype=frames.F32, **fields):
        """The version's tensors, flat float32 each; checks every frame."""
        tensors = [numpy.full(size, numpy.nan, numpy.float32)
                   for size in self.sizes]
        missing = set(range(len(self.slices)))
        for shard in range(len(self.peers)):
            for data in self.pull_frames(shard, version, dtype, **fields):
                missing -= self._land(data, shard, version, dtype, tensors,
                                      fields.get("latest", False))
        if missing:
            raise AssertionError(f"slices {missing} were not sent")
        return tensors

    def _land(self, data, shard, version, dtype, tensors, any_version):
        meta_bytes, payload = frames.read_frame(data)
        meta = agg.FrameMeta.FromString(meta_bytes)
        assert any_version or meta.round == version, meta
        assert meta.dtype == dtype and meta.epoch == self.epoch, meta
        assert len(payload) <= frames.MAX_PAYLOAD, len(payload)
        assert list(meta.slices) == sorted(set(meta.slices)), meta
        assert len(meta.slices) == len(meta.crc32c), meta
        at = 0
        for index, crc in zip(meta.slices, meta.crc32c):
            piece = self.slices[index]
            assert piece.shard == shard, f"slice {index} of shard {shard}"
            end = at + piece.count * frames.WIDTH[dtype]
            assert frames.crc32c(payload[at:end]) == crc, f"slice {index}"
            tensors[piece.tensor][piece.first:piece.first + piece.count] = (
                frames.decode(payload[at:end], dtype))
            at = end
        assert at == len(payload), meta
        return set(meta.slices)


class Worker(Reader):
    """One session of a rank. Streams are opened by the calls that need them."""

    def __init__(self, job, rank, tensors, **fields):
        """Joins; fields are JoinRequest's others."""
        super().__init__(job)
        self.rank = rank
        fields.setdefault("protocol_version", 1)
        self._take(self.coordinator.Join(
            agg.JoinRequest(rank=rank, manifest=manifest(tensors), **fields),
            timeout=WAIT))
        self.session = self.reply.session

    def attend(self):
        """An Attend stream that has renewed the lease once."""
        stream = Stream(self.coordinator.Attend)
        stream.send(agg.LeaseRenewal(epoch=self.epoch, session=self.session))
        event = stream.receive()
        assert event.kind == agg.JobEvent.RENEWED, event
        return stream

    def frame_of(self, indices, tensors, round=0, kind=GRADIENT, dtype=None,
                 **fields):
        """A frame of whole slices. tensors: flat arrays, one per tensor."""
        if dtype is None:
            dtype = frames.F32 if kind == SEED else self.reply.push_dtype
        pieces = []
        for index in indices:
            tensor, first, count, _ = self.slices[index]
            pieces.append(frames.encode(tensors[tensor][first:first + count],
                                        dtype))
        fields.setdefault("epoch", self.epoch)
        fields.setdefault("session", self.session)
        fields.setdefault("slices", indices)
        fields.setdefault("crcs", [frames.crc32c(p) for p in pieces])
        return frames.frame(
            frames.meta(round=round, kind=kind, dtype=dtype, **fields),
            b"".join(pieces))

    def open_push(self, shard=0, timeout=WAIT):
        return Stream(self.peers[shard].shard.Push, timeout)

    def indices(self, shard):
        return [i for i, s in enumerate(self.slices) if s.shard == shard]

    def push_to(self, shard, tensors, round=0, kind=GRADIENT, absent=(),
                attempt=0):
        """Pushes one shard's part, a slice per frame; returns the PushAck.

        absent: tensors that are left out, all of their slices.
        """
        stream = self.open_push(shard)
        left_out = []
        for index in self.indices(shard):
            if self.slices[index].tensor in absent:
                left_out.append(index)
            else:
                stream.send(self.frame_of([index], tensors, round, kind,
                                          attempt=attempt))
        if left_out:
            stream.send(self.frame_of([], tensors, round, kind,
                                      absent=left_out, attempt=attempt))
        stream.half_close()
        # One when the part is complete, and one for each frame after that.
        return stream.rest()[-1]

    def push(self, tensors, round=0, kind=GRADIENT, absent=(), attempt=0):
        """Pushes to every shard that has slices; returns the PushAcks."""
        return [self.push_to(shard, tensors, round, kind, absent, attempt)
                for shard in sorted({s.shard for s in self.slices})]

    def row_crc32c(self, tensors):
        """CommitRequest.row_crc32c of a row without absent tensors."""
        sums = []
        for shard in range(len(self.peers)):
            words = b""
            for index in self.indices(shard):
                tensor, first, count, _ = self.slices[index]
                words += struct.pack("<I", frames.crc32c(frames.encode(
                    tensors[tensor][first:first + count],
                    self.reply.push_dtype)))
            sums.append(frames.crc32c(words))
        return sums

    def commit_request(self, round=0, kind=GRADIENT, **fields):
        fields.setdefault("epoch", self.epoch)
        fields.setdefault("session", self.session)
        return agg.CommitRequest(round=round, kind=kind, **fields)

    def commit(self, round=0, kind=GRADIENT, **fields):
        return self.coordinator.Commit(
            self.commit_request(round, kind, **fields), timeout=WAIT)

    def commit_later(self, round=0, kind=GRADIENT, **fields):
        """A future, for rounds that others must commit, too."""
        return self.coordinator.Commit.future(
            self.commit_request(round, kind, **fields), timeout=WAIT)

    def trip_frame(self, shard, tensors, round=0, attempt=0, **fields):
        """All slices of a shard in one frame, with what P41 sends along."""
        commit = self.commit_request(
            round, attempt=attempt, row_crc32c=self.row_crc32c(tensors),
            **fields)
        pull = agg.PullRequest(epoch=self.epoch, version=round + 1,
                               dtype=frames.F32)
        meta_bytes, payload = frames.read_frame(self.frame_of(
            self.indices(shard), tensors, round, attempt=attempt,
            report=shard != 0))
        return frames.frame(
            meta_bytes, payload,
            commit=commit.SerializeToString() if shard == 0 else None,
            pull=pull.SerializeToString())

    def begin_trip(self, streams, tensors, round=0, **fields):
        """Sends a round to every shard; streams: from open_trips."""
        for shard, stream in streams.items():
            stream.send(self.trip_frame(shard, tensors, round, **fields))

    def open_trips(self):
        """A Push stream for each shard that has slices, by shard."""
        return {shard: self.open_push(shard)
                for shard in sorted({s.shard for s in self.slices})}

    def end_trip(self, streams, round=0):
        """(outcome, version round + 1) of what begin_trip has sent."""
        tensors = [numpy.full(size, numpy.nan, numpy.float32)
                   for size in self.sizes]
        missing = set(range(len(self.slices)))
        outcome = None
        for shard, stream in streams.items():
            last = False
            while not last or (shard == 0 and outcome is None):
                ack = stream.receive()
                if ack.HasField("outcome"):
                    assert (ack.epoch, ack.round) == (self.epoch, round), ack
                    assert shard == 0 and not ack.HasField("meta"), ack
                    outcome = ack.outcome
                elif ack.HasField("meta"):
                    assert not last, "a frame behind the last one"
                    last = ack.last
                    # Field 7 in place of 1; the rest is as in PullFrame.
                    missing -= self._land(
                        frames.frame(ack.meta.SerializeToString(), ack.payload),
                        shard, round + 1, frames.F32, tensors, False)
                else:
                    assert ack.closed, f"an acknowledgement: {ack}"
        if missing:
            raise AssertionError(f"slices {missing} were not sent")
        return outcome, tensors

    def seed(self, tensors):
        self.push(tensors, kind=SEED)
        return self.commit(kind=SEED)

    def leave(self):
        return self.coordinator.Leave(
            agg.LeaveRequest(epoch=self.epoch, session=self.session),
            timeout=WAIT)


def round_of(workers, gradients, round=0, **fields):
    """Pushes and commits one gradient per worker; returns the outcomes."""
    for worker, gradient in zip(workers, gradients):
        worker.push(gradient, round)
    pending = [w.commit_later(round, **fields) for w in workers]
    return [future.result() for future in pending]


def failure(call, *args, **kwargs):
    """(code, text) of a call, unary or streaming, that must fail."""
    try:
        result = call(*args, **kwargs)
        if not hasattr(result, "DESCRIPTOR") and hasattr(result, "__iter__"):
            result = list(result)
    except grpc.RpcError as error:
        return error.code(), error.details()
    raise AssertionError(f"it succeeded: {str(result)[:500]}")
