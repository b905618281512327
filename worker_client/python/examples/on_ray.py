"""Ray places the shards and the workers, and restarts what is lost.

    python3 on_ray.py

Starts Ray on this machine; RAY_ADDRESS in the environment names a cluster.
"""

import ray
import toy

import agg_server as agg
from agg_server.ray import RayJob


def train(rank, steps):
    """In a process of its own. A new one goes on at the job's version."""
    net = toy.model()
    with agg.Worker(net) as worker:  # AGG_COORDINATOR, RANK
        batches = list(toy.batches(rank, steps))
        while worker.version < steps:
            x, y = batches[worker.version]
            loss = toy.loss_fn(net(x), y)
            loss.backward()
            worker.step(loss=loss, examples=len(x))
        return worker.last, {name: p.detach()
                             for name, p in worker.tensors.items()}


def main():
    options = toy.arguments(__doc__)
    ray.init(num_cpus=4, include_dashboard=False)
    # Among machines that others reach, too: {"tls": {..}} in its place.
    with RayJob(shards=2, workers=2, rule="adasum", lr=0.1,
                config={"security": {"insecure": True}}) as job:
        results = job.run(train, options.steps)
    for rank, (outcome, parameters) in enumerate(results):
        toy.report(rank, outcome, parameters, options.save)
    ray.shutdown()


if __name__ == "__main__":
    main()
