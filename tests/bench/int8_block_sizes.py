#!/usr/bin/env python3
"""What int8 with one scale per block loses, by the size of the block.

Prints, for rows of several distributions, the length of what rounding leaves
out as a share of the row's length, and the share of elements that become zero.

  tests/bench/int8_block_sizes.py [--elements=N] [--seed=N]
"""

import argparse
import math
import random

SIZES = (64, 128, 256, 512, 1024, 4096)


def student_t(generator, degrees):
    chi_squared = sum(generator.gauss(0, 1) ** 2 for _ in range(degrees))
    return generator.gauss(0, 1) / math.sqrt(chi_squared / degrees)


def mixed(generator, index):
    """Runs of 1,000 elements whose sizes differ by up to a factor of 100."""
    scale = 10 ** ((index // 1000 * 7 % 9) / 4)
    return generator.gauss(0, 1) * scale


ROWS = {
    "gaussian": lambda generator, index: generator.gauss(0, 1),
    "Student's t, 3 degrees": lambda generator, index: student_t(generator, 3),
    "Student's t, 2 degrees": lambda generator, index: student_t(generator, 2),
    "gaussian, sizes 1 .. 100": mixed,
}


def loss(row, size):
    """(share of the length, share of elements) that rounding takes away."""
    left_out = zeros = 0
    for first in range(0, len(row), size):
        block = row[first:first + size]
        scale = max(map(abs, block)) / 127
        for value in block:
            steps = round(value / scale)  # ties to even, as the client's
            left_out += (value - steps * scale) ** 2
            zeros += steps == 0
    length = math.fsum(value * value for value in row)
    return math.sqrt(left_out / length), zeros / len(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--elements", type=int, default=1 << 17)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    generator = random.Random(options.seed)
    print(f"{'left out, % (zeros, %)':26}" +
          "".join(f"{size:>14}" for size in SIZES))
    for name, draw in ROWS.items():
        row = [draw(generator, index) for index in range(options.elements)]
        cells = [loss(row, size) for size in SIZES]
        print(f"{name:26}" + "".join(
            f"{100 * share:7.2f} ({100 * zeros:4.1f})"
            for share, zeros in cells))
    print(f"{'bytes of scales, %':26}" +
          "".join(f"{400 / size:14.2f}" for size in SIZES))


if __name__ == "__main__":
    main()
