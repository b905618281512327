"""Workers that torchrun starts; rank 0 starts the server, too.

    torchrun --nproc-per-node 2 by_torchrun.py

torchrun sets RANK, which Worker takes. A server elsewhere: AGG_COORDINATOR in
the environment, and no process group is needed at all.
"""

import toy
import torch.distributed as dist

import agg_server as agg


def main():
    options = toy.arguments(__doc__)
    dist.init_process_group("gloo")
    with toy.shared_server(workers=dist.get_world_size(), rule="adasum",
                           lr=0.1) as coordinator:
        net = toy.model()
        with agg.Worker(net, coordinator) as worker:
            for x, y in toy.batches(worker.rank, options.steps):
                loss = toy.loss_fn(net(x), y)
                loss.backward()
                worker.step(loss=loss, examples=len(x))
            toy.report(worker.rank, worker.last, worker.tensors, options.save)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
