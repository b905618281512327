#!/usr/bin/python3
"""Draws the pictures of concepts.md; Python's own library suffices.

  deploy/docs/figures.py [FOLDER]    # default: the folder of this file

adasum.svg      two gradients, their sum, mean and Adasum, to scale
adascale.svg    AdaScale's gain against the number of workers
round_steps.svg who sends what to whom in a round

Each picture has a background of its own, which is dark where the reader's
system asks for that: so it can be read in any page. It is 420 wide with letters
of 14, so that they can be read on a phone, too.
"""

import math
import pathlib
import sys
from xml.sax.saxutils import escape

_WIDTH = 420
# Light, then dark. What has meaning differs in form, too, not by colour alone.
_COLORS = {"card": ("#ffffff", "#161b22"), "edge": ("#d0d7de", "#30363d"),
           "ink": ("#1f2328", "#e6edf3"), "dim": ("#59636e", "#9198a1"),
           "worker": ("#0969da", "#58a6ff"), "result": ("#bc4c00", "#f0883e")}
_RULES = (".{0}{{fill:{1}}}.{0}-line{{stroke:{1};fill:none}}")
_HEAD = 9.0  # length of an arrow's head


def _style():
    light, dark = ("".join(_RULES.format(name, both[i])
                           for name, both in _COLORS.items()) for i in (0, 1))
    return ("<style>text{font:14px sans-serif}" + light
            + "@media (prefers-color-scheme:dark){" + dark + "}</style>")


def picture(height, title, parts):
    """A complete file. title: what a reader hears who cannot see it."""
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" '
        f'height="{height}" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>", _style(),
        f'<rect class="card" width="{_WIDTH}" height="{height}" rx="8"/>',
        *parts, "</svg>", ""])


def text(x, y, words, kind="ink", anchor="middle"):
    """Words around, behind ("start") or before ("end") a point."""
    return (f'<text class="{kind}" x="{x:.4g}" y="{y:.4g}" '
            f'text-anchor="{anchor}">{escape(words)}</text>')


def line(a, b, kind, width=1.5, dash=""):
    """A straight line from a to b."""
    dash = f' stroke-dasharray="{dash}"' if dash else ""
    return (f'<line class="{kind}-line" x1="{a[0]:.5g}" y1="{a[1]:.5g}" '
            f'x2="{b[0]:.5g}" y2="{b[1]:.5g}" stroke-width="{width:g}"{dash}/>')


def arrow(a, b, kind, width=2.0):
    """A line with a head whose point is b."""
    turn = math.atan2(b[1] - a[1], b[0] - a[0])
    corners = [(b[0] - _HEAD * math.cos(turn + side),
                b[1] - _HEAD * math.sin(turn + side)) for side in (-.4, .4)]
    points = " ".join(f"{x:.5g},{y:.5g}" for x, y in [b, *corners])
    # The line ends inside of the head, else it would blunt the point.
    neck = (b[0] - .8 * _HEAD * math.cos(turn), b[1] - .8 * _HEAD * math.sin(turn))
    return line(a, neck, kind, width) + f'<polygon class="{kind}" points="{points}"/>'


def ring(x, y):
    """The mark of the sum."""
    return f'<circle class="dim-line" cx="{x:.5g}" cy="{y:.5g}" r="8" stroke-width="2"/>'


def square(x, y):
    """The mark of the mean."""
    return (f'<rect class="dim-line" x="{x - 7:.5g}" y="{y - 7:.5g}" width="14" '
            'height="14" stroke-width="2"/>')


def adasum(a, b):
    """Of two vectors in the plane (server/combine/README.md 3.1)."""
    dot = a[0] * b[0] + a[1] * b[1]
    alpha = 1 - dot / (2 * (a[0] ** 2 + a[1] ** 2))
    beta = 1 - dot / (2 * (b[0] ** 2 + b[1] ** 2))
    return (alpha * a[0] + beta * b[0], alpha * a[1] + beta * b[1])


def orthogonality(a, b):
    """The squared length of Adasum's result over the sum of those of a and b."""
    result = adasum(a, b)
    return ((result[0] ** 2 + result[1] ** 2)
            / (a[0] ** 2 + a[1] ** 2 + b[0] ** 2 + b[1] ** 2))


# Two gradients of length 1: their directions in degrees.
PAIRS = (("orthogonal", 0, 90), ("60° apart", 0, 60), ("parallel", 30, 30))


def direction(degrees):
    """The vector of length 1."""
    return (math.cos(math.radians(degrees)), math.sin(math.radians(degrees)))


