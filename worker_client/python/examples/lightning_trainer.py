"""Lightning: configure_optimizers returns the server's.

    agg-launch -n 2 --rule adasum --lr 0.1 lightning_trainer.py

One round for each optimizer step, accumulation included.
"""

import os

import lightning
import toy
import torch

import agg_server as agg


class Regression(lightning.LightningModule):
    """A worker is made once, of the model that is trained."""

    def __init__(self, rank):
        super().__init__()
        self.net = toy.model()
        self.worker = agg.Worker(self, rank=rank)

    def training_step(self, batch, _):
        x, y = batch
        return toy.loss_fn(self.net(x), y)

    def configure_optimizers(self):
        return agg.ServerOptimizer(self.worker)


def main():
    options = toy.arguments(__doc__)
    # Lightning would take these for a process group of torch.distributed.
    rank, _, _ = (int(os.environ.pop(name))
                  for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    batches = list(toy.batches(rank, 2 * options.steps))
    module = Regression(rank)
    lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=1,
        accumulate_grad_batches=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False).fit(
            module, torch.utils.data.DataLoader(batches, batch_size=None))
    worker = module.worker
    toy.report(rank, worker.last, worker.tensors, options.save)
    worker.close()


if __name__ == "__main__":
    main()
