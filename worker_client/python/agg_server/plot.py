"""Pictures of a round log; pip install agg_server[plot] (matplotlib).

    from agg_server import plot

    log = agg.RoundLog("rounds.binlog")
    plot.overview(log).savefig("run.png")
    plot.layer_orthogonality(log)              # one picture, in a notebook

Each call but overview() takes `ax`, the Axes to draw into (None: new ones), and
returns it. Whoever draws many of them closes their figures, as pyplot asks.
"""

from __future__ import annotations

import importlib
from typing import Any, Optional

import numpy as np

from agg_server.advice import gain_of, noise_ratio
from agg_server.errors import Error, ManifestError
from agg_server.round_log import RoundLog

# Lines that an eye can tell from each other in one picture.
_MAX_LINES = 8


def _pyplot() -> Any:
    try:
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise Error(f"matplotlib cannot be imported ({error}); pip install "
                    "agg_server[plot]") from error


def _axes(log: RoundLog, ax: Optional[Any]) -> Any:
    if not len(log):
        raise ManifestError(f"{log.path} has no round yet")
    return _pyplot().subplots()[1] if ax is None else ax


def _named(ax: Any, title: str, x: str, y: str) -> Any:
    ax.set_title(title)
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if ax.get_legend_handles_labels()[1]:
        ax.legend(fontsize="small")
    return ax


def gain_by_workers(log: RoundLog, ax: Optional[Any] = None, last: int = 200
                    ) -> Any:
    """One-worker steps that a round is worth, by the number of workers: as
    sigma^2 and mu^2 of the last rounds have it, with its 95% interval, and as
    it was with the numbers of workers that the log has."""
    ax = _axes(log, ax)
    rounds = np.arange(max(len(log) - last, 0), len(log))
    known = rounds[np.isfinite(log.sigma2[rounds])
                   & np.isfinite(log.mu2[rounds])]
    ratio = noise_ratio(log.sigma2[known], log.mu2[known])
    most = 4 * int(log.num_included.max(initial=1))
    workers = np.arange(1, most + 1)
    if np.isfinite(ratio.mean):
        ax.plot(workers, [gain_of(float(s), ratio.mean) for s in workers],
                label="by the noise of the last rounds")
    if np.isfinite(ratio.low):
        ax.fill_between(workers, [gain_of(float(s), ratio.low) for s in workers],
                        [gain_of(float(s), ratio.high) for s in workers], alpha=0.2)
    used = np.unique(log.num_included[log.applied])
    ax.plot(used, [log.gain[log.applied & (log.num_included == s)].mean()
                   for s in used], "o", label="mean of the rounds")
    ax.plot(workers, workers, ":", label="all orthogonal")
    ax.set_ylim(1, None)
    return _named(ax, "gain", "workers", "one-worker steps a round")


def layer_orthogonality(log: RoundLog, ax: Optional[Any] = None) -> Any:
    """Orthogonality of layers over the rounds: of up to 8, the largest ones,
    and of the model. Logs of older servers have that of tensors alone."""
    ax = _axes(log, ax)
    by_layer = bool(np.isfinite(log.layer_orthogonality).any())
    names = list(log.layers if by_layer else log.tensors)
    values = (log.layer_orthogonality if by_layer
              else log.tensor_orthogonality)
    sizes = [sum(log.tensors[tensor] for tensor in log.layers[name])
             if by_layer else log.tensors[name] for name in names]
    largest = sorted(np.argsort(sizes)[::-1][:_MAX_LINES])
    for place in largest:
        ax.plot(log.version, values[:, place], label=names[place])
    ax.plot(log.version, log.orthogonality, "k--", label="model")
    ax.set_ylim(0, 1.02)
    more = len(names) - len(largest)
    return _named(ax, "orthogonality" + (
        f" (the largest; {more} more not shown)" if more else ""), "version",
        "1: orthogonal, 1/P: parallel")


def critical_batch(log: RoundLog, ax: Optional[Any] = None) -> Any:
    """The critical batch over the rounds beside the batch that was used."""
    ax = _axes(log, ax)
    ax.plot(log.version, log.gradient_noise_scale, label="critical batch")
    ax.plot(log.version, log.examples, label="batch of the round")
    if (log.examples > 0).any():
        ax.set_yscale("log")
    return _named(ax, "batch", "version", "examples")


def rule_cosines(log: RoundLog, ax: Optional[Any] = None) -> Any:
    """The cosine between the applied combination and each shadow rule's."""
    ax = _axes(log, ax)
    for name, shadow in log.shadows.items():
        ax.plot(log.version, shadow.cosine, label=name)
    if not log.shadows:
        ax.text(0.5, 0.5, "no shadow_rules in this job", ha="center",
                transform=ax.transAxes)
    return _named(ax, f"shadow rules and {log.rule[-1]}/{log.scope[-1]}",
                  "version", "cosine")


def worker_cosines(log: RoundLog, ax: Optional[Any] = None, index: int = -1,
                   tensor: Optional[str] = None) -> Any:
    """The cosines between the workers' rows of one round, the last one unless
    `index` is another; of all tensors or of one (see RoundLog.gram)."""
    ax = _axes(log, ax)
    cosines = log.cosines(index, tensor)
    if not cosines.size:
        ax.text(0.5, 0.5, "the round has no Gram matrix", ha="center",
                transform=ax.transAxes)
        return ax
    image = ax.imshow(cosines, vmin=-1, vmax=1, cmap="RdBu")
    ax.figure.colorbar(image, ax=ax)
    ranks = log.ranks_of(index)[:len(cosines)]
    places = np.arange(0, len(ranks), max(1, len(ranks) // 8))
    ax.set_xticks(places, ranks[places])
    ax.set_yticks(places, ranks[places])
    return _named(ax, f"cosines, version {log.version[index]}"
                  + (f", {tensor}" if tensor else ""), "rank", "rank")


def overview(log: RoundLog) -> Any:
    """All of them in one Figure, which is returned."""
    if not len(log):
        raise ManifestError(f"{log.path} has no round yet")
    figure, axes = _pyplot().subplots(2, 3, figsize=(15, 8),
                                      layout="constrained")
    draws = (gain_by_workers, critical_batch, layer_orthogonality,
             rule_cosines, worker_cosines)
    for draw, ax in zip(draws, axes.flat):
        draw(log, ax)
    last = axes.flat[-1]
    last.plot(log.version, log.loss)
    _named(last, "loss", "version", "mean of the workers")
    figure.suptitle(f'{log.job}: {log.rule[-1]}, {len(log)} rounds')
    return figure


__all__ = ["critical_batch", "gain_by_workers", "layer_orthogonality",
           "overview", "rule_cosines", "worker_cosines"]
