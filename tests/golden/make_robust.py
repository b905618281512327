"""Makes robust.json: Krum exactly, the geometric median with 60 digits.

    make_robust.py > robust.json

On the portable generator's rows (README.md), whose values are binary fractions:
squared distances are exact as Fraction. The geometric median is solved to the
end, not stopped after some steps; the code under test had no part in it.
"""

import decimal
import json
from fractions import Fraction

decimal.getcontext().prec = 60
D = decimal.Decimal


def lcg_rows(seed, rows, elements):
    x, out = seed, []
    for _ in range(rows):
        row = []
        for _ in range(elements):
            x = (1664525 * x + 1013904223) % 2**32
            row.append(Fraction((x >> 8) - 8388608, 8388608))
        out.append(row)
    return out


def krum_scores(rows, byzantine):
    scores = []
    for i, a in enumerate(rows):
        squares = sorted(sum((x - y) ** 2 for x, y in zip(a, b))
                         for j, b in enumerate(rows) if j != i)
        scores.append(sum(squares[:len(rows) - byzantine - 2]))
    return scores


def exact(fraction):
    return D(fraction.numerator) / D(fraction.denominator)


def distance(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b)).sqrt()


def geometric_median(rows, steps):
    """Weiszfeld's algorithm from the mean; no row is met on the way.

    The rule begins elsewhere: what it ends at does not depend on that.
    """
    rows = [[exact(x) for x in row] for row in rows]
    point = [sum(column) / len(rows) for column in zip(*rows)]
    for _ in range(steps):
        weights = [1 / distance(point, row) for row in rows]
        total = sum(weights)
        weights = [w / total for w in weights]
        point = [sum(w * row[k] for w, row in zip(weights, rows))
                 for k in range(len(point))]
    return weights


def case(name, rows, seed, byzantine, scaled, factor=-100):
    matrix = lcg_rows(seed, rows, 12)
    for row in scaled:
        matrix[row] = [factor * x for x in matrix[row]]
    scores = krum_scores(matrix, byzantine)
    order = sorted(range(rows), key=lambda i: (scores[i], i))
    weights = geometric_median(matrix, 400)
    assert max(abs(a - b) for a, b in
               zip(weights, geometric_median(matrix, 401))) < D("1e-25")
    return {"name": name, "seed": seed, "P": rows, "elements": 12,
            "byzantine": byzantine, "scaled": scaled, "factor": factor,
            "scores": [float(s) for s in scores], "order": order,
            "geometric_median": [float(w) for w in weights]}


def main():
    cases = [case("P5", 5, 31, 1, []), case("P5_garbage", 5, 31, 1, [2]),
             case("P8", 8, 32, 1, []), case("P8_garbage", 8, 32, 2, [0, 5]),
             case("P9_garbage", 9, 33, 3, [1, 4, 8]),
             # Krum's guarantee is for one such row, the median's for both.
             case("P5_far", 5, 31, 1, [1, 3], -10**12)]
    print(json.dumps({"cases": cases}, indent=1))


if __name__ == "__main__":
    main()
