"""What the Adasum paper claims, in words of our own, and how it is judged."""

from __future__ import annotations

from typing import Callable, Optional, Sequence

from tests.papers.cells import Cell, Comparison, compare, number
from tests.papers.script import IN_PART, Cells, Claim, Series, Verdict, each

_PAPER = "Adasum"
# Starts below, ends above: parallel at first, then orthogonal.
_LOW, _HIGH = .5, .75

_OPTIMIZERS = {"sgd": "momentum SGD", "adam": "Adam"}


def _sizes(cells: Cells, opt: str) -> list[int]:
    return sorted({int(name.split("/")[2]) for name in cells
                   if name.startswith(f"{opt}/mean/")})


def _against(cells: Cells, opt: str, ours: str, theirs: str,
             asked: Callable[[Comparison], Optional[bool]] = Comparison.better
             ) -> Verdict:
    """Two of "rule/which" at each size: what is asked of their comparison."""
    found, words = [], []
    for ranks in _sizes(cells, opt):
        pair = []
        for side in (ours, theirs):
            rule, which = side.split("/")
            pair.append(cells[f"{opt}/{rule}/{ranks}/{which}"])
        made = compare(*pair)
        found.append(asked(made))
        words.append(f"S = {ranks}: {pair[0].text()} against "
                     f"{pair[1].text()} ({made.text()})")
    of = "deltas" if ours.startswith("adasum_delta") else "gradients"
    return each(found), f"{_OPTIMIZERS[opt]} ({of}): " + "; ".join(words)


def _both(*verdicts: Verdict) -> Verdict:
    """One of several settings, each in words of its own."""
    words = [word for word, _ in verdicts]
    word = words[0] if len(set(words)) == 1 else IN_PART
    return word, ". ".join(why for _, why in verdicts)


def beats_untuned(cells: Cells, _: Series) -> Verdict:
    return _both(
        _against(cells, "sgd", "adasum/one", "mean/one"),
        _against(cells, "adam", "adasum_delta/one", "mean/one"))


def beats_tuned_mean(cells: Cells, _: Series) -> Verdict:
    return _both(
        _against(cells, "sgd", "adasum/one", "mean/tuned"),
        _against(cells, "adam", "adasum_delta/one", "mean/tuned"))


def needs_no_tuning(cells: Cells, _: Series) -> Verdict:
    return _both(
        _against(cells, "sgd", "adasum/one", "adasum/tuned",
                 Comparison.not_worse),
        _against(cells, "adam", "adasum/one", "adasum/tuned",
                 Comparison.not_worse),
        _against(cells, "adam", "adasum_delta/one", "adasum_delta/tuned",
                 Comparison.not_worse))


def sum_diverges(cells: Cells, _: Series) -> Verdict:
    """At one worker's rate, in most seeds: of gradients, and of Adam's deltas."""
    found, words = [], []
    for opt, rule in (("sgd", "sum"), ("adam", "sum_delta")):
        for ranks in _sizes(cells, opt):
            there = cells[f"{opt}/{rule}/{ranks}/one"]
            found.append(2 * there.failures > len(there.values))
            words.append(f"{_OPTIMIZERS[opt]}, S = {ranks}: {there.text()}")
    return each(found), "; ".join(words)


def reaches_one(cells: Cells, _: Series) -> Verdict:
    """As many passes give what one worker gets."""
    found, words = [], []
    for opt, rule in (("sgd", "adasum"), ("adam", "adasum_delta")):
        one = cells[f"{opt}/single/1"]
        words.append(f"{_OPTIMIZERS[opt]}: one worker {number(one.mean)}")
        for ranks in _sizes(cells, opt):
            there = cells[f"{opt}/{rule}/{ranks}/one"]
            made = compare(there, one)
            found.append(made.not_worse())
            words.append(f"S = {ranks} {number(there.mean)} ({made.text()})")
    return each(found), ", ".join(words)


def _every_seed(cell: Cell) -> bool:
    return len(cell.finite) == len(cell.values)


def _least_size(cells: Cells, opt: str) -> Optional[int]:
    sizes = [int(name.split("/")[3]) for name in cells
             if name.startswith(f"epochs/{opt}/mean/")]
    return min(sizes, default=None)


