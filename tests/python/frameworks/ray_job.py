"""What ray_test runs on the cluster."""

import os
import pathlib
import signal

import numpy as np

import agg_server as agg

ROUNDS = 12


def train(rank, folder, pids):
    """Descends to 1; in the middle, once each: a shard is killed, and this
    process. Returns (rank, how often it began, the parameters)."""
    begun = pathlib.Path(folder, f"began{rank}")
    with open(begun, "a") as file:
        file.write("x")
    w = np.zeros(8, np.float32)
    with agg.Client({"w": w}) as client:
        while client.version < ROUNDS:
            outcome = client.step({"w": w - 1})
            if rank == 0 and outcome.version == 3:
                os.kill(pids[1], signal.SIGKILL)
            if rank == 1 and outcome.version == 6:
                os.kill(os.getpid(), signal.SIGKILL)
        return rank, len(begun.read_text()), w


def fail(rank):
    """Rank 1's exception must end rank 0, which waits for it."""
    if rank == 1:
        raise LookupError("of rank 1")
    with agg.Client({"w": np.zeros(8, np.float32)}) as client:
        client.step({"w": np.ones(8)})
