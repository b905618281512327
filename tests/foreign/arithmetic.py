"""Combined gradients in fractions: exact, and slow."""

import fractions

import numpy


def _exact(rows):
    return [[fractions.Fraction(float(x)) for x in row] for row in rows]


def _rounded(row):
    """Fractions to double, which is exact enough, to float32."""
    return numpy.array([float(x) for x in row], numpy.float32)


def combine(rows, weights):
    rows = _exact(rows)
    return _rounded([sum(w * row[i] for w, row in zip(weights, rows))
                     for i in range(len(rows[0]))])


def summed(rows):
    return combine(rows, [1] * len(rows))


def mean(rows):
    return combine(rows, [fractions.Fraction(1, len(rows))] * len(rows))


def _dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def _pair(a, b):
    """Maleki et al., "Scaling Distributed Training with Adaptive Summation"."""
    dot, a_squared, b_squared = _dot(a, b), _dot(a, a), _dot(b, b)
    left = 1 - dot / (2 * a_squared) if a_squared else 1
    right = 1 - dot / (2 * b_squared) if b_squared else 1
    return [left * x + right * y for x, y in zip(a, b)]


def adasum(rows):
    """Neighbours in pairs, by rank; an odd one goes up unchanged."""
    rows = _exact(rows)
    while len(rows) > 1:
        rows = [_pair(*rows[i:i + 2]) if i + 1 < len(rows) else rows[i]
                for i in range(0, len(rows), 2)]
    return _rounded(rows[0])


def to_bf16(row):
    """The nearest bfloat16 of finite values, ties to even, as float32."""
    bits = numpy.asarray(row, numpy.float32).view(numpy.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & numpy.uint32(0xFFFF0000)
    return rounded.astype(numpy.uint32).view(numpy.float32)


def to_f16(row):
    return numpy.asarray(row, numpy.float32).astype(numpy.float16).astype(
        numpy.float32)
