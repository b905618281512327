"""Where agg_combine is, and Adasum on vectors, for tests of what uses it."""

import os


def find_program():
    """Puts its folder on PATH: AGG_BIN's; under Bazel that of the test."""
    folder = (os.path.join(os.environ["AGG_BIN"], "server/tools")
              if "AGG_BIN" in os.environ else os.path.abspath("server/tools"))
    os.environ["PATH"] = os.pathsep.join([folder, os.environ["PATH"]])


def adasum(rows):
    """Of a power of two of vectors, pair by pair (Horovod's adasum.h)."""
    if len(rows) == 1:
        return rows[0]
    half = len(rows) // 2
    a, b = adasum(rows[:half]), adasum(rows[half:])
    return (1 - a @ b / (2 * a @ a)) * a + (1 - a @ b / (2 * b @ b)) * b
