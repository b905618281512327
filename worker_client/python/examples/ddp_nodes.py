"""Nodes as workers: DDP averages inside a node, one process of it pushes.

    torchrun --nproc-per-node 4 ddp_nodes.py

Here two nodes of two processes each are on one machine, with gloo. With GPUs
the node's group is NCCL's, and DDP takes device_ids=[local_rank].
"""

import toy
import torch
import torch.distributed as dist

import agg_server as agg

NODE_SIZE = 2


def main():
    options = toy.arguments(__doc__)
    dist.init_process_group("gloo")
    rank, num_nodes = dist.get_rank(), dist.get_world_size() // NODE_SIZE
    # Two groups of each node: DDP's own, and one for what comes back.
    pairs = [[dist.new_group(range(n * NODE_SIZE, (n + 1) * NODE_SIZE))
              for _ in range(2)] for n in range(num_nodes)]
    node_group, side_group = pairs[rank // NODE_SIZE]
    with toy.shared_server(workers=num_nodes, rule="adasum",
                           optimizer="none") as coordinator:
        net = toy.model()
        worker = (agg.Worker(net, coordinator, rank // NODE_SIZE, "combine")
                  if rank % NODE_SIZE == 0 else None)
        state = agg.NodeState(net, node_group, side_group, worker)
        state.examples = NODE_SIZE * toy.SIZE
        ddp = torch.nn.parallel.DistributedDataParallel(
            net, process_group=node_group)
        ddp.register_comm_hook(state, agg.node_hook)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        for x, y in toy.batches(rank, options.steps):
            optimizer.zero_grad()
            toy.loss_fn(ddp(x), y).backward()
            state.check()
            optimizer.step()
        toy.report(rank, state.last, dict(net.named_parameters()),
                   options.save)
        dist.barrier()
        if worker is not None:
            worker.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