def adasum_picture():
    """adasum.svg"""
    unit = 58.0
    parts = []
    for i, (name, first, second) in enumerate(PAIRS):
        a, b = direction(first), direction(second)
        origin = (18 + 138.0 * i, 138.0)

        def at(v, origin=origin):
            return (origin[0] + unit * v[0], origin[1] - unit * v[1])

        total = (a[0] + b[0], a[1] + b[1])
        parts.append(text(65 + 140 * i, 28, name))
        # Two arrows that are one line stand side by side.
        apart = 3.0 if first == second else 0.0
        for v, side in ((a, -apart), (b, apart)):
            shift = (side * v[1], side * v[0])
            parts.append(arrow((origin[0] + shift[0], origin[1] + shift[1]),
                               (at(v)[0] + shift[0], at(v)[1] + shift[1]),
                               "worker"))
        parts.append(line(at((0, 0)), at(total), "dim", 1, "3 3"))
        parts.append(arrow(at((0, 0)), at(adasum(a, b)), "result", 3.5))
        parts += [ring(*at(total)), square(*at((total[0] / 2, total[1] / 2)))]
        parts += [text(65 + 140 * i, 170, "orthogonality", "dim"),
                  text(65 + 140 * i, 188, f"{orthogonality(a, b):.3g}")]
    parts += [line((12, 204), (_WIDTH - 12, 204), "edge", 1),
              arrow((24, 224), (52, 224), "worker"),
              text(60, 229, "a gradient", anchor="start"),
              arrow((156, 224), (184, 224), "result", 3.5),
              text(192, 229, "Adasum", anchor="start"),
              ring(274, 224), text(287, 229, "sum", anchor="start"),
              square(344, 224), text(356, 229, "mean", anchor="start")]
    return picture(242, "Two gradients of one length, to scale: where they are "
                   "orthogonal Adasum is their sum, where they are parallel "
                   "their mean, at 60 degrees it lies between", parts)


# The noise of one worker's gradient over the signal: sigma2 / mu2.
RATIOS = (math.inf, 32.0, 8.0, 3.0, 0.0)
MOST = 32  # workers


def gain(workers, ratio):
    """AdaScale's (server/combine/README.md 5.1)."""
    if math.isinf(ratio):
        return float(workers)
    return (ratio + 1) / (ratio / workers + 1)


def adascale_picture():
    """adascale.svg"""
    left, right, top, bottom = 44.0, 330.0, 34.0, 250.0

    def at(workers, value):
        return (left + (right - left) * (workers - 1) / (MOST - 1),
                bottom - (bottom - top) * (value - 1) / (MOST - 1))

    parts = [text(12, 20, "gain", anchor="start"),
             text(408, 20, "noise : signal", "dim", "end"),
             text((left + right) / 2, 288, "workers S")]
    for tick in (1, 8, 16, 24, 32):
        parts += [line(at(1, tick), at(MOST, tick), "edge", 1),
                  text(36, at(1, tick)[1] + 5, str(tick), "dim", "end"),
                  text(at(tick, 1)[0], 269, str(tick), "dim")]
    for ratio in RATIOS:
        points = " ".join("{:.5g},{:.5g}".format(*at(s, gain(s, ratio)))
                          for s in range(1, MOST + 1))
        parts.append(f'<polyline class="result-line" points="{points}" '
                     'stroke-width="2.5"/>')
        name = {math.inf: "only noise", 0.0: "no noise"}.get(
            ratio, f"{ratio:g} : 1")
        parts.append(text(right + 8, at(MOST, gain(MOST, ratio))[1] + 5, name,
                          anchor="start"))
    return picture(300, "AdaScale's gain for 1 to 32 workers: 1 where gradients "
                   "have no noise, the number of workers where they are noise "
                   "alone, and between these for noise of 3, 8 and 32 times the "
                   "signal", parts)


_LANES = (54.0, 210.0, 366.0)
# From lane to lane, or in a lane; and what.
STEPS = ((0, 1, "push the gradient"), (1, 1, "Gram matrix of its slices"),
         (0, 2, "commit"), (1, 2, "Gram matrices"),
         (2, 2, "rule: coefficients, rate"), (2, 1, "coefficients, rate"),
         (1, 1, "weighted sum, step"), (1, 2, "published"),
         (2, 0, "outcome of the round"), (1, 0, "new parameters"))


def round_picture():
    """round_steps.svg"""
    first, apart = 84.0, 38.0
    height = int(first + apart * len(STEPS))
    parts = []
    for x, names in zip(_LANES, (("each", "worker"), ("each", "shard"),
                                 ("coordinator", "(shard 0)"))):
        parts += [text(x, 22, names[0]), text(x, 40, names[1]),
                  line((x, 50), (x, height - 14), "edge", 2)]
    for i, (start, end, words) in enumerate(STEPS):
        y, x = first + apart * i, (_LANES[start], _LANES[end])
        words = f"{i + 1}  {words}"
        if start != end:
            parts += [arrow((x[0], y), (x[1], y), "worker"),
                      text(sum(x) / 2, y - 6, words)]
            continue
        # Work in one place is a box on its lane.
        wide = 7.0 * len(words) + 18
        middle = min(x[0], _WIDTH - 10 - wide / 2)
        parts += [f'<rect class="card" x="{middle - wide / 2:g}" y="{y - 20:g}" '
                  f'width="{wide:g}" height="28" rx="5"/>',
                  f'<rect class="result-line" x="{middle - wide / 2:g}" '
                  f'y="{y - 20:g}" width="{wide:g}" height="28" rx="5"/>',
                  text(middle, y - 1, words)]
    return picture(height, "A round: " + "; ".join(
        f"{i}. {words}" for i, (_, _, words) in enumerate(STEPS, 1)), parts)


PICTURES = {"adasum.svg": adasum_picture, "adascale.svg": adascale_picture,
            "round_steps.svg": round_picture}


def main(argv):
    folder = pathlib.Path(argv[1] if len(argv) > 1 else
                          pathlib.Path(__file__).resolve().parent)
    for name, draw in PICTURES.items():
        (folder / name).write_text(draw(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
