#!/usr/bin/env python3
"""What a rule of one's own adds to a round: two workers in threads, 4 KB of
gradients each, by the rule `mean` and by `external` with a function that
returns the mean, in turns, on this machine. Needs numpy.

    python3 tests/bench/external_rule.py [--bin=bazel-bin] [--rounds=N] [--shards=K]

Prints the median round of each, of every turn, and the median of the
differences; the last line is `added: X ms`.
"""

import argparse
import concurrent.futures
import os
import pathlib
import statistics
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "worker_client" / "python"))

TURNS = 5
ELEMENTS = 1024  # of float32
WORKERS = 2


def median_round(rule, rounds, shards):
    """Seconds of a round, by worker 0, without the first tenth."""
    import numpy as np  # pylint: disable=import-outside-toplevel
    import agg_server as agg  # pylint: disable=import-outside-toplevel
    seconds = []
    config = {"combination": {"rule": rule}}
    with agg.LocalServer(workers=WORKERS, shards=shards, lr=1e-3,
                         config=config) as server:
        stop = threading.Event()
        process = threading.Thread(
            target=agg.serve_rule, args=(
                lambda gram, info: np.full(len(gram), 1 / len(gram)),
                server.address), kwargs={"stop": stop}, daemon=True)
        if rule == "external":
            process.start()

        def work(rank):
            gradient = {"w": np.full(ELEMENTS, rank + 1, np.float32)}
            with agg.Client({"w": np.zeros(ELEMENTS, np.float32)},
                            server.address, rank) as client:
                for r in range(rounds):
                    begin = time.perf_counter()
                    outcome = client.step(gradient)
                    if rank == 0 and r >= rounds // 10:
                        if outcome.message:
                            raise SystemExit(outcome.message)
                        seconds.append(time.perf_counter() - begin)

        with concurrent.futures.ThreadPoolExecutor(WORKERS) as threads:
            list(threads.map(work, range(WORKERS)))
        stop.set()
        if rule == "external":
            process.join()
    return statistics.median(seconds)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin", default="bazel-bin", type=pathlib.Path)
    parser.add_argument("--rounds", default=2000, type=int)
    parser.add_argument("--shards", default=1, type=int)
    options = parser.parse_args()
    os.environ["AGG_SERVER"] = str(options.bin / "server/agg_server")
    os.environ["AGG_LIBRARY"] = str(options.bin / "worker_client/c/libagg.so")
    added = []
    for turn in range(TURNS):
        mean, external = (median_round(rule, options.rounds, options.shards)
                          for rule in ("mean", "external"))
        added.append(external - mean)
        print(f"turn {turn}: mean {mean * 1e3:.3f} ms, external "
              f"{external * 1e3:.3f} ms", flush=True)
    print(f"added: {statistics.median(added) * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
