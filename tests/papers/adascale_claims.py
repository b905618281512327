"""What the AdaScale paper claims, in words of our own, and how it is judged."""

from __future__ import annotations

import math
import statistics
from typing import Optional, Sequence

from tests.papers.cells import Cell, compare, number
from tests.papers.script import Cells, Claim, Series, Verdict, each

_PAPER = "AdaScale"
_MODELS = {"mlp": "MLP", "cnn": "CNN"}
# The first spans after a fall of the rate, of 20 equal ones.
_AFTER_DECAYS = (10, 16)

def _sizes(cells: Cells, arm: str = "adascale") -> list[int]:
    """The numbers of workers that both models have."""
    return sorted({int(name.split("/")[2]) for name in cells
                   if name.split("/")[1] == arm})


def _row(cells: Cells, model: str, arm: str) -> str:
    """".8852, .8891 (S = 4, 16)" of one arm."""
    sizes = _sizes(cells, arm)
    return ", ".join(number(cells[f"{model}/{arm}/{ranks}"].mean)
                     for ranks in sizes)


def keeps_quality(cells: Cells, _: Series) -> Verdict:
    """No cell of AdaScale is worse than one worker."""
    found, words, apart = [], [], []
    for model, name in _MODELS.items():
        one = cells[f"{model}/one/1"]
        for ranks in _sizes(cells):
            ours = cells[f"{model}/adascale/{ranks}"]
            made = compare(ours, one)
            found.append(made.not_worse())
            apart.append(f"{name} at S = {ranks} {made.text()}")
        words.append(f"{name} {_row(cells, model, 'adascale')} at S = "
                     + ", ".join(map(str, _sizes(cells)))
                     + f"; one worker {number(one.mean)}")
    return each(found), "; ".join(words + apart)


def _falls(cells: Cells, arm: str, sizes: Sequence[int]) -> Verdict:
    """The arm is worse than one worker, and AdaScale is not, in each model and
    size."""
    found: list[Optional[bool]] = []
    words = []
    for model, name in _MODELS.items():
        one = cells[f"{model}/one/1"]
        for ranks in sizes:
            ours = cells[f"{model}/adascale/{ranks}"]
            other = cells[f"{model}/{arm}/{ranks}"]
            falls, stays = compare(one, other), compare(ours, one).not_worse()
            found.append(False if falls.better() is False or stays is False
                         else None if falls.better() is None or stays is None
                         else True)
            words.append(f"{name} S = {ranks}: {other.text()}, AdaScale "
                         f"{number(ours.mean)}, one worker {number(one.mean)} "
                         f"({falls.text()})")
    return each(found), "; ".join(words)


def lsw_falls(cells: Cells, _: Series) -> Verdict:
    return _falls(cells, "lsw", _sizes(cells)[-2:])


def lsw_plus_falls(cells: Cells, _: Series) -> Verdict:
    return _falls(cells, "lsw+", _sizes(cells))


def needs_no_warmup(cells: Cells, series: Series) -> Verdict:
    """AdaScale's schedule has no warm-up. At the largest S it is not worse than
    one worker, and its gain is least at first."""
    found, words = [], []
    size = _sizes(cells)[-1]
    for model, name in _MODELS.items():
        ours, one = cells[f"{model}/adascale/{size}"], cells[f"{model}/one/1"]
        gains = series.get(f"{model}/gain/{size}", [])
        if not gains or None in gains:
            continue
        found += [compare(ours, one).not_worse(), gains[0] == min(gains)]
        words.append(f"{name} S = {size}: {number(ours.mean)}, one worker "
                     f"{number(one.mean)}, gain {gains[0]:.3g} at first and "
                     f"{gains[-1]:.3g} at last")
    return each(found), "; ".join(words)


def _mean_gain(cell: Cell) -> float:
    return statistics.fmean(cell.gain) if cell.gain else math.nan


