"""Reads protobuf's delimited records by their .proto file, with numpy alone.

The .proto file itself is the table of fields, so that a field that is added to
it is read here without a line of code. The encoding:
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import re
import struct
from typing import Any, NamedTuple, Optional, Union

import numpy as np

# How a number is unpacked, and numpy's type.
_FIXED = {"double": (struct.Struct("<d").unpack, "<f8"),
          "float": (struct.Struct("<f").unpack, "<f4"),
          "fixed64": (struct.Struct("<Q").unpack, "<u8"),
          "fixed32": (struct.Struct("<I").unpack, "<u4")}
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_DEFAULTS: dict[str, Any] = {"double": 0.0, "float": 0.0, "bool": False,
                             "string": ""}
_MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.M | re.S)
_FIELD = re.compile(r"(repeated )?(map<string, double>|\w+) (\w+) = (\d+);")

Message = dict[str, Any]


class Malformed(ValueError):
    """These bytes are no message of this kind."""


class Field(NamedTuple):
    """One field of a message: its name, the type's name, whether there is one
    value (no list, no map), and whether the type is another message."""
    name: str
    kind: str
    single: bool
    message: bool


class Schema:
    """The messages of one .proto file. Thread-safe."""

    def __init__(self, text: str) -> None:
        """text: a proto3 file without nested messages, enums and oneofs; of
        maps it knows map<string, double>."""
        text = re.sub(r"//.*", "", text)
        found = dict(_MESSAGE.findall(text))
        self.messages: dict[str, dict[int, Field]] = {
            name: {int(number): Field(
                field, kind, not repeated and not kind.startswith("map"),
                kind in found)
                   for repeated, kind, field, number in _FIELD.findall(body)}
            for name, body in found.items()}
        self._unset = {
            name: {each.name: _DEFAULTS.get(each.kind, 0)
                   for each in fields.values()
                   if each.single and not each.message}
            for name, fields in self.messages.items()}

    def parse(self, name: str, data: memoryview) -> Message:
        """The message `name` in `data`: its fields by name.

        Scalars that are not set have proto3's defaults; a message that is not
        set is left out, and so are lists and maps without an entry. A list of
        doubles, floats or fixed numbers is a numpy array, another one a list,
        a map a dict. Fields that the schema does not have are skipped.

        Raises Malformed.
        """
        try:
            return self._parse(name, data)
        except (IndexError, struct.error, TypeError, ValueError) as error:
            raise Malformed(f"not a {name}: {error}") from error

    def _parse(self, name: str, data: Any) -> Message:
        fields = self.messages[name]
        result = self._unset[name].copy()
        at, end = 0, len(data)
        while at < end:
            key = data[at]
            at += 1
            if key >= 0x80:
                key, at = _varint(data, at - 1)
            wire = key & 7
            value: Any
            if wire == _EIGHT:
                value, at = data[at:at + 8], at + 8
            elif wire == _BYTES:
                length, at = _varint(data, at)
                value, at = data[at:at + length], at + length
            elif wire == _VARINT:
                value, at = _varint(data, at)
            elif wire == _FOUR:
                value, at = data[at:at + 4], at + 4
            else:
                raise Malformed(f"wire type {wire}")
            if at > end:
                raise Malformed("a field goes beyond its end")
            field = fields.get(key >> 3)
            if field is None:
                continue
            if field.single:
                result[field.name] = self._value(field, wire, value)
            else:
                self._put(result, field, wire, value)
        return result

    def _put(self, result: Message, field: Field, wire: int,
             value: Any) -> None:
        if field.kind.startswith("map"):
            key, number = _entry(value)
            result.setdefault(field.name, {})[key] = number
        elif field.kind in _FIXED:
            former = result.get(field.name)
            new = np.frombuffer(value, _FIXED[field.kind][1])
            result[field.name] = (new if former is None else
                                  np.concatenate([former, new]))
        elif wire == _BYTES and not field.message and field.kind != "string":
            listed, at = result.setdefault(field.name, []), 0
            while at < len(value):
                number, at = _varint(value, at)
                listed.append(self._value(field, _VARINT, number))
        else:
            result.setdefault(field.name, []).append(
                self._value(field, wire, value))

    def _value(self, field: Field, wire: int, value: Any) -> Any:
        kind = field.kind
        if kind in _FIXED:
            return _FIXED[kind][0](value)[0]
        if wire == _VARINT:
            if kind == "bool":
                return value != 0
            # A negative int32 has ten bytes, too.
            return value - (1 << 64) if kind[0] == "i" and value >> 63 \
                else value
        if field.message:
            return self._parse(kind, value)
        if kind == "string":
            return str(value, "utf-8")
        raise Malformed(f"{field.name} has wire type {wire}")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    value, shift = byte & 0x7f, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        if byte < 0x80:
            return value & 0xffffffffffffffff, at
        shift += 7
        if shift > 63:
            raise Malformed("a number of more than ten bytes")


def _entry(data: Any) -> tuple[str, float]:
    """Of a map<string, double>."""
    key, number, at = "", 0.0, 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag == (1 << 3 | _BYTES):
            length, at = _varint(data, at)
            key, at = str(data[at:at + length], "utf-8"), at + length
        elif tag == (2 << 3 | _EIGHT):
            number, at = struct.unpack("<d", data[at:at + 8])[0], at + 8
        else:
            raise Malformed("an entry of a map has another field")
    if at > len(data):
        raise Malformed("an entry of a map goes beyond its end")
    return key, number


def read_length(data: Union[bytes, memoryview], at: int
                ) -> Optional[tuple[int, int]]:
    """A record's length and where the record begins; None: the bytes end
    before. Raises Malformed: no length of 1 to 2^24 stands there."""
    length = 0
    for i in range(4):
        if at + i >= len(data):
            return None
        byte = data[at + i]
        length |= (byte & 0x7f) << (7 * i)
        if byte < 0x80:
            if 1 <= length <= 1 << 24:
                return length, at + i + 1
            break
    raise Malformed("a record's length is not 1 to 2^24")


__all__ = ["Field", "Malformed", "Message", "Schema", "read_length"]
