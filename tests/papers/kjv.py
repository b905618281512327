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
# verses.
CHARACTERS = 1_206_000
# Text is cut into pieces of so many characters or verses. Of each 20 pieces the
# 10th is for validation and the last for the test, so that what is held out is
# of all books: the last books alone are of another kind.
_CHARACTERS_PIECE, _VERSES_PIECE = 6030, 100
_PIECES, _VALIDATION, _TEST = 20, 9, 19
PARTS = ("train", "validation", "test")
# A word is of the vocabulary if the whole text has it so often.
LEAST_COUNT = 5


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
    part = _part_of(CHARACTERS, _CHARACTERS_PIECE)
    return {name: stream[part == name] for name in PARTS}, symbols


@functools.lru_cache(maxsize=1)
def words() -> tuple[dict[str, list[np.ndarray]], np.ndarray]:
    """({part: verses of int32 words}, counts of all words in the whole text).

    Words are letters alone, in lower case. Others than those of the vocabulary
    are left out. Words are numbered by how frequent they are; the counts of the
    training part alone would leave words without any.
    """
    texts = [re.findall("[a-z]+", verse.lower()) for verse in verses()]
    counted = collections.Counter(word for verse in texts for word in verse)
    kept = sorted((word for word, count in counted.items()
                   if count >= LEAST_COUNT),
                  key=lambda word: (-counted[word], word))
    number = {word: i for i, word in enumerate(kept)}
    numbered = [np.array([number[word] for word in verse if word in number],
                         np.int32) for verse in texts]
    counts = np.array([counted[word] for word in kept], np.int64)
    part = _part_of(len(numbered), _VERSES_PIECE)
    return {name: [verse for verse, mine in zip(numbered, part == name) if mine]
            for name in PARTS}, counts


def _part_of(length: int, piece: int) -> np.ndarray:
    """The part that each position is of."""
    place = np.arange(length) // piece % _PIECES
    return np.select([place == _VALIDATION, place == _TEST],
                     ["validation", "test"], "train")


def pairs(part: list[np.ndarray], window: int, random: np.random.Generator
          ) -> np.ndarray:
    """int32 [pairs, 2]: a word, and one of its neighbours in the verse.

    As word2vec does, each word takes neighbours at up to a distance that is
    drawn from 1 to `window`.
    """
    text = np.concatenate(part)
    verse = np.repeat(np.arange(len(part)), [len(words_) for words_ in part])
    reach = random.integers(1, window + 1, len(text))
    found = []
    for distance in range(1, window + 1):
        left = np.arange(len(text) - distance)
        right = left + distance
        same = verse[left] == verse[right]
        for centre, context in ((left, right), (right, left)):
            taken = same & (reach[centre] >= distance)
            found.append(np.stack([text[centre[taken]], text[context[taken]]],
                                  1))
    return np.concatenate(found).astype(np.int32)
