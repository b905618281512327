"""A shard's memory in this process (P39, P40), as proto/README.md and
proto/region.proto describe it."""

import fcntl
import mmap
import os
import socket
import struct

import frames
from client import GRADIENT, Worker
from server_process import WAIT
from stubs import agg, region

PAGE = 4096


class Refused(Exception):
    """A reply with a code."""


def _receive(peer, count):
    data = b""
    while len(data) < count:
        more = peer.recv(count - len(data))
        assert more, f"{len(data)} of {count} bytes"
        data += more
    return data


def ask(name, **fields):
    """(RegionReply, its descriptors, which are the caller's)."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(WAIT)
        peer.connect("\0" + name)
        _, uid, _ = struct.unpack("3i", peer.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        assert uid in (0, os.geteuid()), uid
        request = region.RegionRequest(
            protocol_version=1, **fields).SerializeToString()
        peer.sendall(struct.pack("<I", len(request)) + request)
        head, fds, _, _ = socket.recv_fds(peer, 4, 16)
        head += _receive(peer, 4 - len(head))
        reply = region.RegionReply.FromString(
            _receive(peer, struct.unpack("<I", head)[0]))
    if reply.code:
        raise Refused(reply.code, reply.message)
    assert len(fds) == reply.HasField("row") + len(reply.versions), fds
    return reply, fds


def check(fd, num_bytes):
    """Nobody can make it shorter, and it is long enough to be mapped."""
    assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    assert os.fstat(fd).st_size >= num_bytes, os.fstat(fd)


class Version:
    """The region of a version, which can only be read."""

    def __init__(self, said, fd):
        self.number = said.number
        self._head = -(-said.bytes // PAGE) * PAGE
        check(fd, self._head + PAGE)
        self._memory = mmap.mmap(fd, self._head + PAGE, mmap.MAP_SHARED,
                                 mmap.PROT_READ)

    def generation(self):
        return struct.unpack_from("=Q", self._memory, self._head)[0]

    def read(self, offset, count):
        return self._memory[offset:offset + count]


class Regions:
    """What one shard has given to a session (0: to an observer)."""

    def __init__(self, reader, shard, session=0):
        reply, fds = ask(reader.reply.region_sockets[shard], session=session,
                         epoch=reader.epoch,
                         life=reader.reply.shard_lives[shard])
        self.reply = reply
        self.row = None
        left = list(fds)
        if reply.HasField("row"):
            fd = left.pop(0)
            check(fd, reply.row.bytes)
            self.row = mmap.mmap(fd, reply.row.bytes, mmap.MAP_SHARED)
        self.versions = {said.number: Version(said, left.pop(0))
                         for said in reply.versions}
        for fd in fds:
            os.close(fd)


class SharedWorker(Worker):
    """Writes its rows into the shards' memory, and reads versions there."""

    def __init__(self, job, rank, tensors, **fields):
        super().__init__(job, rank, tensors, **fields)
        self.regions = [Regions(self, shard, self.session)
                        for shard in range(len(self.peers))]

    def write(self, shard, index, tensors):
        """One slice, into its place in the row."""
        tensor, first, count, _ = self.slices[index]
        data = frames.encode(tensors[tensor][first:first + count],
                             self.reply.push_dtype)
        regions = self.regions[shard]
        at = regions.reply.row_offsets[self.indices(shard).index(index)]
        regions.row[at:at + len(data)] = data

    def push_to(self, shard, tensors, round=0, kind=GRADIENT, absent=(),
                attempt=0):
        if kind != GRADIENT or attempt > 0:  # these are sent
            return super().push_to(shard, tensors, round, kind, absent,
                                   attempt)
        named, left_out = [], []
        for index in self.indices(shard):
            if self.slices[index].tensor in absent:
                left_out.append(index)
            else:
                self.write(shard, index, tensors)
                named.append(index)
        stream = self.open_push(shard)
        for indices in ([named[:1], named[1:]] if left_out else [named]):
            stream.send(frames.frame(frames.meta(
                self.epoch, self.session, round, kind, self.reply.push_dtype,
                indices, absent=left_out if indices == named[1:] else (),
                in_place=True)))
        stream.half_close()
        return stream.rest()[-1]

    def row_crc32c(self, tensors):
        """Each slice that is written in place has the checksum 0."""
        return [frames.crc32c(bytes(4 * len(self.indices(shard))))
                for shard in range(len(self.peers))]

    def read(self, version, dtype=frames.F32):
        """As pull(), where the version lies."""
        tensors = [None] * len(self.sizes)
        parts = {}
        for shard in range(len(self.peers)):
            missing = set(self.indices(shard))
            call = self.pull_frames(shard, version, dtype, in_place=True)
            while missing:
                answer = agg.PullFrame.FromString(next(call))
                assert answer.HasField("place") and not answer.payload
                assert answer.meta.round == version, answer.meta
                place = self.regions[shard].versions[answer.place.region]
                for index, at in zip(answer.meta.slices,
                                     answer.place.offsets):
                    size = self.slices[index].count * frames.WIDTH[dtype]
                    parts[index] = place.read(at, size)
                    missing.remove(index)
                assert place.generation() == answer.place.generation
            call.cancel()  # the shard may have its memory back
        for tensor in range(len(self.sizes)):
            tensors[tensor] = frames.decode(
                b"".join(parts[i] for i, s in enumerate(self.slices)
                         if s.tensor == tensor), dtype)
        return tensors
