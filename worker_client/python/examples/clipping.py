"""Clipping comes after the combination, and before the optimizer.

    agg-launch -n 2 --rule adasum --optimizer none clipping.py

A gradient that is clipped before it is pushed has another length and another
weight, which Adasum, AdaCons and AdaScale would take for the data's. With the
server's optimizer, say `clip_norm` in the job instead.
"""

import toy
import torch

import agg_server as agg


def main():
    options = toy.arguments(__doc__)
    net = toy.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    with agg.Worker(net, mode="combine") as worker:
        for x, y in toy.batches(worker.rank, options.steps):
            optimizer.zero_grad()
            loss = toy.loss_fn(net(x), y)
            loss.backward()
            if worker.combine(loss=loss, examples=len(x)).applied:
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.25)
                optimizer.step()
        toy.report(worker.rank, worker.last, worker.tensors, options.save)


if __name__ == "__main__":
    main()
