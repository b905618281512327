"""One process of `deploy/bench.sh --python`: it trains with DDP over gloo or
with the Python package's Worker, or makes bare rounds of the latter.

Runs in an environment of its own, which has PyTorch. Prints a line when it is
ready; does as many steps as each line of stdin says, and prints for each when
it began and ended, and for how long backward() and what synchronizes took, in
nanoseconds.
"""

import argparse
import contextlib
import ctypes
import json
import mmap
import os
import sys
import time

# Of the model's input: small, so that the gradient weighs as it does on a
# processor that computes faster.
_BATCH, _SIDE = 2, 32


def parse():
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--system", choices=("ddp", "train", "rounds"), required=True)
    for name in ("rank", "workers"):
        add(f"--{name}", type=int, required=True)
    add("--store", default="")
    add("--coordinator", default="")
    add("--package", default="", help="the folder with agg_server")
    add("--libagg", default="", help="libagg.so")
    add("--transport", choices=("tcp", "shm_copy"), default="tcp")
    add("--variant", default="", help="overlap, zero_copy, with commas")
    add("--elements", type=int, default=0)
    add("--tensors", type=int, default=0)
    add("--barrier", default="", help="a pthread_barrier_t of all workers")
    return parser.parse_args()


def make_model(torch):
    """A residual network of ResNet-18's shape: 11.2 M parameters, 62 tensors.

    With GroupNorm, since BatchNorm's statistics are no gradients.
    """
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inner, outer, stride):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(inner, outer, 3, stride, 1, bias=False),
                nn.GroupNorm(8, outer), nn.ReLU(),
                nn.Conv2d(outer, outer, 3, 1, 1, bias=False),
                nn.GroupNorm(8, outer))
            self.shortcut = nn.Sequential() if inner == outer else \
                nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False),
                              nn.GroupNorm(8, outer))

        def forward(self, x):
            return torch.relu(self.body(x) + self.shortcut(x))

    layers = [nn.Conv2d(3, 64, 3, 2, 1, bias=False), nn.GroupNorm(8, 64),
              nn.ReLU()]
    inner = 64
    for outer, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inner, outer, stride), Block(outer, outer, 1)]
        inner = outer
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(*layers)


def open_worker(options, torch, model):
    """The package's worker, of this model or these tensors."""
    os.environ["AGG_LIBRARY"] = options.libagg
    sys.path.insert(0, options.package)
    import agg_server as agg
    variants = dict.fromkeys(filter(None, options.variant.split(",")), True)
    worker = agg.Worker(
        model, options.coordinator, options.rank, tune_malloc=True,
        local_sockets=int(options.transport != "tcp"), recovery_window=0.0,
        **variants)
    used = {"tcp": "tcp", "shm_copy": "shm"}[options.transport]
    # Clients fall back by themselves: a number under a wrong name would be
    # worse than none.
    if set(worker.job.transports) != {used}:
        sys.exit(f"a shard was reached over {worker.job.transports}")
    return worker


def barrier_of(path):
    """A function that waits for all workers, or for nobody without a path."""
    if not path:
        return lambda: None
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    barrier = ctypes.c_char.from_buffer(memory)
    wait = ctypes.CDLL(None).pthread_barrier_wait
    return lambda: wait(ctypes.byref(barrier))


def rounds(options, torch):
    """Bare rounds, whose gradients are there: what the package costs."""
    wait_for_all = barrier_of(options.barrier)
    share = options.elements // options.tensors
    sizes = [share] * (options.tensors - 1)
    sizes.append(options.elements - sum(sizes))
    tensors = {f"tensor_{i}": torch.zeros(size, requires_grad=True)
               for i, size in enumerate(sizes)}
    row = [torch.rand(size) for size in sizes]
    worker = open_worker(options, torch, tensors)

    def step():
        for tensor, gradient in zip(tensors.values(), row):
            tensor.grad = gradient
        wait_for_all()
        begin = time.monotonic_ns()
        worker.step()
        end = time.monotonic_ns()
        return {"begin": begin, "end": end}

    return step, worker.close


def training(options, torch):
    """Complete steps: forward, backward, and the others' gradients."""
    torch.manual_seed(0)
    model = make_model(torch)
    generator = torch.Generator().manual_seed(options.rank)
    x = torch.randn(_BATCH, 3, _SIDE, _SIDE, generator=generator)
    y = torch.randint(10, (_BATCH,), generator=generator)
    if options.system == "ddp":
        from torch import distributed
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        distributed.init_process_group(
            "gloo", init_method=f"file://{options.store}", rank=options.rank,
            world_size=options.workers)
        net = torch.nn.parallel.DistributedDataParallel(
            model, gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def synchronize():
            optimizer.step()
            optimizer.zero_grad()
        close = distributed.destroy_process_group
    else:
        net, worker = model, open_worker(options, torch, model)
        synchronize, close = worker.step, worker.close

    def step():
        begin = time.monotonic_ns()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        forward = time.monotonic_ns()
        loss.backward()
        backward = time.monotonic_ns()
        synchronize()
        end = time.monotonic_ns()
        return {"begin": begin, "end": end, "backward": backward - forward,
                "sync": end - backward}

    return step, close


def main():
    options = parse()
    import torch  # Here alone: it takes seconds, and may be missing.
    torch.set_num_threads(1)  # processes share the processors
    make = rounds if options.system == "rounds" else training
    step, close = make(options, torch)
    print(json.dumps({"ready": True}), flush=True)
    for line in iter(sys.stdin.readline, ""):
        # Printed behind all of them: nobody waits for a pipe between two.
        lines = [step() for _ in range(int(line))]
        print("\n".join(map(json.dumps, lines)), flush=True)
    with contextlib.suppress(Exception):
        close()


if __name__ == "__main__":
    main()
