"""Hugging Face's Trainer: its optimizer is the server's.

    agg-launch -n 2 --rule adasum --lr 0.1 hf_trainer.py

One round for each of its optimizer steps, accumulation included.
"""

import os
import tempfile

import toy
import torch
import transformers

import agg_server as agg


class Regression(torch.nn.Module):
    """Trainer wants the loss from the model."""

    def __init__(self):
        super().__init__()
        self.net = toy.model()

    def forward(self, x, labels):
        return {"loss": toy.loss_fn(self.net(x), labels)}


def main():
    options = toy.arguments(__doc__)
    # Trainer would take these for a process group of torch.distributed.
    rank, _, _ = (int(os.environ.pop(name))
                  for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    examples = [{"x": x, "labels": y}
                for xs, ys in toy.batches(rank, 2 * options.steps)
                for x, y in zip(xs, ys)]
    model = Regression()
    with agg.Worker(model, rank=rank) as worker, \
            tempfile.TemporaryDirectory() as folder:
        optimizer = agg.ServerOptimizer(worker)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1.0)
        transformers.Trainer(
            model, transformers.TrainingArguments(
                folder, per_device_train_batch_size=toy.SIZE,
                gradient_accumulation_steps=2, max_steps=options.steps,
                max_grad_norm=0,  # else it clips before the push
                train_sampling_strategy="sequential", use_cpu=True,
                report_to=[], save_strategy="no", disable_tqdm=True),
            train_dataset=examples, optimizers=(optimizer, schedule)).train()
        toy.report(rank, worker.last, worker.tensors, options.save)


if __name__ == "__main__":
    main()
