"""The plots of tests/papers/README.md, as SVG. Needs matplotlib.

The same numbers give the same bytes with the same matplotlib. Each carries the
digest of its script's numbers, by which report.py --check knows it.
"""

from __future__ import annotations

import pathlib
from typing import Any, Callable

import matplotlib

matplotlib.use("svg")  # no display

# pylint: disable=wrong-import-position
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.papers import plot_parts as parts
from tests.papers.plot_parts import Cells, Series

_ADASCALE = (
    ("adascale", "AdaScale", parts.BLUE, "-", "o"),
    ("lsw+", "linear + warm-up, longer", parts.ORANGE, "--", "s"),
    ("lsw", "linear + warm-up", parts.ORANGE, "-", "s"),
    ("linear", "linear", parts.BROWN, ":", "^"),
    ("same_rate", "one worker's rate", parts.PURPLE, "-", "D"),
    ("identity", "one worker's rate, not shorter", parts.GRAY, "--", "D"),
    ("tuned", "rate tuned, AdaScale's iterations", parts.GREEN, "none", "*"),
)
_MODELS = (("mlp", "MLP, 101 770 weights"), ("cnn", "CNN, 7 626 weights"))


def adascale_accuracy(cells: Cells, _series: Series) -> Figure:
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 4.6), sharey=True)
    for axes, (model, title) in zip(panels, _MODELS):
        parts.accuracy_axis(axes)
        one = cells[f"{model}/one/1"]
        sizes = parts.sizes(cells, model)
        axes.axhline(one.mean, color=parts.GRAY, linewidth=0.8)
        low: list[parts.Low] = []
        for rule, label, color, style, marker in _ADASCALE:
            line = [cells.get(f"{model}/{rule}/{size}") for size in sizes]
            if any(line):
                # Lines begin with one worker, where they are the same.
                if style != "none":
                    line[0] = one
                low += parts.accuracies(axes, sizes, line, label, color,
                                   style, marker)
        parts.low_marks(axes, low)
        axes.set_title(title)
        parts.workers_axis(axes, sizes)
    panels[1].set_ylabel("")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4)
    figure.suptitle("Fashion-MNIST, one worker's rate and schedule; longer: "
                    "AdaScale's iterations; marks below: less than .7",
                    fontsize=10)
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    return figure


def adascale_gain(cells: Cells, series: Series) -> Figure:
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.4), sharey=True)
    for axes, (model, title) in zip(panels, _MODELS):
        sizes = parts.sizes(cells, f"{model}/adascale")
        for size, color in zip(sizes, (parts.GREEN, parts.ORANGE, parts.BLUE)):
            parts.over_training(axes, series[f"{model}/gain/{size}"],
                           f"S = {size}", color)
            axes.axhline(size, color=color, linewidth=0.7, linestyle="--")
        axes.set_yscale("log", base=2)
        axes.set_yticks([1, 2, 4, 8, 16, 32, 64],
                        ["1", "2", "4", "8", "16", "32", "64"])
        parts.decays(axes, series)
        axes.set_title(title)
        axes.set_xlabel("% of the scale-invariant iterations")
        axes.legend(loc="lower right")
    panels[0].set_ylabel("gain (dashed: S, its most)")
    figure.suptitle("AdaScale's gain; dotted: the rate falls to a tenth",
                    fontsize=10)
    figure.tight_layout()
    return figure


_BETAS = (("0", parts.BROWN), (".9", parts.ORANGE), (".99", parts.BLUE),
          (".999", parts.GREEN), ("control", parts.GRAY))


def momentum(_cells: Cells, series: Series) -> Figure:
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.4))
    for axes, what, title in (
            (panels[0], "weight", "weight of the 4 workers with random labels"),
            (panels[1], "cosine", "cosine with the mean of unit gradients")):
        for beta, color in _BETAS:
            parts.over_training(
                axes, series[f"{what}/labels/{beta}"],
                "equal weights" if beta == "control" else f"beta {beta}", color)
        axes.set_title(title)
        axes.set_xlabel("% of the rounds")
    panels[0].legend(loc="best")
    figure.suptitle("AdaCons, 16 workers: what its weights come to", fontsize=10)
    figure.tight_layout()
    return figure


_ADASUM = (
    ("mean", "mean", parts.ORANGE, "s"), ("sum", "sum", parts.BROWN, "^"),
    ("sum_delta", "sum of deltas", parts.BROWN, "^"),
    ("adasum", "Adasum of gradients", parts.BLUE, "o"),
    ("adasum_delta", "Adasum of deltas", parts.GREEN, "D"),
)


