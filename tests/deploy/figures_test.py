"""The pictures of deploy/docs/concepts.md: true to scale, and up to date."""

import math
import pathlib
import re
import unittest
import xml.etree.ElementTree as ElementTree

from deploy.docs import figures

_FOLDER = pathlib.Path(figures.__file__).parent
_LETTER = 7.6  # pixels at most, on average, of sans-serif letters of 14


def elements(name, kind, style=None):
    """Those of one kind and class of a committed picture, in their order."""
    root = ElementTree.parse(_FOLDER / name).getroot()
    return [each for each in root.iter("{http://www.w3.org/2000/svg}" + kind)
            if style is None or each.get("class") == style]


def points(element):
    return [tuple(map(float, pair.split(",")))
            for pair in element.get("points").split()]


class FiguresTest(unittest.TestCase):

    def test_the_committed_pictures_are_those_of_the_script(self):
        for name, draw in figures.PICTURES.items():
            self.assertEqual((_FOLDER / name).read_text(encoding="utf-8"),
                             draw(), f"{name}: run deploy/docs/figures.py")
        page = (_FOLDER / "concepts").with_suffix(".md").read_text(encoding="utf-8")
        self.assertEqual(sorted(re.findall(r"\]\((\w+\.svg)\)", page)),
                         sorted(figures.PICTURES))

    def test_words_are_inside_of_the_picture(self):
        for name in figures.PICTURES:
            for each in elements(name, "text"):
                x, wide = float(each.get("x")), _LETTER * len(each.text)
                left = {"start": x, "middle": x - wide / 2,
                        "end": x - wide}[each.get("text-anchor")]
                self.assertGreaterEqual(left, 0, f"{name}: {each.text}")
                self.assertLessEqual(left + wide, 420, f"{name}: {each.text}")

    def test_each_colour_has_a_dark_one(self):
        for name in figures.PICTURES:
            style, = (each.text for each in elements(name, "style"))
            light, dark = style.split("@media (prefers-color-scheme:dark)")
            used = {each.get("class") for kind in ("text", "line", "polygon",
                                                   "polyline", "rect", "circle")
                    for each in elements(name, kind)}
            for each in used:
                self.assertIn(f".{each}{{", light)
                self.assertIn(f".{each}{{", dark)

    def test_adasum_lies_where_its_ends_say(self):
        """Of two vectors of one length: 1, 3/4 and 1/2 of their sum where the
        cosine is 0, 1/2 and 1."""
        rings = [(float(c.get("cx")), float(c.get("cy")))
                 for c in elements("adasum.svg", "circle")]
        tips = [points(p)[0] for p in elements("adasum.svg", "polygon",
                                               "result")]
        lines = [line for line in elements("adasum.svg", "line", "result-line")]
        # The fourth of each is the legend's.
        self.assertEqual([len(rings), len(tips), len(lines)], [4, 4, 4])
        for ring, tip, line, part in zip(rings, tips, lines, (1, .75, .5)):
            origin = float(line.get("x1")), float(line.get("y1"))
            for i in (0, 1):
                self.assertAlmostEqual(
                    tip[i] - origin[i], part * (ring[i] - origin[i]), delta=.1)

    def test_the_orthogonality_below(self):
        said = [each.text for each in elements("adasum.svg", "text")]
        # (3/4)^2 |a + b|^2 / 2, where |a + b|^2 = 3.
        self.assertEqual([said[i + 1] for i, text in enumerate(said)
                          if text == "orthogonality"],
                         ["1", f"{27 / 32:.3g}", "0.5"])

    def test_the_gain_of_32_workers(self):
        """A gain's inverse is the mean of 1 and 1/S, weighted by what part of
        the gradient's square is signal and noise."""
        drawn = [points(line) for line in elements("adascale.svg", "polyline")]
        self.assertEqual(len(drawn), 5)
        bottom = drawn[-1][0][1]
        unit = (bottom - drawn[0][-1][1]) / 31  # only noise: 32
        for curve, noise in zip(drawn, (1, 32 / 33, 8 / 9, 3 / 4, 0)):
            gain = 1 / ((1 - noise) + noise / 32)
            self.assertAlmostEqual((bottom - curve[-1][1]) / unit + 1, gain,
                                   delta=.02)
            self.assertEqual(len(curve), 32)
            self.assertTrue(all(math.isclose(curve[0][i], drawn[0][0][i])
                                for i in (0, 1)))


if __name__ == "__main__":
    unittest.main()
