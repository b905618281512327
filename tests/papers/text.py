"""Adasum on text: a character model with Adam and LAMB, and word2vec.

    python -m tests.papers.text [--quick]

The text is the King James Bible of Debian. A small transformer with 16 workers
sees as many characters as one worker does, and skip-gram with 32 workers as many
pairs of words; each rule at one worker's best learning rate and at its own.
"""

from __future__ import annotations

import math
import statistics
import sys
from typing import Any, Sequence

from tests.papers import script, text_runs as runs, tuning
from tests.papers.cells import Cell, cell, number
from tests.papers.results import Book, Result
from tests.papers.text_claims import CLAIMS as CLAIMS

NAME = "text"
TITLE = "Adasum on text"

_OPTIMIZERS = {"adam": "Adam", "lamb": "LAMB"}
_RULES = {"single": "one worker", "mean": "mean", "sum": "sum",
          "sum_delta": "sum of deltas", "adasum": "Adasum",
          "adasum_delta": "Adasum of deltas"}
# What a model that knows nothing has: of 64 characters, and of a pair with 5
# negatives.
_UNTRAINED = {"transformer": math.log(64), "word2vec": 6 * math.log(2)}
_DIVERGES = "diverges"


def _cell(name: str, results: Sequence[Result], **more: Any) -> Cell:
    """What ends worse than it can have begun has diverged."""
    most = 1.2 * _UNTRAINED[name.split("/", maxsplit=1)[0]]
    judged = [
        {**it, "score": None, "failed": _DIVERGES}
        if it["score"] is None or it["score"] > most else it
        for it in results]
    return cell(judged, wanted=False, **more)


def cells(book: Book, quick: bool) -> dict[str, Cell]:
    """By the names of text_runs."""
    best = tuning.best_rates(book, runs.grids(quick), higher=False)
    tables_ = runs.tables(quick, {name: it.rate for name, it in best.items()})
    book.results([run for seeds in tables_.values() for run in seeds])
    found = {}
    for name, seeds in tables_.items():
        words = name.split("/")
        tuned = None
        if words[-1] == "tuned" or "single" in words:
            tuned = best["/".join(words[:-2] if words[-1] == "tuned"
                                  else words[:-1])]
        found[name] = _cell(name, book.results(seeds),
                            rate=tuned.rate if tuned else None,
                            edge=bool(tuned and tuned.edge))
    return found


def series(book: Book, quick: bool) -> dict[str, Any]:
    """Orthogonality of word2vec's gradients in equal spans of training, at
    Adasum's own best rate, the mean of the seeds."""
    best = tuning.best_rates(book, runs.grids(quick), higher=False)
    tables_ = runs.tables(quick, {name: it.rate for name, it in best.items()})
    name = f"word2vec/adasum/{runs.ranks_of('word2vec/adasum', quick)}/tuned"
    spans = zip(*(it["orthogonality"] for it in book.results(tables_[name])))
    found = []
    for span in spans:
        there = [value for value in span if value is not None]
        found.append(statistics.fmean(there) if there else None)
    return {f"word2vec/orthogonality/{name.split('/')[2]}": found}


def _text(found: Cell) -> str:
    if found.failures == len(found.values):
        return _DIVERGES
    return found.text(3)


def _pair(cells_: script.Cells, name: str) -> list[str]:
    """At one worker's rate, and tuned."""
    return [_text(cells_[f"{name}/{which}"]) if f"{name}/{which}" in cells_
            else "the mean's, at a S-th of its rate"
            for which in ("one", "tuned")]


def _size(cells_: script.Cells, prefix: str) -> str:
    return next(name.split("/")[-2] for name in cells_
                if name.startswith(prefix) and name.endswith("/one"))


def _characters(cells_: script.Cells) -> script.Table:
    size = _size(cells_, "transformer/")
    rows = []
    for rule, words in _RULES.items():
        row = [words]
        for opt in _OPTIMIZERS:
            name = f"transformer/{opt}/{rule}"
            if rule == "single":
                row += [_text(cells_[name + "/1"]), ""]
            elif f"{name}/{size}/one" in cells_:
                row += _pair(cells_, f"{name}/{size}")
            else:
                row += ["", ""]
        if any(row[1:]):
            rows.append(row)
    header = [""]
    for words in _OPTIMIZERS.values():
        header += [f"{words}, S = {size}, one worker's rate", "tuned"]
    return script.Table(
        "Character model: nats per character of held-out text", header, rows,
        "Less is better. Half a pass over 1.1 million characters, 2 sequences "
        f"of 64 for each worker and step: {runs.CHARACTERS_ROUNDS} steps of one "
        f"worker, {runs.CHARACTERS_ROUNDS // runs.CHARACTERS_RANKS} of "
        f"{runs.CHARACTERS_RANKS}. Rates are chosen on other text, with one "
        "seed.")


def _word2vec(cells_: script.Cells, series_: script.Series) -> script.Table:
    size = _size(cells_, "word2vec/")
    rows = [[_RULES["single"], _text(cells_["word2vec/single/1"]), ""]]
    rows += [[_RULES[rule], *_pair(cells_, f"word2vec/{rule}/{size}")]
             for rule in ("mean", "sum", "adasum")]
    orthogonality = ", ".join(
        "none" if value is None else number(value, 2)
        for value in series_[f"word2vec/orthogonality/{size}"])
    return script.Table(
        "word2vec: held-out loss per pair",
        ["", f"S = {size}, one worker's rate", "tuned"], rows,
        f"Less is better; untrained: {_UNTRAINED['word2vec']:.2f}, and what "
        "ends far above it diverges. One pass over 1.95 million pairs: "
        f"{runs.WORDS_ROUNDS} steps of one worker, "
        f"{runs.WORDS_ROUNDS // runs.WORDS_RANKS} of {runs.WORDS_RANKS}. "
        "Orthogonality of the gradients in six equal spans, with Adasum at its "
        "own best rate: "
        f"{orthogonality}.")


def tables(cells_: script.Cells, series_: script.Series
           ) -> list[script.Table]:
    return [_characters(cells_), _word2vec(cells_, series_)]


if __name__ == "__main__":
    sys.exit(script.main(sys.modules[__name__], sys.argv[1:]))