def adasum_accuracy(cells: Cells, _series: Series) -> Figure:
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 4.8), sharey=True)
    for axes, (opt, title) in zip(panels, (("sgd", "momentum SGD"),
                                           ("adam", "Adam"))):
        parts.accuracy_axis(axes)
        sizes = [size for size in parts.sizes(cells, opt) if size > 1]
        axes.axhline(cells[f"{opt}/single/1"].mean, color=parts.GRAY, linewidth=1.2,
                     label="one worker")
        low: list[parts.Low] = []
        for place, (rule, label, color, marker) in enumerate(_ADASUM):
            for which, style, more in (("one", "-", ""),
                                       ("tuned", "--", ", tuned")):
                line = [cells.get(f"{opt}/{rule}/{size}/{which}")
                        for size in sizes]
                if any(line):
                    low += parts.accuracies(axes, sizes, line, label + more, color,
                                       style, marker, (place - 2) * 0.05)
        parts.low_marks(axes, low)
        axes.set_title(title)
        parts.workers_axis(axes, sizes)
    panels[1].set_ylabel("")
    # Each label once, whichever panel has it.
    entries = {label: handle for axes in panels for handle, label in
               zip(*axes.get_legend_handles_labels())}
    figure.legend(entries.values(), entries.keys(), loc="lower center", ncols=4)
    figure.suptitle("Fashion-MNIST, CNN, 2 passes: at one worker's best rate, "
                    "and at each rule's own (dashed)", fontsize=10)
    figure.tight_layout(rect=(0, 0.14, 1, 1))
    return figure


def adasum_orthogonality(_cells: Cells, series: Series) -> Figure:
    models = sorted({tuple(name.split("/")[1:4]) for name in series
                     if name.startswith("orthogonality/")})
    cnn = [key for key in models if key[0] == "cnn"]
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.9), sharey=True)
    lines = (("cnn", "delta", parts.GREEN, "-"),
             ("cnn", "gradient", parts.BLUE, "-"),
             ("mlp", "delta", parts.GREEN, "--"),
             ("mlp", "gradient", parts.BLUE, "--"))
    for model, push, color, style in lines:
        for key in models:
            if key[:2] == (model, push):
                parts.over_training(panels[0], series["/".join(
                    ("orthogonality", *key))], f"{model.upper()}, {push}s",
                    color, style)
    panels[0].set_title("whole model")
    panels[0].set_ylabel("||Adasum||² / Σ ||row||²")
    for key in cnn:
        prefix = "/".join(("orthogonality", *key)) + "/"
        if key[1] != "delta":
            continue
        tensors = [name for name in series if name.startswith(prefix)]
        colors = (parts.BLUE, parts.BLUE, parts.ORANGE, parts.ORANGE, parts.PURPLE, parts.PURPLE)
        for name, color in zip(tensors, colors):
            bias = "bias" in name
            parts.over_training(panels[1], series[name], name[len(prefix):], color,
                           "--" if bias else "-", 1.0 if bias else 1.6)
    panels[1].set_title("each tensor of the CNN, deltas")
    for axes in panels:
        parts.decays(axes, series)
        axes.set_xlabel("% of training")
        axes.set_ylim(0, 1)
        axes.set_xlim(0, 100)
        axes.legend(loc="lower right", ncols=2)
    size = cnn[0][2] if cnn else "?"
    figure.suptitle(f"Orthogonality of {size} workers' rows; dotted: the rate "
                    "falls to a tenth", fontsize=10)
    figure.tight_layout()
    return figure


_ADACONS = (("mean", "mean", parts.ORANGE), ("adacons", "AdaCons", parts.BLUE),
            ("adacons_no_momentum", "AdaCons, no momentum", parts.PURPLE),
            ("no_momentum", "AdaCons, no momentum", parts.PURPLE),
            ("adacons+", "AdaCons × mean norm", parts.BLUE),
            ("unit_mean", "mean of unit gradients", parts.GREEN),
            ("unit_mean+", "the same × mean norm", parts.GREEN))


