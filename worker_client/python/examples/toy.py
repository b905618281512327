"""What the examples share: a small model, its data, and what they print."""

import argparse
import contextlib
import hashlib
import os

import torch
import torch.distributed as dist

import agg_server as agg

SIZE = 8  # examples in a batch


def arguments(doc, steps=20):
    """--steps and --save of an example; `doc`: its docstring."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--save", help="folder for the final parameters")
    return parser.parse_args()


def model():
    """The same in every process."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(),
                                   torch.nn.Linear(32, 1))


def batches(rank, number, size=SIZE):
    """(x, y) of one rank; y is a function of x that the model can learn."""
    generator = torch.Generator().manual_seed(rank)
    for _ in range(number):
        x = torch.randn(size, 16, generator=generator)
        yield x, x[:, :8].sum(1, keepdim=True).sin()


def loss_fn(output, target):
    """Mean over the batch."""
    return torch.nn.functional.mse_loss(output, target)


def report(rank, outcome, parameters, save=None):
    """One line; replicas print the same hash. parameters: tensors by name."""
    found = {name: p.detach().clone() for name, p in parameters.items()}
    sha = hashlib.sha256(b"".join(p.numpy().tobytes()
                                  for p in found.values())).hexdigest()[:12]
    # One write: the lines of several processes must not mix.
    print(f"rank {rank}: version {outcome.version if outcome else '-'}, "
          f"parameters {sha}\n", end="", flush=True)
    if save:
        torch.save(found, os.path.join(save, f"rank{rank}.pt"))


@contextlib.contextmanager
def shared_server(**options):
    """The coordinator's address in each process of a torch.distributed job,
    whose rank 0 has the server; options: LocalServer's."""
    server = agg.LocalServer(**options) if dist.get_rank() == 0 else None
    address = [server.address if server else ""]
    dist.broadcast_object_list(address)
    try:
        yield address[0]
        dist.barrier()
    finally:
        if server:
            server.close()
