"""torchft's DiLoCo, whose manager is this project's.

    agg-launch -n 2 --rule adasum --optimizer none torchft_diloco.py

No lighthouse, no quorum: a round waits for the job's workers. Without torchft,
agg.LocalSteps and the server's optimizer "add" give the same parameters.
"""

import toy
import torch
from torchft.local_sgd import DiLoCo

import agg_server as agg
from agg_server.torchft import Manager


def main():
    options = toy.arguments(__doc__)
    net = toy.model()
    inner = torch.optim.SGD(net.parameters(), lr=0.1)
    outer = torch.optim.SGD(net.parameters(), lr=0.7, momentum=0.9,
                            nesterov=True)
    with agg.Worker(net, mode="combine") as worker:
        with DiLoCo(Manager(worker), [net], inner, outer, sync_every=5):
            for x, y in toy.batches(worker.rank, options.steps):
                inner.zero_grad()
                toy.loss_fn(net(x), y).backward()
                inner.step()  # a round after each fifth
        toy.report(worker.rank, worker.last, worker.tensors, options.save)


if __name__ == "__main__":
    main()