def _dots(axes: Axes, cells: Cells, prefix: str, suffix: str = "",
          median: bool = False) -> None:
    """A row for each rule: the seeds, and their mean or median."""
    rows = [(cells[f"{prefix}/{rule}{suffix}"], label, color)
            for rule, label, color in _ADACONS
            if f"{prefix}/{rule}{suffix}" in cells]
    low = axes.get_xlim()[0]
    for place, (cell, _, color) in enumerate(rows):
        inside = [value for value in cell.finite if median or value >= low]
        axes.plot(inside, [place] * len(inside), "o", color=color, alpha=0.5,
                  markersize=4)
        if len(inside) < len(cell.values):
            axes.annotate(f"{len(cell.values) - len(inside)} of "
                          f"{len(cell.values)} fail", (low, place), fontsize=7,
                          xytext=(3, 0), textcoords="offset points",
                          va="center", color=color)
        if inside:
            middle = cell.median if median else sum(inside) / len(inside)
            axes.plot([middle], [place], "|", color=color, markersize=16,
                      markeredgewidth=2)
    axes.set_yticks(range(len(rows)), [label for _, label, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)


def adacons(cells: Cells, _series: Series) -> Figure:
    figure, panels = pyplot.subplots(1, 3, figsize=(11, 3.2),
                                    layout="constrained")
    largest = max(parts.sizes(cells, "regression") or [0])
    panels[0].set_xscale("log")
    _dots(panels[0], cells, "regression", f"/{largest}", median=True)
    panels[0].set_title(f"linear regression, oracle step, P = {largest}")
    panels[0].set_xlabel("expected loss")
    for axes, (data, title) in zip(panels[1:], (
            ("clean", "CNN, 16 workers"),
            ("labels", "4 of the 16 with random labels"))):
        scores = [value for name, cell in cells.items()
                  if name.startswith("cnn/") for value in cell.finite
                  if value > 0.5]
        if scores:
            axes.set_xlim(min(scores) - 0.005, max(scores) + 0.005)
        _dots(axes, cells, f"cnn/{data}")
        axes.set_title(title)
        axes.set_xlabel("test accuracy")
    panels[2].set_yticklabels([])
    figure.suptitle("A dot is a seed, a bar the mean (regression: the median)",
                    fontsize=10)
    return figure


_TEXT = (("mean", "mean", parts.ORANGE), ("sum", "sum", parts.BROWN),
         ("sum_delta", "sum of deltas", parts.BROWN),
         ("adasum", "Adasum of gradients", parts.BLUE),
         ("adasum_delta", "Adasum of deltas", parts.GREEN))


def text(cells: Cells, _series: Series) -> Figure:
    figure, panels = pyplot.subplots(1, 3, figsize=(11, 3),
                                    layout="constrained")
    for axes, (prefix, title) in zip(panels, (
            ("transformer/adam", "character model, Adam"),
            ("transformer/lamb", "character model, LAMB"),
            ("word2vec", "word2vec, SGD"))):
        rows = []
        for rule, label, color in _TEXT:
            for which, more in (("one", ""), ("tuned", ", tuned")):
                for size in parts.sizes(cells, prefix):
                    cell = cells.get(f"{prefix}/{rule}/{size}/{which}")
                    if cell is not None:
                        rows.append((cell, f"{label}{more}", color))
        single = cells.get(f"{prefix}/single/1")
        if single is not None and single.finite:
            axes.axvline(single.mean, color=parts.GRAY, linewidth=1.2)
            axes.annotate(" one worker", (single.mean, -0.6), fontsize=7,
                          color=parts.GRAY, va="bottom", annotation_clip=False)
        for place, (cell, _, color) in enumerate(rows):
            fine = [value for value, word in zip(
                cell.values, cell.failed or [""] * len(cell.values))
                if value is not None and not word]
            axes.plot(fine, [place] * len(fine), "o", color=color, alpha=0.6)
            if len(fine) < len(cell.values):
                axes.annotate("diverges", (1, place), fontsize=7, color=color,
                              xycoords=axes.get_yaxis_transform(), ha="right",
                              va="center")
        axes.set_yticks(range(len(rows)), [label for _, label, _ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_title(title, pad=12)
        axes.set_xlabel("held-out loss, nats")
    figure.suptitle("KJV text (less is better; a dot is a seed)", fontsize=10)
    return figure


# By script: file name and figure.
_FIGURES: dict[str, dict[str, Callable[[Cells, Series], Figure]]] = {
    "adascale": {"adascale_accuracy": adascale_accuracy,
                 "adascale_gain": adascale_gain},
    "adasum": {"adasum_accuracy": adasum_accuracy,
               "adasum_orthogonality": adasum_orthogonality},
    "adacons": {"adacons": adacons},
    "elastic": {},
    "momentum": {"momentum": momentum},
    "text": {"text": text},
}


def draw(name: str, cells: Cells, series: Series, digest: str,
         folder: pathlib.Path, ending: str = "svg") -> list[pathlib.Path]:
    """Writes the plots of one script into the folder; their paths.

    ending: "svg", or "png" to look at.
    """
    paths = []
    style: Any = parts.STYLE
    for stem, make in _FIGURES[name].items():
        with matplotlib.rc_context(style):
            figure = make(cells, series)
            paths.append(folder / f"{stem}.{ending}")
            about = {"Description": f"numbers {digest}", "Date": None,
                     "Creator": "tests/papers/plots.py"}
            figure.savefig(paths[-1], dpi=110,
                           metadata=about if ending == "svg" else None)
            pyplot.close(figure)
    return paths