def fewer_iterations(cells: Cells, _: Series) -> Verdict:
    """The mean gain grows with S and stays below it."""
    found, words = [], []
    for model, name in _MODELS.items():
        sizes = _sizes(cells)
        gains = [_mean_gain(cells[f"{model}/adascale/{ranks}"])
                 for ranks in sizes]
        found += [low < high for low, high in zip([1., *gains], gains)]
        found += [gain <= ranks for gain, ranks in zip(gains, sizes)]
        alone = statistics.fmean(cells[f"{model}/one/1"].rounds)
        examples = [ranks * statistics.fmean(
            cells[f"{model}/adascale/{ranks}"].rounds) / alone
            for ranks in sizes]
        words.append(f"{name} mean gain "
                     + ", ".join(f"{gain:.3g}" for gain in gains)
                     + " of " + ", ".join(map(str, sizes))
                     + "; the price: "
                     + ", ".join(f"{more:.2g}" for more in examples)
                     + " times one worker's examples")
    return each(found), "; ".join(words)


def gain_rises(_: Cells, series: Series) -> Verdict:
    """Up before the first fall of the rate, and up at each fall."""
    found, words = [], []
    for name, gains in series.items():
        first, second = _AFTER_DECAYS
        if "/gain/" not in name or None in gains:
            continue
        model, _, ranks = name.split("/")
        found += [gains[first - 1] > gains[0], gains[first] > gains[first - 1],
                  gains[second] > gains[second - 1]]
        words.append(f"{_MODELS[model]} S = {ranks}: "
                     + " | ".join([f"{gains[0]:.3g} to {gains[first - 1]:.3g}",
                                   f"{gains[first]:.3g} to "
                                   f"{gains[second - 1]:.3g}",
                                   f"{gains[second]:.3g}"]))
    return each(found), "; ".join(words)


def matches_tuning(cells: Cells, _: Series) -> Verdict:
    """Not worse than the mean with a tuned rate, as many iterations."""
    ranks = _sizes(cells, "tuned")[-1]
    ours, other = (cells[f"mlp/{arm}/{ranks}"] for arm in ("adascale", "tuned"))
    made = compare(ours, other)
    return (each([made.not_worse()]),
            f"MLP S = {ranks}: AdaScale {ours.text()}, tuned {other.text()} "
            f"({made.text()})")


def identity_keeps(cells: Cells, _: Series) -> Verdict:
    """One worker's rate and iterations are not worse than one."""
    one = cells["mlp/one/1"]
    sizes = _sizes(cells, "identity")
    made = [compare(cells[f"mlp/identity/{ranks}"], one) for ranks in sizes]
    found = [it.not_worse() for it in made]
    return each(found), (
        f"MLP {_row(cells, 'mlp', 'identity')} at S = "
        + ", ".join(map(str, sizes)) + " ("
        + "; ".join(it.text() for it in made)
        + "); AdaScale with fewer iterations "
        + _row(cells, "mlp", "adascale"))


CLAIMS = [
    Claim(_PAPER, "With many workers, AdaScale keeps the quality of one, with "
          "one worker's rate, schedule and momentum.", keeps_quality),
    Claim(_PAPER, "It takes fewer iterations the more workers there are, up to "
          "S times fewer.", fewer_iterations),
    Claim(_PAPER, "Linear scaling with warm-up (LSW) loses quality at large S, "
          "or diverges, where AdaScale does not.", lsw_falls),
    Claim(_PAPER, "LSW loses quality even with as many iterations as AdaScale "
          "makes (LSW+).", lsw_plus_falls),
    Claim(_PAPER, "No warm-up is needed: the gain is small where steps have to "
          "be.", needs_no_warmup),
    Claim(_PAPER, "The gain grows over training, and when the rate falls.",
          gain_rises),
    Claim(_PAPER, "It does as well as a rate that is tuned for that S and "
          "number of iterations.", matches_tuning,
          needed="More rates, and schedules of another length, for each S."),
    Claim(_PAPER, "One worker's rate and iterations keep the quality, too, but "
          "save none of them.", identity_keeps),
    Claim(_PAPER, "Over scale-invariant iterations, the curves of all S lie "
          "on each other.",
          needed="Scores at equal tau during training; about a tenth more "
          "time."),
    Claim(_PAPER, "It holds for ImageNet, speech, translation and detection.",
          needed="Those data, and GPUs."),
    Claim(_PAPER, "Training is faster by the clock.",
          needed="A machine for each worker: here all share two cores, and a "
          "round gets longer with S."),
]
