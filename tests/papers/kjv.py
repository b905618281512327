"""The King James Bible of Debian's bible-kjv-text: verses, characters, words.

The package's file has a header, big-endian:

  0x00  "EC02Compressed Data File", with zeros up to
  0x54  bytes of a part of the text; number of parts n
  0x5c  n + 1 offsets: where each part begins, and where the last one ends

Each part is a file of compress(1) without its first three bytes, which gzip
reads. The text has a line for each verse ("Ge1:1 In the beginning ..."), after
a first line that is a title.
"""

from __future__ import annotations

import collections
import functools
import os
import pathlib
import re
import struct
import subprocess

import numpy as np

PATH = pathlib.Path(os.environ.get("AGG_KJV", "/usr/lib/bible.data"))
_FORMAT = b"EC02Compressed Data File"
_COMPRESS = b"\x1f\x9d\x90"  # block mode, codes of up to 16 bits
_SIZES, _OFFSETS = 0x54, 0x5c

# Of the characters' text: the first ones of the Bible, without the names of
# verses. The last two parts of 5% each are held out.
CHARACTERS = 1_206_000
_TRAINED_ON, _VALIDATED_BY = .9, .95
# The words' text is cut into pieces of so many words. Of each 40 pieces the 21st
# is for validation and the last for the test, so that what is held out is of all
# books: the last books alone are of another kind.
_PIECE, _PIECES = 2000, 40
PARTS = ("train", "validation", "test")
# A word is of the vocabulary if the whole text has it so often.
LEAST_COUNT = 5
# word2vec's: more frequent ones (shares of the text) are left out at random.
FREQUENT = 1e-3


class DataError(Exception):
    """The text is not there, or not what it was."""


def _parts(path: pathlib.Path) -> list[bytes]:
    if not path.is_file():
        raise DataError(f"{path} is not there; install Debian's bible-kjv-text "
                        "(deploy/setup.sh --papers), or name its file in "
                        "AGG_KJV")
    data = path.read_bytes()
    if not data.startswith(_FORMAT):
        raise DataError(f"{path} begins with {data[:24]!r}; allowed: "
                        f"{_FORMAT!r}")
    _, count = struct.unpack_from(">II", data, _SIZES)
    offsets = struct.unpack_from(f">{count + 1}I", data, _OFFSETS)
    return [data[start:end] for start, end in zip(offsets, offsets[1:])]


@functools.lru_cache(maxsize=1)
def verses() -> list[str]:
    """In order, without their names. Raises DataError."""
    parts = [subprocess.run(["gzip", "-dc"], input=_COMPRESS + part,
                            stdout=subprocess.PIPE, check=True).stdout
             for part in _parts(PATH)]
    lines = b"".join(parts).decode("ascii").splitlines()[1:]
    return [line.split(" ", 1)[1] for line in lines]


@functools.lru_cache(maxsize=1)
def characters() -> tuple[dict[str, np.ndarray], str]:
    """({"train", "validation", "test"}: uint8 numbers of characters, the
    characters by number). A verse ends with a line feed."""
    text = "\n".join(verses()) + "\n"
    symbols = "".join(sorted(set(text)))
    number = np.zeros(128, np.uint8)
    number[[ord(symbol) for symbol in symbols]] = range(len(symbols))
    stream = number[np.frombuffer(text[:CHARACTERS].encode("ascii"), np.uint8)]
    first, second = (int(share * CHARACTERS)
                     for share in (_TRAINED_ON, _VALIDATED_BY))
    return dict(zip(PARTS, np.split(stream, [first, second]))), symbols


@functools.lru_cache(maxsize=1)
def words() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """({"train", "validation", "test"}: int32 words, counts of all words in the
    whole text).

    Words are letters alone, in lower case. Others than those of the vocabulary
    are left out, and numbers are by how frequent a word is. The counts of the
    training part alone would leave words without any.
    """
    text = re.findall("[a-z]+", " ".join(verses()).lower())
    counted = collections.Counter(text)
    kept = sorted((word for word, count in counted.items()
                   if count >= LEAST_COUNT),
                  key=lambda word: (-counted[word], word))
    number = {word: i for i, word in enumerate(kept)}
    stream = np.array([number[word] for word in text if word in number],
                      np.int32)
    counts = np.array([counted[word] for word in kept], np.int64)
    place = np.arange(len(stream)) // _PIECE % _PIECES
    validation, test = place == _PIECES // 2, place == _PIECES - 1
    return {"train": stream[~test & ~validation],
            "validation": stream[validation], "test": stream[test]}, counts


def thinned(stream: np.ndarray, counts: np.ndarray,
            random: np.random.Generator) -> np.ndarray:
    """What word2vec keeps of words: one with the share f of the text stays with
    the probability sqrt(t / f) + t / f, t = FREQUENT."""
    ratio = FREQUENT * counts.sum() / counts
    keep = np.sqrt(ratio) + ratio
    return stream[random.random(len(stream)) < keep[stream]]


def pairs(stream: np.ndarray, window: int) -> np.ndarray:
    """int32 [pairs, 2]: a word, and one of its neighbours at most `window` words
    away."""
    found = []
    for distance in range(1, window + 1):
        left, right = stream[:-distance], stream[distance:]
        found += [np.stack([left, right], 1), np.stack([right, left], 1)]
    return np.concatenate(found)
