"""JAX: agg.Client with the leaves of a pytree.

    agg-launch -n 2 --rule adasum --lr 0.1 jax_client.py

No torch. Client has numpy arrays of its own; jitted functions take and give
jax arrays.
"""

import argparse
import hashlib

import jax
import jax.numpy as jnp
import numpy as np

import agg_server as agg


def loss_fn(parameters, x, y):
    hidden = jnp.tanh(x @ parameters["in"]["w"] + parameters["in"]["b"])
    return jnp.mean((hidden @ parameters["out"]["w"] - y) ** 2)


def by_name(tree):
    """{"['in']['w']": array}: names of the leaves, the same everywhere."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.array(leaf, np.float32)
            for path, leaf in leaves}


def start():
    """The parameters at the start, the same in every process."""
    keys = jax.random.split(jax.random.key(0))
    return {"in": {"w": 0.3 * jax.random.normal(keys[0], (16, 32)),
                   "b": jnp.zeros(32)},
            "out": {"w": 0.3 * jax.random.normal(keys[1], (32, 1))}}


def batches(rank, number):
    """(x, y) of one rank."""
    for key in jax.random.split(jax.random.key(rank + 1), number):
        x = jax.random.normal(key, (8, 16))
        yield x, jnp.sin(x[:, :8].sum(1, keepdims=True))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--save", help="folder for the final parameters")
    options = parser.parse_args()
    tree = jax.tree.structure(start())
    value_and_grad = jax.jit(jax.value_and_grad(loss_fn))
    arrays = by_name(start())  # the Client writes into them
    with agg.Client(arrays) as client:
        for x, y in batches(client.rank, options.steps):
            parameters = jax.tree.unflatten(tree, arrays.values())
            loss, gradient = value_and_grad(parameters, x, y)
            outcome = client.step(by_name(gradient), loss=float(loss),
                                  examples=len(x))
    sha = hashlib.sha256(b"".join(a.tobytes() for a in arrays.values()))
    print(f"rank {client.rank}: version {outcome.version}, "
          f"parameters {sha.hexdigest()[:12]}\n", end="", flush=True)
    if options.save:
        np.savez(f"{options.save}/rank{client.rank}.npz", **arrays)


if __name__ == "__main__":
    main()
