"""A worker of its own process that stops in the midst of writing its row.

  half_writer.py RANK ADDRESS...   of all shards, in order

It joins, attends, writes the first half of its row into the first shard's
memory, says "half" and waits to be killed. tests/foreign/shared_memory_test.py
has the tensors.
"""

import sys

import numpy

from regions import SharedWorker
from shared_memory_test import SHAPES
from stubs import Peer


class Addresses:
    """As much of a Job as a worker needs."""

    def __init__(self, addresses):
        self.addresses = addresses

    def peer(self, ordinal=0):
        return Peer(self.addresses[ordinal])


def main():
    rank = int(sys.argv[1])
    worker = SharedWorker(Addresses(sys.argv[2:]), rank, SHAPES)
    stream = worker.attend()
    row = worker.regions[0].row
    half = len(row) // 8 * 4
    # NaNs: whoever used them would show it.
    row[:half] = numpy.full(half // 4, numpy.nan, numpy.float32).tobytes()
    print("half", flush=True)
    sys.stdin.read()
    stream.cancel()


if __name__ == "__main__":
    main()
