"""What the AdaCons paper claims, in words of our own, and how it is judged."""

from __future__ import annotations

import dataclasses
import math
from typing import Optional

from tests.papers.cells import Cell, compare, number
from tests.papers.script import Cells, Claim, Series, Verdict, each

_PAPER = "AdaCons"
# Of logarithms of losses that lie orders of magnitude apart: a factor of 2.
_LOG_MARGIN = math.log10(2)
_SETTINGS = {"clean": "all workers honest", "labels": "4 with random labels"}


# What was found, and the numbers.
Part = tuple[list[Optional[bool]], list[str]]


def _log(cell: Cell) -> Cell:
    """Losses that lie orders of magnitude apart are compared by logarithms."""
    values: list[Optional[float]] = [
        math.log10(value) if value is not None and value > 0 else None
        for value in cell.values]
    return dataclasses.replace(cell, values=tuple(values))


def _sizes(cells: Cells) -> list[int]:
    return sorted({int(name.split("/")[2]) for name in cells
                   if name.startswith("regression/mean/")})


def _regression(cells: Cells, ours: str, theirs: str
                ) -> Part:
    """For each number of workers, whether ours is better."""
    found, words = [], []
    for ranks in _sizes(cells):
        pair = [cells[f"regression/{rule}/{ranks}"] for rule in (ours, theirs)]
        made = compare(_log(pair[0]), _log(pair[1]), _LOG_MARGIN)
        found.append(made.better())
        words.append(f"regression P = {ranks}: {pair[0].median:.2g} against "
                     f"{pair[1].median:.2g} (log10 {made.text()})")
    return found, words


def _cnn(cells: Cells, ours: str, theirs: str, setting: str
         ) -> Part:
    pair = [cells[f"cnn/{setting}/{rule}"] for rule in (ours, theirs)]
    made = compare(*pair)
    return [made.better()], [
        f"{_SETTINGS[setting]}: {_short(pair[0])} against {_short(pair[1])} "
        f"({made.text()})"]


def _short(cell: Cell) -> str:
    return (number(cell.mean) if cell.finite and not cell.failures
            else cell.text())


def _verdict(*parts: Part) -> Verdict:
    return (each([it for found, _ in parts for it in found]),
            "; ".join(word for _, words in parts for word in words))


def beats_mean_in_regression(cells: Cells, _: Series) -> Verdict:
    return _verdict(_regression(cells, "adacons", "mean"))


def beats_mean_in_training(cells: Cells, _: Series) -> Verdict:
    return _verdict(_cnn(cells, "adacons", "mean", "clean"))


def beats_mean_with_bad_workers(cells: Cells, _: Series) -> Verdict:
    return _verdict(_cnn(cells, "adacons", "mean", "labels"))


def coefficients_are_the_cause(cells: Cells, _: Series) -> Verdict:
    """Clearly better than uniform weights of the same unit gradients."""
    return _verdict(_regression(cells, "adacons", "unit_mean"),
                    *(_cnn(cells, "adacons", "unit_mean", setting)
                      for setting in _SETTINGS))


def momentum_helps(cells: Cells, _: Series) -> Verdict:
    return _verdict(_regression(cells, "adacons", "adacons_no_momentum"),
                    *(_cnn(cells, "adacons", "no_momentum", setting)
                      for setting in _SETTINGS))


def beats_mean_at_its_length(cells: Cells, _: Series) -> Verdict:
    """The weights alone: steps are as long as gradients are."""
    return _verdict(*(_cnn(cells, "adacons+", "mean", setting)
                      for setting in _SETTINGS))


CLAIMS = [
    Claim(_PAPER, "In the authors' linear regression, AdaCons ends orders of "
          "magnitude below the mean.", beats_mean_in_regression),
    Claim(_PAPER, "It trains a classifier better than the mean does.",
          beats_mean_in_training),
    Claim(_PAPER, "It does so where some workers' gradients are worse than "
          "the others'.", beats_mean_with_bad_workers),
    Claim(_PAPER, "The consensus coefficients are the reason: AdaCons beats "
          "the control, equal weights of the same unit gradients.",
          coefficients_are_the_cause,
          needed="The paper's own tasks with this control beside them."),
    Claim(_PAPER, "The momentum of the coefficients makes it better.",
          momentum_helps,
          needed="A reason: with beta .99 the coefficients hardly leave equal "
          "ones, so that what is better is near the control."),
    Claim(_PAPER, "Its weights beat the mean's where steps are as long as "
          "those of gradients (+).", beats_mean_at_its_length),
    Claim(_PAPER, "It improves MLPerf's tasks: ImageNet, RetinaNet, DLRM and "
          "others.",
          needed="Those data and GPUs, and the control beside each."),
    Claim(_PAPER, "It costs little more time than the mean.",
          needed="A network between the workers: here the server has all rows "
          "and one product of them gives all coefficients."),
]
