"""FSDP2 inside a node: the first process of each node pushes whole gradients.

    torchrun --nproc-per-node 4 fsdp.py

FSDP averages in the node and leaves each process a shard of each gradient. A
combination of shards would be another algorithm than that of tensors, so each
is gathered, combined, and scattered again. With GPUs: "cuda" and NCCL.
"""

import toy
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor

import agg_server as agg


def gather(shards, leader, group):
    """A DTensor, whole, on the leader; None elsewhere. FSDP cuts the first
    dimension, so that the last shards may be shorter than the first one."""
    own, size = shards.to_local(), dist.get_world_size(group)
    rows = -(-shards.shape[0] // size)
    padded = own.new_zeros(rows, *own.shape[1:])
    padded[:len(own)] = own
    if dist.get_rank() != leader:
        dist.gather(padded, dst=leader, group=group)
        return None
    parts = [torch.empty_like(padded) for _ in range(size)]
    dist.gather(padded, parts, leader, group)
    return torch.cat(parts)[:shards.shape[0]]


def combine(net, worker, leader, group, examples):
    """Puts the combined gradient into each p.grad; whether there is one. An
    error of the round is raised in every process of the node."""
    applied, error = torch.zeros(1), None
    for name, p in net.named_parameters():
        whole = gather(p.grad, leader, group)
        if worker is not None:
            worker.tensors[name].grad = whole
    if worker is not None:
        try:
            applied += worker.combine(examples=examples).applied
        except agg.Error as raised:
            applied, error = applied - 1, raised
    # The others must hear of it, or they would wait for ever.
    dist.broadcast(applied, leader, group=group)
    if applied < 0:
        raise error or agg.Error("the node's worker has failed; its own "
                                 "process says why")
    for name, p in net.named_parameters():
        whole = (worker.tensors[name].grad if worker is not None
                 else torch.empty(p.shape))
        p.grad = distribute_tensor(whole, p.device_mesh, p.placements)
    return bool(applied)


def main():
    options = toy.arguments(__doc__)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2),
                            mesh_dim_names=("node", "shard"))
    group = mesh["shard"].get_group()
    leader = dist.get_global_rank(group, 0)
    with toy.shared_server(workers=mesh.size(0), rule="adasum",
                           optimizer="none") as coordinator:
        net = toy.model()
        shapes = {name: torch.zeros_like(p)
                  for name, p in net.named_parameters()}
        worker = (agg.Worker(shapes, coordinator, rank // 2, "combine")
                  if rank == leader else None)
        fully_shard(net, mesh=mesh["shard"])
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in toy.batches(rank, options.steps):
            optimizer.zero_grad()
            toy.loss_fn(net(x), y).backward()
            if combine(net, worker, leader, group, examples=2 * len(x)):
                optimizer.step()
        toy.report(rank, worker and worker.last,
                   {name: p.full_tensor()
                    for name, p in net.named_parameters()}, options.save)
        dist.barrier()
        if worker is not None:
            worker.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
