"""One process of adasum_test: combines what a case says, and checks it."""

import torch

from tests.python.job_case import agg

WORKERS = 4


def rows_of(case, dtype):
    """The rows of all workers, by case."""
    if case == "orthogonal":
        rows = [torch.zeros(32) for _ in range(WORKERS)]
        for rank, row in enumerate(rows):
            row[rank::WORKERS] = torch.arange(1.0, 9.0) * (rank + 1)
    elif case == "parallel":
        base = torch.linspace(-1, 1, 32)
        rows = [base * 2.0 ** rank for rank in range(WORKERS)]
    elif case == "subnormal":
        rows = [torch.full((32,), 1e-40) for _ in range(WORKERS)]
    elif case == "unequal":  # lengths that differ by much, and a zero row
        generator = torch.Generator().manual_seed(3)
        rows = [torch.randn(32, generator=generator) * scale
                for scale in (1e-12, 1.0, 1e-3, 0.0)]
    else:
        generator = torch.Generator().manual_seed(4)
        rows = [torch.randn(32, generator=generator) for _ in range(WORKERS)]
    return [row.to(dtype) for row in rows]


def pair(a, b):
    """Adasum of two vectors, in double; a zero one changes nothing."""
    dot, aa, bb = (a * b).sum(), (a * a).sum(), (b * b).sum()
    return ((1 - dot / (2 * aa) if aa else 1.0) * a
            + (1 - dot / (2 * bb) if bb else 1.0) * b)


def expected_of(rows):
    """Neighbours first, then their results."""
    rows = [row.double() for row in rows]
    return pair(pair(rows[0], rows[1]), pair(rows[2], rows[3]))


def run(rank, coordinator, cases):
    """Raises if a result is not Adasum's."""
    torch.set_num_threads(1)
    with agg.Worker({"x": torch.zeros(32)}, coordinator, rank,
                    mode="combine") as worker:
        for case, dtype, bound in cases:
            rows = rows_of(case, dtype)
            found = agg.allreduce({"x": rows[rank]}, worker)["x"]
            assert found.dtype == dtype, (case, found.dtype)
            expected = expected_of(rows)
            error = (found.double() - expected).norm() / expected.norm()
            assert error < bound, (case, dtype, error)
            if case == "orthogonal":  # the sum
                total = sum(row.double() for row in rows)
                assert (found.double() - total).norm() < bound * total.norm()
            if case == "parallel":  # along the same line, and the mean of it
                mean = sum(row.double() for row in rows) / WORKERS
                assert (found.double() - mean).norm() < bound * mean.norm()
            assert torch.isfinite(found).all(), case
