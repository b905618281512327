"""The file of a round log: which records it has, while it grows."""

from __future__ import annotations

import functools
import os
import pathlib
import weakref
from typing import Iterator, Union

from agg_server._delimited import Malformed, Message, Schema, read_length
from agg_server.errors import RoundLogError

_CHUNK_BYTES = 1 << 22


@functools.lru_cache(None)
def _schema() -> Schema:
    """Of the .proto file that came with the wheel, or the checkout's."""
    here = pathlib.Path(__file__).parent
    for path in (here / "round_log.proto",
                 here.parents[2] / "proto" / "round_log.proto"):
        if path.is_file():
            return Schema(path.read_text())
    raise RoundLogError(f"{here / 'round_log.proto'} is not there; install "
                        "the wheel of deploy/wheel.sh again")


def record_fields(kind: str) -> list[str]:
    """The names of RoundLogRecord's fields of one type that are no list."""
    return [field.name
            for field in _schema().messages["RoundLogRecord"].values()
            if field.kind == kind and field.single]


def _check_first(data: bytes, begin: int) -> None:
    """A file's first record begins with `run`, and `run` with the job: a text
    file must not look like a record that is not complete yet.
    Raises Malformed."""
    at = begin + 1
    while at < len(data) and data[at] >= 0x80:
        at += 1
    if data[begin:begin + 1] not in (b"", b"\n") or \
            data[at + 1:at + 2] not in (b"", b"\n"):
        raise Malformed("no record of a round log begins so")


class LogFile:
    """One file, which a server may append to, or rename when it is full.

    Attributes:
      path: as given.
      unread: bytes behind the last complete record, as of the last look.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Raises RoundLogError: it cannot be opened."""
        self.path = os.fspath(path)
        self._begin()

    def _begin(self) -> None:
        self._offset = 0  # where the next record begins
        self.unread = 0
        try:
            self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise RoundLogError(
                f"cannot read {self.path}: {error.strerror}; allowed: the path "
                "of the job's round_log, on the host of its shard 0"
                ) from error
        self._close = weakref.finalize(self, os.close, self._file)

    def records(self) -> Iterator[Message]:
        """Those that are complete and new since the last call, also of the
        file that has taken the path's place meanwhile. Raises RoundLogError."""
        replaced = self._replaced()
        yield from self._of_this_file()
        if replaced:
            self._close()
            self._begin()
            yield from self._of_this_file()

    def _replaced(self) -> bool:
        try:
            return not os.path.samestat(os.stat(self.path),
                                        os.fstat(self._file))
        except OSError:
            return False  # between two renames, or gone: nothing new

    def _of_this_file(self) -> Iterator[Message]:
        # No byte beyond this size: a restarted server may cut off what it
        # finds of a torn record, and write another one there.
        size = os.fstat(self._file).st_size
        if size < self._offset:
            raise RoundLogError(
                f"{self.path} has {size} bytes, fewer than the {self._offset} "
                "that were read: it was cut or written over; read it anew")
        data = b""
        while self._offset + len(data) < size:
            at = self._offset + len(data)
            more = self._read(min(size - at, _CHUNK_BYTES), at)
            if not more:
                break
            data += more
            begin = self._offset
            yield from self._of_bytes(data)
            data = data[self._offset - begin:]
        self.unread = len(data)

    def _read(self, number: int, at: int) -> bytes:
        try:
            return os.pread(self._file, number, at)
        except OSError as error:  # a folder, say
            raise RoundLogError(
                f"cannot read {self.path}: {error.strerror}") from error

    def _of_bytes(self, data: bytes) -> Iterator[Message]:
        """The complete records with which `data` begins."""
        at = 0
        try:
            while True:
                head = read_length(data, at)
                if self._offset == 0:
                    _check_first(data, head[1] if head else len(data))
                if head is None or sum(head) > len(data):
                    return
                begin, at = at, sum(head)
                record = _schema().parse(
                    "RoundLogRecord", memoryview(data)[head[1]:at])
                if self._offset == 0 and "run" not in record:
                    raise Malformed("the first record does not describe a run")
                self._offset += at - begin
                yield record
        except Malformed as error:
            raise RoundLogError(
                f"{self.path} is no round log, or damaged: at byte "
                f"{self._offset}: {error}") from error


__all__ = ["LogFile", "record_fields"]
