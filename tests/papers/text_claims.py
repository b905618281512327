"""What the work on Adasum claims of language models and word2vec, in words of
our own, and how it is judged. Less is better."""

from __future__ import annotations

from typing import Optional

from tests.papers.cells import Cell, Comparison, compare
from tests.papers.script import (HOLDS, IN_PART, Cells, Claim, Series, Verdict,
                                 each)

_PAPER = "Adasum"

def _find(cells: Cells, name: str) -> Cell:
    """"word2vec/mean//tuned": with any number of workers."""
    first, last = name.split("//")
    return next(it for key, it in cells.items()
                if key.startswith(first + "/") and key.endswith("/" + last))


def _short(cell: Cell) -> str:
    if cell.failures == len(cell.values):
        return "diverges"
    return cell.text(3)


def _pair(cells: Cells, ours: str, theirs: str) -> tuple[Comparison, str]:
    """With the numbers."""
    pair = [_find(cells, name) for name in (ours, theirs)]
    made = compare(*pair)
    return made, (f"{_short(pair[0])} against {_short(pair[1])} "
                  f"({made.text()})")


def _rule(model: str) -> str:
    return model + ("/adasum" if model == "word2vec" else "/adasum_delta")


def _beats_tuned_mean(cells: Cells, model: str, name: str) -> Verdict:
    """At one worker's rate; in part: at a rate of its own alone. A tie is not
    better."""
    mean = f"{model}/mean//tuned"
    made, words = _pair(cells, f"{_rule(model)}//one", mean)
    if made.better():
        return HOLDS, f"{name}: {words}"
    own, more = _pair(cells, f"{_rule(model)}//tuned", mean)
    return (IN_PART if own.better() else each([made.better(), own.better()]),
            f"{name}: {words}; at its own best rate {more}")


def adam_beats_tuned_mean(cells: Cells, _: Series) -> Verdict:
    return _beats_tuned_mean(cells, "transformer/adam", "Adam")


def lamb_beats_tuned_mean(cells: Cells, _: Series) -> Verdict:
    return _beats_tuned_mean(cells, "transformer/lamb", "LAMB")


def word2vec_beats_tuned_mean(cells: Cells, _: Series) -> Verdict:
    return _beats_tuned_mean(cells, "word2vec", "word2vec")


def _all(found: list[tuple[Optional[bool], str]]) -> Verdict:
    return each([it for it, _ in found]), "; ".join(
        words for _, words in found)


_MODELS = {"transformer/adam": "Adam", "transformer/lamb": "LAMB",
           "word2vec": "word2vec"}


def needs_no_tuning(cells: Cells, _: Series) -> Verdict:
    """A rate of its own is not better."""
    found = []
    for model, name in _MODELS.items():
        made, words = _pair(cells, f"{_rule(model)}//one",
                            f"{_rule(model)}//tuned")
        found.append((made.not_worse(), f"{name}: {words} tuned"))
    return _all(found)


def beats_untuned(cells: Cells, _: Series) -> Verdict:
    """The mean at one worker's rate."""
    found = []
    for model, name in _MODELS.items():
        made, words = _pair(cells, f"{_rule(model)}//one", f"{model}/mean//one")
        found.append((made.better(), f"{name}: {words}"))
    return _all(found)


def sum_diverges(cells: Cells, _: Series) -> Verdict:
    """In most seeds."""
    there = _find(cells, "word2vec/sum//one")
    fails = 2 * there.failures > len(there.values)
    return each([fails]), f"word2vec: {_short(there)}"


def reaches_one_worker(cells: Cells, _: Series) -> Verdict:
    """Not worse than one worker after as many examples."""
    found = []
    for model, name in _MODELS.items():
        made, words = _pair(cells, f"{_rule(model)}//one", f"{model}/single//1")
        found.append((made.not_worse(), f"{name}: {words}"))
    return _all(found)


CLAIMS = [
    Claim(_PAPER, "A language model with Adam: at one worker's rate, Adasum "
          "beats even the mean at a rate of its own.", adam_beats_tuned_mean),
    Claim(_PAPER, "A language model with LAMB, as the paper's BERT: at one "
          "worker's rate, Adasum beats the tuned mean.",
          lamb_beats_tuned_mean,
          needed="BERT's size, batches and data."),
    Claim(_PAPER, "word2vec with 32 workers: at one worker's rate, Adasum beats "
          "the tuned mean.",
          word2vec_beats_tuned_mean),
    Claim(_PAPER, "On text, at one worker's rate, Adasum is better than the "
          "mean.", beats_untuned),
    Claim(_PAPER, "On text, one worker's rate is Adasum's own best.",
          needs_no_tuning),
    Claim(_PAPER, "The sum at one worker's rate fails on word2vec.",
          sum_diverges),
    Claim(_PAPER, "On text, many workers with Adasum get as far as one does "
          "with as many examples.", reaches_one_worker,
          needed="More passes: one worker makes 16 or 32 times the steps here."),
    Claim(_PAPER, "BERT-Large reaches its quality with fewer examples, at "
          "batches that LAMB alone cannot use.",
          needed="BERT-Large, its data, and 64 GPUs or more."),
]
