#!/usr/bin/env python3
"""What the Python package costs beside the rounds themselves.

    PYTHON tests/bench/python_costs.py BAZEL_BIN clients [--clients=N --rounds=N]
    PYTHON tests/bench/python_costs.py BAZEL_BIN zero_copy [--mebibytes=N]

`clients`: many clients in one process, of a few numbers each: the processor time
of the process while nothing happens, and of one round of all of them.

`zero_copy` (PYTHON has torch): the anonymous memory that a Worker adds, with and
without `zero_copy`, each in a process of its own.
"""

import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "worker_client" / "python"))

IDLE_SECONDS = 3


def in_threads(count, work):
    with concurrent.futures.ThreadPoolExecutor(count) as threads:
        list(threads.map(work, range(count)))  # raises what a thread raised


def measure_clients(count, rounds):
    import numpy as np
    import agg_server as agg
    with agg.LocalServer(workers=count, lr=.1) as server:
        clients = [None] * count

        def join(i):
            clients[i] = agg.Client({"w": np.zeros(1000, np.float32)},
                                    server.address, i)

        in_threads(count, join)
        gradient = {"w": np.ones(1000, np.float32)}
        begin, used = time.monotonic(), time.process_time()
        time.sleep(IDLE_SECONDS)
        idle = (time.process_time() - used) / (time.monotonic() - begin)

        def step(i):
            for _ in range(rounds):
                clients[i].step(gradient)

        begin, used = time.monotonic(), time.process_time()
        in_threads(count, step)
        print(f"{count} clients in a process: {idle:.2f} s of processor time a "
              f"second while idle; a round takes "
              f"{(time.process_time() - used) / rounds * 1e3:.1f} ms of it and "
              f"{(time.monotonic() - begin) / rounds * 1e3:.1f} ms of time")
        for client in clients:
            client.close()


def anonymous_mebibytes():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    raise SystemExit("/proc/self/status has no RssAnon")


def measure_worker(zero_copy, mebibytes):
    import torch
    import agg_server as agg
    tensors = 10
    columns = mebibytes * 2**20 // 4 // 1000 // tensors
    net = torch.nn.ModuleList([torch.nn.Linear(1000, columns, bias=False)
                               for _ in range(tensors)])
    with agg.LocalServer(workers=1, lr=.1) as server:
        before = anonymous_mebibytes()
        with agg.Worker(net, server.address, 0, zero_copy=zero_copy):
            print(f"zero_copy={zero_copy}: a Worker of {mebibytes} MiB of "
                  f"parameters adds {anonymous_mebibytes() - before:.0f} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bazel_bin", type=pathlib.Path)
    parser.add_argument("what", choices=("clients", "zero_copy"))
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--mebibytes", type=int, default=190)
    parser.add_argument("--of", choices=("True", "False"),
                        help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["AGG_SERVER"] = str(options.bazel_bin / "server" / "agg_server")
    os.environ["AGG_LIBRARY"] = str(options.bazel_bin / "worker_client" / "c" /
                                    "libagg.so")
    if options.what == "clients":
        measure_clients(options.clients, options.rounds)
    elif options.of:
        measure_worker(options.of == "True", options.mebibytes)
    else:
        for of in ("False", "True"):
            subprocess.run([sys.executable, *sys.argv, f"--of={of}"],
                           check=True)


if __name__ == "__main__":
    main()
