"""What several plots of plots.py have in common: colours, axes, lines."""

from __future__ import annotations

import math
from typing import Any, Mapping, NamedTuple, Optional, Sequence

from matplotlib.axes import Axes

from tests.papers.cells import Cell, number

Cells = Mapping[str, Cell]
Series = Mapping[str, Any]

STYLE = {
    "svg.hashsalt": "agg_server", "svg.fonttype": "none",
    "font.family": "sans-serif", "font.size": 9, "axes.titlesize": 10,
    "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "grid.color": "#e6e8eb", "grid.linewidth": 0.6,
    "axes.edgecolor": "#8a8f98", "xtick.color": "#24292f",
    "ytick.color": "#24292f", "text.color": "#24292f",
    "legend.frameon": False, "legend.fontsize": 8, "lines.linewidth": 1.6,
    "lines.markersize": 5, "figure.facecolor": "white", "xtick.minor.size": 0,
}
BLUE, GREEN, BROWN, ORANGE, PURPLE, GRAY = (
    "#1f6feb", "#1a7f37", "#9a6700", "#bc4c00", "#8250df", "#8a8f98")
# What an axis of accuracies shows; what is below stands at its lower end.
_ACCURACY = (0.7, 0.9)


class Low(NamedTuple):
    """A mean below the axis."""

    size: int
    text: str
    color: str


def sizes(cells: Cells, prefix: str) -> list[int]:
    """Numbers of workers of the cells "PREFIX/../S"."""
    return sorted({int(part) for name in cells if name.startswith(prefix + "/")
                   for part in name.split("/")[1:] if part.isdigit()})


def _low_text(cell: Cell) -> str:
    """Of a cell below the axis: its mean, or how it fails."""
    if cell.finite and cell.failures < len(cell.values):
        return number(cell.mean, 2)
    return "diverges" if "not finite" in cell.failed else "guesses"


def _shown(cell: Cell, low: float) -> bool:
    return (bool(cell.finite) and cell.mean >= low
            and cell.failures < len(cell.values))


def accuracies(axes: Axes, sizes: Sequence[int],
                cells: Sequence[Optional[Cell]], label: str, color: str,
                style: str = "-", marker: str = "o", shift: float = 0.0
                ) -> list[Low]:
    """A line over S; what lies below the axis is returned."""
    low = axes.get_ylim()[0]
    at, means, errors, below = [], [], [], []
    for size, cell in zip(sizes, cells):
        if cell is None:
            continue
        if _shown(cell, low):
            at.append(size * 2.0 ** shift)
            means.append(cell.mean)
            errors.append(cell.deviation)
        else:
            below.append(Low(size, f"{label}: {_low_text(cell)}", color))
    axes.errorbar(at, means, errors, color=color, linestyle=style,
                  marker=marker, label=label, capsize=2, elinewidth=0.8)
    for mark in below:
        if at and at[-1] < mark.size:  # where it falls
            axes.plot([at[-1], mark.size], [means[-1], low], color=color,
                      linestyle=style, linewidth=0.7, alpha=0.5)
    return below


def low_marks(axes: Axes, marks: Sequence[Low]) -> None:
    """Marks at the lower end, side by side; their texts, one above another."""
    low = axes.get_ylim()[0]
    for size in sorted({mark.size for mark in marks}):
        here = [mark for mark in marks if mark.size == size]
        for place, mark in enumerate(here):
            axes.plot([size * 2.0 ** (0.09 * (place - len(here) / 2 + 0.5))],
                      [low], marker="v", color=mark.color, clip_on=False,
                      markersize=6, linestyle="none")
            axes.annotate(mark.text, (size, low), fontsize=7, ha="right",
                          color=mark.color, va="bottom", zorder=5,
                          xytext=(-10, 3 + 10 * place),
                          textcoords="offset points",
                          bbox={"facecolor": "white", "edgecolor": "none",
                                "pad": 0.8})


def workers_axis(axes: Axes, sizes: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(sizes), [str(size) for size in sizes])
    axes.set_xlabel("workers S")
    axes.set_xlim(sizes[0] / 2, sizes[-1] * 1.3)


def accuracy_axis(axes: Axes) -> None:
    axes.set_ylim(*_ACCURACY)
    axes.set_ylabel("test accuracy")


def _span_middles(values: Sequence[Any]) -> list[float]:
    return [100 * (span + 0.5) / len(values) for span in range(len(values))]


def over_training(axes: Axes, values: Sequence[Optional[float]], label: str,
                   color: str, style: str = "-", width: float = 1.6) -> None:
    axes.plot(_span_middles(values),
              [math.nan if value is None else value for value in values],
              label=label, color=color, linestyle=style, linewidth=width,
              marker=".")


def decays(axes: Axes, series: Series) -> None:
    for part in series.get("decays", ()):
        axes.axvline(100 * part, color=GRAY, linestyle=":", linewidth=1)
