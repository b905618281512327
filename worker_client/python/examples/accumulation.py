"""Accumulated micro-batches, and ranks with batches of different sizes.

    agg-launch -n 2 --rule weighted_mean --lr 0.1 accumulation.py

Rank r makes r + 1 micro-batches in each step. The rule weights each row by its
examples, so that the result is the gradient of the mean over all of them.
"""

import toy

import agg_server as agg


def main():
    options = toy.arguments(__doc__)
    net = toy.model()
    with agg.Worker(net) as worker:
        micro = worker.rank + 1
        batches = toy.batches(worker.rank, micro * options.steps)
        for i, (x, y) in enumerate(batches, 1):
            loss = toy.loss_fn(net(x), y)
            (loss / micro).backward()  # adds to p.grad
            if i % micro == 0:
                worker.step(loss=loss, examples=micro * len(x),
                            accumulation=micro)
        toy.report(worker.rank, worker.last, worker.tensors, options.save)


if __name__ == "__main__":
    main()
