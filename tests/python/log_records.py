"""Records of a round log, encoded by protoc, which shares no code with readers.
"""

import functools
import subprocess

from tests.python.job_case import ROOT

RUN = ('run { job: "j" workers: 2 shards: 1 config: "c" server_version: "1" '
       'tensors { name: "a/w" elements: 3 } tensors { name: "a/b" elements: 1 '
       '} } ')


@functools.lru_cache(None)
def encoded(text):
    """A record of the round log, with its length."""
    data = subprocess.run(
        ["protoc", "--encode=agg.v1.RoundLogRecord", f"-I{ROOT / 'proto'}",
         "round_log.proto"], input=text.encode(), capture_output=True,
        check=True).stdout
    length, head = len(data), b""
    while length >= 0x80:
        head += bytes([length & 0x7f | 0x80])
        length >>= 7
    return head + bytes([length]) + data


def record(version, more="", history=7):
    return encoded(f"round: {version - 1} version: {version} epoch: {history} "
                   f"history: {history} applied: true {more}"
                   + ("" if "gain:" in more else f" gain: {version}.5"))


FIRST = record(1, RUN)


def of_gram(version, gram, more="", examples=None):
    """A record of an applied round with this Gram matrix, of ranks 0, 1, ...
    `examples`: of each row; None: 4.
    """
    side = len(gram)
    counts = [4] * side if examples is None else examples
    rows = " ".join(f"rows {{ rank: {i} examples: {counts[i]} "
                    f"norm: {gram[i][i] ** 0.5!r} }}" for i in range(side))
    packed = " ".join(f"gram: {gram[i][j]!r}" for i in range(side)
                      for j in range(i, side))
    return record(version, f"{rows} {packed} {more}")
