"""One process of gloo's all_reduce, the peer that the benchmark compares with.

Runs in an environment of its own, which has PyTorch. Speaks with bench.py as
tests/bench/transport_worker.cc does: prints a line when it is ready, does as
many rounds as each line of stdin says, and prints when each began and ended.
"""

import argparse
import json
import os
import sys
import time


def main():
    parser = argparse.ArgumentParser()
    for name in ("rank", "workers", "elements"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--store", required=True)
    options = parser.parse_args()

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    import torch  # Here alone: it takes seconds, and may be missing.
    from torch import distributed

    distributed.init_process_group(
        "gloo", init_method=f"file://{options.store}", rank=options.rank,
        world_size=options.workers)
    torch.manual_seed(options.rank)
    row = torch.rand(options.elements, dtype=torch.float32)
    print(json.dumps({"ready": True}), flush=True)
    for line in iter(sys.stdin.readline, ""):
        for _ in range(int(line)):
            row /= options.workers  # so that the sums stay finite
            distributed.barrier()
            begin = time.monotonic_ns()
            distributed.all_reduce(row)
            end = time.monotonic_ns()
            print(json.dumps({"begin": begin, "end": end}), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
