"""What AdaCons's momentum does: beta, weights and accuracy over many rounds.

    python -m tests.papers.momentum [--quick]

The CNN on Fashion-MNIST with 16 workers, all of them honest or 4 of them with
random labels, over 2000 rounds, with beta from 0 to .999 and the control, equal
weights of the same unit gradients, at one learning rate. Each round's weights and
its cosine with the control come from the log of rounds.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any, Optional, Sequence

from tests.papers import rates, script
from tests.papers.cells import Cell, cell, compare, number
from tests.papers.description import Run
from tests.papers.results import Book
from tests.papers.script import Cells, Claim, Series, Verdict, each

NAME = "momentum"
TITLE = "AdaCons's momentum"

BETAS = ("0", ".9", ".99", ".999")
CONTROL = "control"
RANKS, BATCH, ROUNDS, SPANS = 16, 32, 2000, 10
RATE = .16
SETTINGS = {"clean": (0, "all workers honest"),
            "labels": (4, "4 with random labels")}
# Below it a combination is not the control's direction any more.
_SAME_DIRECTION = .99

Runs = dict[str, list[Run]]


def runs(quick: bool) -> Runs:
    """By "labels/.99" and "labels/control"."""
    ranks, rounds = (8, 6) if quick else (RANKS, ROUNDS)
    found: Runs = {}
    for setting, (bad, _) in SETTINGS.items():
        for arm in (*BETAS, CONTROL):
            rule: dict[str, Any] = (
                {"rule": "unit_mean"} if arm == CONTROL else
                {"rule": "adacons", "adacons": {"beta": float(arm)}})
            found[f"{setting}/{arm}"] = [
                Run(task="fashion_cnn", ranks=ranks, seed=seed, batch=BATCH,
                    rounds=rounds, optimizer={"kind": "sgd", "momentum": .9},
                    learning_rate=rates.warm_linear(RATE, rounds),
                    random_labels=bad, scope="global", weights=True,
                    spans=2 if quick else SPANS, **rule)
                for seed in range(1 if quick else 3)]
    return found


def cells(book: Book, quick: bool) -> dict[str, Cell]:
    """By the names of runs()."""
    found = runs(quick)
    # All at once, so that no core waits.
    book.results([run for seeds in found.values() for run in seeds])
    return {name: cell(book.results(seeds)) for name, seeds in found.items()}


def _means(seeds: Sequence[Sequence[Optional[float]]]
           ) -> list[Optional[float]]:
    return [statistics.fmean(there) if there else None
            for there in ([value for value in values if value is not None]
                          for values in zip(*seeds))]


def series(book: Book, quick: bool) -> dict[str, Any]:
    """Means of the seeds in equal spans of the rounds: "weight/labels/.9", the
    share of the workers with random labels; "cosine/labels/.9", with the
    control."""
    found: dict[str, Any] = {}
    for name, seeds in runs(quick).items():
        results = book.results(seeds)
        found[f"cosine/{name}"] = _means(
            [result.get("near_control") or [] for result in results])
        if name.startswith("labels/"):
            found[f"weight/{name}"] = _means(
                [result.get("weight_of_bad") or [] for result in results])
    return found


def _ends(values: Sequence[Optional[float]]) -> str:
    shown = [value for value in values if value is not None]
    return (f"{number(shown[0], 3)} to {number(shown[-1], 3)}" if shown
            else "no value")


def tables(cells_: Cells, series_: Series) -> list[script.Table]:
    rows = []
    for arm in (*BETAS, CONTROL):
        rows.append(
            ["control: mean of unit gradients" if arm == CONTROL
             else f"AdaCons, beta {arm}"]
            + [cells_[f"{setting}/{arm}"].text() for setting in SETTINGS]
            + [_ends(series_[f"cosine/labels/{arm}"]),
               _ends(series_[f"weight/labels/{arm}"])])
    return [script.Table(
        f"AdaCons's beta: test accuracy of the CNN after {ROUNDS} rounds",
        ["", *(words for _, words in SETTINGS.values()),
         "cosine with the control", "weight of the 4"], rows,
        f"Rate {number(RATE, 2)} for all, which nobody tuned; three seeds. The "
        "cosine and the weight are means of the first and of the last tenth of "
        "the rounds, where 4 have random labels; equal weights are .25.")]


def is_the_control(_: Cells, series_: Series) -> Verdict:
    """The combination has the control's direction to the end."""
    found, words = [], []
    for beta in BETAS:
        values = [value for value in series_[f"cosine/labels/{beta}"]
                  if value is not None]
        if values:
            found.append(min(values) < _SAME_DIRECTION)
            words.append(f"beta {beta}: cosine "
                         f"{_ends(series_[f'cosine/labels/{beta}'])}")
    return each(found), "; ".join(words)


def lowers_bad_weights(_: Cells, series_: Series) -> Verdict:
    """Below the share that equal weights give them, in the last span."""
    found, words = [], []
    for beta in BETAS:
        ours = [value for value in series_[f"weight/labels/{beta}"]
                if value is not None]
        equal = [value for value in series_[f"weight/labels/{CONTROL}"]
                 if value is not None]
        if ours and equal:
            found.append(ours[-1] < equal[-1])
            words.append(f"beta {beta}: weight "
                         f"{_ends(series_[f'weight/labels/{beta}'])}, equal "
                         f"ones {number(equal[-1], 3)}")
    return each(found), "; ".join(words)


def beats_the_control(cells_: Cells, _: Series) -> Verdict:
    found, words = [], []
    for setting, (_, name) in SETTINGS.items():
        for beta in BETAS:
            made = compare(cells_[f"{setting}/{beta}"],
                           cells_[f"{setting}/{CONTROL}"])
            found.append(made.better())
            words.append(f"{name}, beta {beta}: {made.text()}")
    return each(found), "; ".join(words)


CLAIMS = [
    Claim("AdaCons", "With momentum, its weights give another direction than "
          "equal weights of the same unit gradients.", is_the_control),
    Claim("AdaCons", "Its weights are less for workers whose gradients are worse.",
          lowers_bad_weights),
    Claim("AdaCons", "With some beta it beats equal weights of the same unit "
          "gradients over 2000 rounds.", beats_the_control),
]


if __name__ == "__main__":
    sys.exit(script.main(sys.modules[__name__], sys.argv[1:]))
