"""One process of fsdp_test: a node of two, whose worker cannot make its round."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.python.example_case import toy
from tests.python.job_case import agg

import fsdp  # an example; example_case knows where they are


class FailingWorker:
    """What combine() needs of the leader's worker."""

    def __init__(self, net):
        self.tensors = {name: torch.zeros(p.shape)
                        for name, p in net.named_parameters()}

    def combine(self, examples):
        raise agg.Timeout(f"{examples} examples, and nobody came")


def run(rank, folder):
    """Raises unless combine() raises here, too."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store",
                            rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    net = toy.model()
    worker = FailingWorker(net) if rank == 0 else None
    fully_shard(net, mesh=mesh)
    for x, y in toy.batches(rank, 2):
        toy.loss_fn(net(x), y).backward()
        try:
            fsdp.combine(net, worker, 0, mesh.get_group(), 16)
        except agg.Error as error:
            assert isinstance(error, agg.Timeout) == (rank == 0), error
        else:
            raise AssertionError("combine() has hidden the leader's error")
        net.zero_grad()
    dist.barrier()  # the leader has not just ended, which others would notice
    dist.destroy_process_group()
