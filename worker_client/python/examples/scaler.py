"""GradScaler: an inf on one rank costs that rank's row of that round alone.

    agg-launch -n 2 --rule adasum --optimizer none scaler.py

Rank 1 has an inf in the third step. The others do not wait for it, nobody's
parameters differ, and the scale of rank 1 alone is halved.
"""

import toy
import torch

import agg_server as agg


def main():
    options = toy.arguments(__doc__)
    net = toy.model()
    with agg.Worker(net, mode="combine") as worker:
        optimizer = agg.Combined(torch.optim.AdamW(net.parameters(), lr=1e-2),
                                 worker)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for i, (x, y) in enumerate(toy.batches(worker.rank, options.steps)):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                output = net(x)
            loss = toy.loss_fn(output.float(), y)
            scaler.scale(loss).backward()
            if worker.rank == 1 and i == 2:
                net[0].weight.grad[0, 0] = float("inf")
            optimizer.describe(loss=loss, examples=len(x))
            scaler.step(optimizer)  # no unscale_ before it
            scaler.update()
            if worker.last.excluded_ranks:
                print(f"rank {worker.rank}: scale {scaler.get_scale():g}, "
                      f"left out: {worker.last.excluded_ranks}", flush=True)
        toy.report(worker.rank, worker.last, worker.tensors, options.save)


if __name__ == "__main__":
    main()
