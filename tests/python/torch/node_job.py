"""One process of node_test.

Four ranks, two nodes. Each compares its gradients with Adasum of the node
means, which it computes from everybody's data.
"""

import torch
import torch.distributed as dist

from tests.python.job_case import agg

ROUNDS = 4  # DDP makes other buckets after the first one


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(),
        torch.nn.Linear(32, 24), torch.nn.Tanh(), torch.nn.Linear(24, 3))


def local_gradients(net, rank, i):
    generator = torch.Generator().manual_seed(100 * i + rank)
    x = torch.randn(6, 16, generator=generator)
    net.zero_grad()
    net(x).pow(2).mean().backward()
    return [p.grad.clone() for p in net.parameters()]


def adasum(a, b):
    """Of two vectors, in double."""
    a, b = a.double(), b.double()
    dot, aa, bb = (a * b).sum(), (a * a).sum(), (b * b).sum()
    return (1 - dot / (2 * aa)) * a + (1 - dot / (2 * bb)) * b


def run(rank, folder, coordinator, bucket_mb):
    """Raises if a gradient differs."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store",
                            rank=rank, world_size=4)
    groups = [[dist.new_group([2 * n, 2 * n + 1]) for _ in range(2)]
              for n in range(2)]
    node, side = groups[rank // 2]
    net = model()
    worker = (agg.Worker(net, coordinator, rank // 2, mode="combine")
              if rank % 2 == 0 else None)
    state = agg.NodeState(net, node, side, worker)
    ddp = torch.nn.parallel.DistributedDataParallel(
        net, process_group=node, bucket_cap_mb=bucket_mb)
    ddp.register_comm_hook(state, agg.node_hook)
    for i in range(ROUNDS):
        found = local_gradients(ddp, rank, i)
        state.check()
        others = [local_gradients(model(), r, i) for r in range(4)]
        for k, gradient in enumerate(found):
            means = [(others[2 * n][k].double() + others[2 * n + 1][k]) / 2
                     for n in range(2)]
            expected = adasum(*means)
            error = (gradient - expected).norm() / expected.norm()
            # Three roundings to float32: the node's sum, the mean, the result.
            assert error < 1e-6, (i, k, error)
    dist.barrier()
    if worker is not None:
        assert state.last.ranks == (0, 1), state.last
        worker.close()
    dist.destroy_process_group()
