"""Four workers train a small network together; a plot of what the server saw.

    pip install torch tqdm matplotlib    # and the wheel of this package
    python quickstart.py [--workers 4] [--rounds 100] [--plot quickstart.png]

Starts a server on this machine, and workers as processes of their own, each with
data of its own. AdaScale makes the rate larger by what the batch of all of them
is worth, the gain. Orthogonality (1/4: all four gradients are the same, 1: each
says something else) and gain (1 to the number of workers) are beside the
bar, and in the plot. Works in a notebook, too: import main from this file.
"""

import argparse
import multiprocessing

import torch
import tqdm

import agg_server as agg


def train(address, rank, rounds, history=None):
    """One worker. history: a list that gets an Outcome for each round."""
    torch.manual_seed(0)  # the same network everywhere
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(),
                                torch.nn.Linear(32, 1))
    data = torch.Generator().manual_seed(1 + rank)
    with agg.Worker(model, address, rank, overlap=True) as worker:
        bar = tqdm.tqdm(range(rounds), disable=history is None)
        for _ in bar:
            x = torch.randn(64, 8, generator=data)
            y = (x[:, :1] * x[:, 1:2]).sin() + x[:, 2:3]
            loss = (model(x) - y).pow(2).mean()
            loss.backward()
            outcome = worker.step(loss=loss, examples=len(x))
            if history is not None:
                history.append(outcome)
                bar.set_postfix(loss=outcome.loss, gain=outcome.gain,
                                orthogonality=outcome.orthogonality)
            if outcome.finished:
                break


def plot(history, path):
    """Loss, orthogonality and gain by version, into a file."""
    import matplotlib  # pylint: disable=import-outside-toplevel
    matplotlib.use("Agg")
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel
    figure, axes = pyplot.subplots(3, sharex=True, figsize=(7, 7))
    for axis, name in zip(axes, ("loss", "orthogonality", "gain")):
        axis.plot([o.version for o in history],
                  [getattr(o, name) for o in history])
        axis.set_ylabel(name)
    axes[-1].set_xlabel("version")
    figure.savefig(path)


def main(workers=4, rounds=100, path="quickstart.png"):
    """Returns the outcomes of all rounds."""
    history = []
    spawn = multiprocessing.get_context("spawn")
    with agg.LocalServer(workers=workers, rule="mean", lr=0.05,
                         step_scale="adascale") as server:
        others = [spawn.Process(target=train, args=(server.address, rank,
                                                    rounds), daemon=True)
                  for rank in range(1, workers)]
        for process in others:
            process.start()
        train(server.address, 0, rounds, history)
        for process in others:
            process.join()
    plot(history, path)
    return history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--plot", default="quickstart.png", help="a file")
    options = parser.parse_args()
    main(options.workers, options.rounds, options.plot)
