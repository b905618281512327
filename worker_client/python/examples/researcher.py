# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     name: python3
#     display_name: Python 3
# ---

# %% [markdown]
# # A bench for rules
#
# This notebook trains a small network with eight workers, looks at what the
# server saw, compares three rules, and tries a rule of its own.
#
#     pip install jupytext notebook matplotlib   # and the wheel of this package
#     jupytext --to ipynb researcher.py          # or, as a plain program:
#     python3 researcher.py [--rounds 60] [--plot researcher.png]

# %%
import argparse
import pathlib
import tempfile
import threading

import numpy as np

import agg_server as agg

parser = argparse.ArgumentParser(description="Compares rules on one job.")
parser.add_argument("--rounds", type=int, default=60)
parser.add_argument("--plot", default="researcher.png", help="a file")
# A notebook has arguments of its own.
options, _ = parser.parse_known_args()
folder = pathlib.Path(tempfile.mkdtemp(prefix="researcher_"))
WORKERS, BATCH, RATE = 8, 16, 0.1

# %% [markdown]
# ## A task
#
# Five classes of points in 20 dimensions, and a network with one hidden layer.
# The last worker has wrong labels half of the time.


# %%
def new_parameters():
    random = np.random.default_rng(0)
    return {"hidden/w": random.normal(0, 0.3, (20, 16)).astype(np.float32),
            "hidden/b": np.zeros(16, np.float32),
            "output/w": random.normal(0, 0.3, (16, 5)).astype(np.float32),
            "output/b": np.zeros(5, np.float32)}


CENTERS = np.random.default_rng(1).normal(0, 0.8, (5, 20))


def examples(random, number, wrong=0.0):
    labels = random.integers(5, size=number)
    points = CENTERS[labels] + random.normal(0, 1, (number, 20))
    mixed = random.random(number) < wrong
    return points, np.where(mixed, random.integers(5, size=number), labels)


def loss_and_gradient(p, points, labels):
    hidden = np.tanh(points @ p["hidden/w"] + p["hidden/b"])
    logits = hidden @ p["output/w"] + p["output/b"]
    logits -= logits.max(axis=1, keepdims=True)
    chances = np.exp(logits)
    chances /= chances.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(chances[rows, labels]).mean()
    chances[rows, labels] -= 1
    chances /= len(labels)
    back = chances @ p["output/w"].T * (1 - hidden ** 2)
    gradient = {"hidden/w": points.T @ back, "hidden/b": back.sum(axis=0),
                "output/w": hidden.T @ chances,
                "output/b": chances.sum(axis=0)}
    return loss, {name: values.astype(np.float32)
                  for name, values in gradient.items()}


# %% [markdown]
# ## A run
#
# Each worker is a thread with a client. The round log has the Gram matrix of
# each tensor, and what two shadow rules would have done with the same rows.


# %%
def work(address, rank):
    parameters = new_parameters()
    random = np.random.default_rng(100 + rank)
    wrong = 0.5 if rank == WORKERS - 1 else 0.0
    with agg.Client(parameters, address, rank) as client:
        for _ in range(options.rounds):
            loss, gradient = loss_and_gradient(
                parameters, *examples(random, BATCH, wrong))
            client.step(gradient, examples=BATCH, loss=loss)
    if rank == 0:
        final.update(parameters)


final = {}


def train(rule, shadows=()):
    path = folder / f"{rule}.binlog"
    config = {"round_log": {"path": str(path), "grams": "per_tensor"},
              "shadow_rules": [{"rule": name, "scope": "global"}
                               for name in shadows],
              "combination": {"rule": rule, "scope": "global"}}
    with agg.LocalServer(workers=WORKERS, lr=RATE, config=config,
                         job=rule) as server:
        threads = [threading.Thread(target=work, args=(server.address, rank))
                   for rank in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    test = examples(np.random.default_rng(7), 2000)
    return agg.RoundLog(path), float(loss_and_gradient(final, *test)[0])


log, loss = train("mean", ["adasum", "adacons"])
print(log)
print(f"mean: held-out loss {loss:.3f}")

# %% [markdown]
# ## Look
#
# Every number of a round is an array. What looks like a mistake comes first in
# the advice, then what the number of workers is worth, and which shadow rule's
# direction was nearer to the true gradient.

# %%
for name in ("orthogonality", "gain", "gradient_noise_scale"):
    print(f"{name}: {log[name][0]:.3g} in the first round, "
          f"{log[name][-1]:.3g} in the last one")
print("orthogonality of layers:", dict(zip(
    log.layers, log.layer_orthogonality[-1].round(2).tolist())))
print(agg.advise(log))

# %%
try:
    from agg_server import plot
    plot.overview(log).savefig(options.plot)
    print(f"pictures: {options.plot}")
except agg.Error as error:  # without matplotlib
    print(error)

# %% [markdown]
# ## Three rules, trained
#
# The same data, seeds and rate. A rule whose combination is longer makes longer
# steps, so that one rate is no fair comparison of where training ends; a rate
# of its own for each rule is (tests/papers).

# %%
for rule in ("mean", "adasum", "adacons"):
    its_log, loss = train(rule)
    print(f"{rule}: held-out loss {loss:.3f}, "
          f"mean length of the combination "
          f"{its_log.combined_norm.mean():.3g}")

# %% [markdown]
# ## A rule of its own
#
# A rule is a function of the Gram matrix: it makes a weight for each row. This
# one trusts a row as much as it agrees with the others. `agg.compare` judges
# rules on the log, with one worker left out in turn, and needs no training.


# %%
def by_agreement(gram, _):
    lengths = np.sqrt(np.diagonal(gram))
    cosines = gram / np.outer(lengths, lengths)
    agreement = np.maximum(cosines.sum(axis=1) - 1, 0)
    return agreement / lengths / max(agreement.sum(), 1e-12)


for score in agg.compare(log, ["mean", "adasum", "adacons", by_agreement]):
    print(f"{score.rule:12} {score.difference.mean:+.1%} "
          f"({score.difference.low:+.1%} to {score.difference.high:+.1%}) "
          f"{score.verdict}")
