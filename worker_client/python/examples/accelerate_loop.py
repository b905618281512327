"""Accelerate: the server's optimizer is prepared as another one.

    agg-launch -n 2 --rule adasum --lr 0.1 accelerate_loop.py

One round for each optimizer step, accumulation included.
"""

import os

import accelerate
import toy

import agg_server as agg


def main():
    options = toy.arguments(__doc__)
    # Accelerate would take these for a process group of torch.distributed.
    rank, _, _ = (int(os.environ.pop(name))
                  for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    accelerator = accelerate.Accelerator(cpu=True,
                                         gradient_accumulation_steps=2)
    net = toy.model()
    with agg.Worker(net, rank=rank) as worker:
        model, optimizer = accelerator.prepare(net,
                                               agg.ServerOptimizer(worker))
        for x, y in toy.batches(rank, 2 * options.steps):
            with accelerator.accumulate(model):
                accelerator.backward(toy.loss_fn(model(x), y))
                optimizer.step()  # a round at every second one
                optimizer.zero_grad()
        toy.report(rank, worker.last, worker.tensors, options.save)


if __name__ == "__main__":
    main()