def reaches_target(cells: Cells, _: Series) -> Verdict:
    """At one worker's constant rate, where the mean does not."""
    found, words = [], []
    for opt, name in _OPTIMIZERS.items():
        ranks = _least_size(cells, opt)
        mean, deltas, one = (cells[f"epochs/{opt}/{rest}"] for rest in (
            f"mean/{ranks}", f"adasum_delta/{ranks}", "single/1"))
        if not one.finite:
            continue
        found.append(_every_seed(deltas) and not _every_seed(mean))
        words.append(
            f"{name}, S = {ranks}: one worker {one.mean:.1f} passes, deltas "
            + (f"{deltas.mean:.1f}" if deltas.finite else "never") + ", mean "
            + (f"{mean.mean:.1f}" if mean.finite else "never"))
    return each(found), "; ".join(words)


def _models(series: Series, push: str, kind: str = "orthogonality"
            ) -> list[tuple[str, list[float]]]:
    """Of whole models, without gaps."""
    return [(name, values) for name, values in series.items()
            if name.startswith(kind + "/") and name.count("/") == 3
            and name.split("/")[2] == push and None not in values
            and len(values) >= 20]


def _spans(series: Series, values: Sequence[float]
           ) -> list[tuple[float, float]]:
    """(before, after) each fall of the rate."""
    at = [round(share * len(values)) for share in series["decays"]]
    return [(values[span - 1], values[span]) for span in at]


def becomes_orthogonal(_: Cells, series: Series) -> Verdict:
    """With a rate that falls and, of gradients, with one that stays."""
    found, words = [], []
    for kind, push in (("orthogonality", "gradient"),
                       ("orthogonality", "delta"), ("constant", "gradient")):
        for name, values in _models(series, push, kind):
            found.append(values[0] < _LOW and values[-1] > _HIGH)
            words.append((f"{name.split('/', 1)[1]}"
                          + (" at a constant rate" if kind == "constant" else "")
                          + f": {number(values[0], 2)} to "
                          f"{number(values[-1], 2)}"))
    return each(found), "; ".join(words)


def drops_at_decay(_: Cells, series: Series) -> Verdict:
    """With deltas and with gradients."""
    found, words = [], []
    for push in ("delta", "gradient"):
        for name, values in _models(series, push):
            pairs = _spans(series, values)
            found += [after < before for before, after in pairs]
            words.append(name.split("/", 1)[1] + ": " + ", ".join(
                f"{number(before, 2)} to {number(after, 2)}"
                for before, after in pairs))
    return each(found), "; ".join(words)


def each_layer_rises(_: Cells, series: Series) -> Verdict:
    """Of the CNN, with deltas: each tensor from the first span to the last."""
    found, words = [], []
    for name, values in series.items():
        if (name.startswith("orthogonality/cnn/delta/")
                and name.count("/") > 3 and None not in values
                and len(values) >= 20):
            found.append(values[-1] > values[0])
            words.append(f"{name.split('/', 4)[4]} {number(values[0], 2)} to "
                         f"{number(values[-1], 2)}")
    return each(found), ", ".join(words)


CLAIMS = [
    Claim(_PAPER, "At one worker's learning rate, without tuning, it is better "
          "than averaging.", beats_untuned),
    Claim(_PAPER, "It is better than averaging with a rate tuned for that "
          "number of workers.", beats_tuned_mean),
    Claim(_PAPER, "One worker's learning rate is its own best: there is "
          "nothing to tune.", needs_no_tuning),
    Claim(_PAPER, "Summing diverges at one worker's rate.", sum_diverges),
    Claim(_PAPER, "In as many passes it reaches what one worker, in sequence, "
          "reaches.", reaches_one,
          needed="More passes: as many examples in S times fewer steps are "
          "few steps here (54 at S = 64)."),
    Claim(_PAPER, "At a constant rate Adasum of deltas reaches a given accuracy "
          "where averaging does not.", reaches_target),
    Claim(_PAPER, "Gradients of workers are nearly parallel at first, and "
          "become orthogonal as training goes on.", becomes_orthogonal),
    Claim(_PAPER, "Orthogonality rises in each layer.", each_layer_rises),
    Claim(_PAPER, "Orthogonality falls where the learning rate does.",
          drops_at_decay),
    Claim(_PAPER, "ResNet-50 reaches its accuracy at larger batches.",
          needed="ImageNet, and GPUs."),
    Claim(_PAPER, "It costs little more time than a plain all-reduce.",
          needed="A machine for each worker; deploy/bench.sh times the "
          "server's rules."),
]
