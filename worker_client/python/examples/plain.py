"""A plain loop: the optimizer is the server's.

    agg-launch -n 2 --shards 2 --rule adasum --lr 0.1 plain.py
"""

import toy

import agg_server as agg


def main():
    options = toy.arguments(__doc__)
    net = toy.model()
    with agg.Worker(net) as worker:  # AGG_COORDINATOR, RANK
        for x, y in toy.batches(worker.rank, options.steps):
            loss = toy.loss_fn(net(x), y)
            loss.backward()
            outcome = worker.step(loss=loss, examples=len(x))
            if outcome.finished:
                break
        toy.report(worker.rank, worker.last, worker.tensors, options.save)


if __name__ == "__main__":
    main()
