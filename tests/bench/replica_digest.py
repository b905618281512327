#!/usr/bin/env python3
"""What comparing replicas costs a step of mode "combine", in one run.

    PYTHON tests/bench/replica_digest.py BAZEL_BIN

PYTHON has torch (deploy/torch_venv.sh prints one). Two worker processes on this
machine train perceptrons with Adam on one shard; steps with and without a digest
take turns, in both processes the same ones. Prints, for each size, the medians of
the steps and of the digest alone, and their ratios to the step without.
"""

import argparse
import multiprocessing
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "worker_client" / "python"))

WORKERS = 2


def work(rank, address, width, depth, examples, steps, results):
    """Puts (seconds with, seconds without, seconds of the digest) of each."""
    import torch
    import agg_server as agg
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    net = torch.nn.Sequential(*[
        layer for _ in range(depth)
        for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())])
    with agg.Worker(net, address, rank, mode="combine") as worker:
        opt = agg.Combined(torch.optim.Adam(net.parameters()), worker)
        replica = worker._replica
        x = torch.randn(examples, width)
        times = ([], [])
        alone = []
        for i in range(2 * steps):
            worker._replica = None if i % 2 else replica
            begin = time.perf_counter()
            opt.zero_grad()
            net(x).pow(2).mean().backward()
            opt.step()
            times[i % 2].append(time.perf_counter() - begin)
            begin = time.perf_counter()
            replica.digest(worker.version)
            alone.append(time.perf_counter() - begin)
        results.put((*times, alone))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bazel_bin", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--examples", type=int, default=32)
    options = parser.parse_args()
    os.environ["AGG_SERVER"] = str(options.bazel_bin / "server" / "agg_server")
    os.environ["AGG_LIBRARY"] = str(
        options.bazel_bin / "worker_client" / "c" / "libagg.so")
    import agg_server as agg
    spawn = multiprocessing.get_context("spawn")
    print("parameters  step, ms  with digest  digest alone, ms  of the step")
    for width, depth in ((64, 3), (256, 4), (1024, 4)):
        with agg.LocalServer(workers=WORKERS, optimizer="none") as server:
            results = spawn.Queue()
            ranks = [spawn.Process(target=work, args=(
                rank, server.address, width, depth, options.examples,
                options.steps, results)) for rank in range(WORKERS)]
            for process in ranks:
                process.start()
            found = [results.get(timeout=600) for _ in ranks]
            for process in ranks:
                process.join()
        with_it, without, alone = (
            statistics.median(value for rank in found for value in rank[k][2:])
            for k in range(3))
        print(f"{depth * width * (width + 1):10d}  {1e3 * without:8.2f}  "
              f"{with_it / without:11.3f}  {1e3 * alone:16.3f}  "
              f"{alone / without:11.2%}", flush=True)


if __name__ == "__main__":
    main()
