"""A worker of the drill (drill.py): small, in no hurry, and wrong when told.

    drill_worker.py --coordinator=HOST:PORT --rank=N --period=SECONDS
                    --mood=FILE

FILE has a JSON object, read before each round, so that a scene changes it while
the worker trains:
  gradient  "noisy" (default): towards a target, with noise of this rank; "nan",
            "zero", "huge" (a few updates are infinite), "long" (100 times),
            "same" (that of every other worker)
  delay     seconds by which the row is later than --period
  hold      true: joins, and neither seeds nor pulls until it is false
"""

import argparse
import json
import pathlib
import sys
import time

import numpy

import agg_server

ELEMENTS = 4096
LONG = 100.0
CONSTANT = {"nan": numpy.nan, "zero": 0.0, "huge": 1e36}


def gradient_of(kind, values, rank, version):
    """The row, as numpy.float32 of `values`' shape."""
    if kind in CONSTANT:
        return numpy.full(values.shape, CONSTANT[kind], numpy.float32)
    noise = numpy.random.default_rng(
        (version, 0 if kind == "same" else 1 + rank)).standard_normal(
            values.shape)
    row = values - 1.0 + noise
    if kind == "long":
        row *= LONG
    return row.astype(numpy.float32)


def main(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--coordinator", required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--period", type=float, required=True)
    parser.add_argument("--mood", type=pathlib.Path, required=True)
    options = parser.parse_args(arguments)

    def mood():
        return json.loads(options.mood.read_text())

    values = numpy.zeros(ELEMENTS, numpy.float32)
    with agg_server.Client({"values": values}, options.coordinator,
                           options.rank, start=False,
                           connect_timeout=300) as client:
        while mood().get("hold"):
            time.sleep(options.period)
        client.start()
        while not client.finished:
            now = mood()
            time.sleep(options.period + now.get("delay", 0.0))
            client.step({"values": gradient_of(
                now.get("gradient", "noisy"), values, options.rank,
                client.version)})


if __name__ == "__main__":
    main(sys.argv[1:])
