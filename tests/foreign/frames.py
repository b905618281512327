"""Data frames, CRC32C and the slice plan, as proto/README.md describes them.

Frames are written by hand, not by protobuf: hostile tests need wrong ones.
"""

import functools
import struct
from typing import NamedTuple

import numpy

SLICE_ELEMENTS = 1 << 20
MAX_PAYLOAD = 4 << 20


def _crc_table():
    table = numpy.arange(256, dtype=numpy.uint32)
    for _ in range(8):
        table = (table >> 1) ^ (numpy.uint32(0x82F63B78) * (table & 1))
    return table


_TABLE = _crc_table()
_TABLE_LIST = [int(entry) for entry in _TABLE]
_LANE = 1024


@functools.lru_cache(maxsize=None)
def _lane_shift():
    """What _LANE zero bytes make of each bit of the CRC's state."""
    states = numpy.uint32(1) << numpy.arange(32, dtype=numpy.uint32)
    for _ in range(_LANE):
        states = _TABLE[states & 255] ^ (states >> 8)
    return [int(state) for state in states]


@functools.lru_cache(maxsize=64)
def crc32c(data):
    """CRC32C (Castagnoli) of bytes; long ones are cut into lanes for numpy."""
    state = 0xFFFFFFFF
    num_lanes = len(data) // _LANE if len(data) >= 8 * _LANE else 0
    if num_lanes:
        lanes = numpy.frombuffer(data, numpy.uint8, num_lanes * _LANE)
        columns = numpy.ascontiguousarray(lanes.reshape(num_lanes, _LANE).T)
        sums = numpy.zeros(num_lanes, numpy.uint32)
        for column in columns:
            sums = _TABLE[(sums ^ column) & 255] ^ (sums >> 8)
        shift = _lane_shift()
        for lane in sums:
            shifted = 0
            for bit in range(32):
                if state >> bit & 1:
                    shifted ^= shift[bit]
            state = shifted ^ int(lane)
    for byte in data[num_lanes * _LANE:]:
        state = _TABLE_LIST[(state ^ byte) & 255] ^ (state >> 8)
    return state ^ 0xFFFFFFFF


def varint(value):
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def number(field, value):
    """A varint field; zero is left out, as proto3 does."""
    return varint(field << 3) + varint(value) if value else b""


def blob(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def meta(epoch=0, session=0, round=0, kind=0, dtype=1, slices=(), crcs=(),
         absent=(), attempt=0, report=False, in_place=False):
    """FrameMeta's bytes, fields in ascending order."""
    text = number(1, epoch)
    if session:
        text += b"\x11" + struct.pack("<Q", session)
    text += number(3, round) + number(4, kind) + number(5, dtype)
    if slices:
        text += blob(6, b"".join(map(varint, slices)))
    if crcs:
        text += blob(7, struct.pack(f"<{len(crcs)}I", *crcs))
    if absent:
        text += blob(8, b"".join(map(varint, absent)))
    return (text + number(9, attempt) + number(10, in_place) +
            number(11, report))


def frame(meta_bytes, payload=b"", commit=None, pull=None):
    """commit, pull: their bytes, or None (P41)."""
    data = blob(1, meta_bytes)
    if commit is not None:
        data += blob(2, commit)
    if pull is not None:
        data += blob(3, pull)
    return data + (blob(15, payload) if payload else b"")


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def read_frame(data):
    """(meta's bytes, payload) of a frame; ValueError if its layout is wrong."""
    parts = {}
    at = 0
    for tag in (0x0A, 0x7A):
        if at == len(data):
            break
        if data[at] != tag:
            raise ValueError(f"tag {data[at]:#x} at {at}, not {tag:#x}")
        length, at = read_varint(data, at + 1)
        parts[tag] = data[at:at + length]
        at += length
    if at != len(data) or 0x0A not in parts:
        raise ValueError(f"a frame of {len(data)} bytes ends at {at}")
    return parts[0x0A], parts.get(0x7A, b"")


class Slice(NamedTuple):
    tensor: int
    first: int
    count: int
    shard: int


def plan(sizes, num_shards):
    """All slices of tensors with these numbers of elements, with homes."""
    slices = []
    for tensor, size in enumerate(sizes):
        for first in range(0, size, SLICE_ELEMENTS):
            count = min(SLICE_ELEMENTS, size - first)
            slices.append((tensor, first, count))
    homes = [0] * len(slices)
    load = [0] * num_shards
    for index in sorted(range(len(slices)), key=lambda i: (-slices[i][2], i)):
        homes[index] = load.index(min(load))
        load[homes[index]] += slices[index][2]
    return [Slice(*slices[i], homes[i]) for i in range(len(slices))]


# Elements on the wire, by the name that a configuration uses.
F32, BF16, F16, I8 = 1, 2, 3, 4
DTYPES = {"f32": F32, "bf16": BF16, "f16": F16, "int8": I8}
WIDTH = {F32: 4, BF16: 2, F16: 2}
SCALE_BLOCK = 256  # elements of I8 that share a scale


def encode_int8(values):
    """Scales, then elements: the largest of a block is 127 steps."""
    scales, elements = [], []
    for first in range(0, len(values), SCALE_BLOCK):
        block = values[first:first + SCALE_BLOCK]
        scale = numpy.float32(numpy.abs(block).max() / numpy.float32(127))
        scales.append(scale)
        elements.append(numpy.rint(block / scale) if scale else 0 * block)
    return (numpy.array(scales, "<f4").tobytes() +
            b"".join(e.astype("i1").tobytes() for e in elements))


def decode_int8(data, count):
    num_scales = -(-count // SCALE_BLOCK)
    scales = numpy.frombuffer(data, "<f4", num_scales)
    elements = numpy.frombuffer(data, "i1", count, 4 * num_scales)
    return (numpy.repeat(scales, SCALE_BLOCK)[:count].astype(numpy.float64) *
            elements)


def encode(values, dtype):
    """Little-endian bytes of values that are exact in dtype, or int8."""
    values = numpy.asarray(values, numpy.float32)
    if dtype == I8:
        return encode_int8(values)
    if dtype == F32:
        return values.astype("<f4").tobytes()
    if dtype == F16:
        return values.astype("<f2").tobytes()
    return (values.view(numpy.uint32) >> 16).astype("<u2").tobytes()


def decode(data, dtype):
    if dtype == F32:
        return numpy.frombuffer(data, "<f4").astype(numpy.float32)
    if dtype == F16:
        return numpy.frombuffer(data, "<f2").astype(numpy.float32)
    bits = numpy.frombuffer(data, "<u2").astype(numpy.uint32) << 16
    return bits.view(numpy.float32)
