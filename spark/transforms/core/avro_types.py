"""Avro schemas as types that skip, read and write values in the binary encoding (Avro 1.12).

Own code beside fastavro because a value must come out as it went in: fastavro decodes a whole
record, forgets the branch of `["float", "double"]` of a number, and rounds on the way back.
fastavro still judges the schema (names, defaults, references) and is the oracle of the tests.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import fastavro

from spark.transforms.core.limits import AVRO_ITEMS_MAX
from spark.transforms.core.values import Number, Scalar, Shape, UnreadableRecord, Value, described

Schema = str | list[Any] | dict[str, Any]  # parsed JSON

_INTEGERS = {"int": 31, "long": 63}  # bits beside the sign
_FLOATS = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
PRIMITIVES = frozenset({"null", "boolean", "bytes", "string", *_INTEGERS, *_FLOATS})


class InvalidSchema(Exception):
    """The text is no Avro schema."""


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint and where it ends. Raises UnreadableRecord."""
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise _damaged(at)
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7


def write_long(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _damaged(at: int) -> UnreadableRecord:
    return UnreadableRecord(f"not of its Avro schema at byte {at}")


def _misfit(value: Scalar, name: str) -> UnreadableRecord:
    return UnreadableRecord(f"Avro type {name} cannot hold {described(value)}")


def _end(data: bytes, at: int, size: int) -> int:
    if size < 0 or at + size > len(data):
        raise _damaged(at)
    return at + size


@dataclass(frozen=True, slots=True)
class Primitive:
    name: str
    logical: str | None = None

    def skip(self, data: bytes, at: int) -> int:
        if self.name in ("bytes", "string"):
            size, at = read_long(data, at)
            return _end(data, at, size)
        if self.name in _INTEGERS:
            return read_long(data, at)[1]
        if self.name in _FLOATS:
            return _end(data, at, _FLOATS[self.name].size)
        return at if self.name == "null" else _end(data, at, 1)

    def decode(self, raw: bytes) -> Value:
        if self.name == "null":
            return None
        if self.name == "boolean":
            return raw != b"\0"
        if self.name in _INTEGERS:
            return Number(str(read_long(raw, 0)[0]))
        if self.name in _FLOATS:
            return Number(repr(_FLOATS[self.name].unpack(raw)[0]))
        content = raw[read_long(raw, 0)[1] :]
        if self.name == "bytes":
            return content
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UnreadableRecord(f"a text is not UTF-8 at byte {error.start}") from None

    def encode(self, value: Scalar) -> bytes:
        """Raises UnreadableRecord where the type cannot hold the value."""
        if self.name == "null" and value is None:
            return b""
        if self.name == "boolean" and isinstance(value, bool):
            return b"\1" if value else b"\0"
        if isinstance(value, Number) and (packed := self._number(value)) is not None:
            return packed
        if self.name == "string" and isinstance(value, str) and self._fits_logical(value):
            try:
                content = value.encode("utf-8")
            except UnicodeEncodeError:
                raise UnreadableRecord("a text is not Unicode") from None
            return write_long(len(content)) + content
        if self.name == "bytes" and isinstance(value, bytes) and self.logical is None:
            return write_long(len(value)) + value
        raise _misfit(value, f"{self.name}.{self.logical}" if self.logical else self.name)

    def _number(self, value: Number) -> bytes | None:
        exact = value.exact()
        if self.name in _INTEGERS:
            whole = int(exact) if exact.is_finite() and exact == exact.to_integral_value() else None
            limit = 1 << _INTEGERS[self.name]
            if whole is not None and -limit <= whole < limit:
                return write_long(whole)
        elif self.name in _FLOATS:
            try:
                return _FLOATS[self.name].pack(float(exact))
            except OverflowError:
                return None
        return None

    def _fits_logical(self, text: str) -> bool:
        if self.logical != "uuid":
            return True
        try:
            return str(UUID(text)) == text.lower()
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Fixed:
    name: str
    size: int
    logical: str | None = None

    def skip(self, data: bytes, at: int) -> int:
        return _end(data, at, self.size)

    def decode(self, raw: bytes) -> Value:
        return raw

    def encode(self, value: Scalar) -> bytes:
        if isinstance(value, bytes) and len(value) == self.size and self.logical is None:
            return value
        raise _misfit(value, f"fixed of {self.size} bytes")


@dataclass(frozen=True, slots=True)
class Enumeration:
    name: str
    symbols: tuple[str, ...]

    def skip(self, data: bytes, at: int) -> int:
        return read_long(data, at)[1]

    def decode(self, raw: bytes) -> Value:
        index, _ = read_long(raw, 0)
        if not 0 <= index < len(self.symbols):
            raise _damaged(0)
        return self.symbols[index]

    def encode(self, value: Scalar) -> bytes:
        if isinstance(value, str) and value in self.symbols:
            return write_long(self.symbols.index(value))
        raise _misfit(value, f"enum {self.name}")


def _skip_blocks(data: bytes, at: int, item: Type, *, named: bool) -> int:
    total = 0
    while True:
        count, at = read_long(data, at)
        if count == 0:
            return at
        if count < 0:  # a block that tells its size in bytes
            size, at = read_long(data, at)
            at = _end(data, at, size)
            total -= count
        else:
            total += count
            if total > AVRO_ITEMS_MAX:
                raise UnreadableRecord(f"an array or map of more than {AVRO_ITEMS_MAX} items")
            for _ in range(count):
                if named:
                    at = _NAME.skip(data, at)
                at = item.skip(data, at)


_NAME = Primitive("string")


@dataclass(frozen=True, slots=True)
class Array:
    items: Type

    def skip(self, data: bytes, at: int) -> int:
        return _skip_blocks(data, at, self.items, named=False)

    def decode(self, raw: bytes) -> Value:  # noqa: ARG002
        return Shape.ARRAY

    def encode(self, value: Scalar) -> bytes:
        raise _misfit(value, "array")


@dataclass(frozen=True, slots=True)
class Map:
    values: Type

    def skip(self, data: bytes, at: int) -> int:
        return _skip_blocks(data, at, self.values, named=True)

    def decode(self, raw: bytes) -> Value:  # noqa: ARG002
        return Shape.OBJECT

    def encode(self, value: Scalar) -> bytes:
        raise _misfit(value, "map")


@dataclass(frozen=True, slots=True)
class Union:
    branches: tuple[Type, ...]

    def skip(self, data: bytes, at: int) -> int:
        index, at = read_long(data, at)
        if not 0 <= index < len(self.branches):
            raise _damaged(at)
        return self.branches[index].skip(data, at)

    def decode(self, raw: bytes) -> Value:
        index, at = read_long(raw, 0)
        return self.branches[index].decode(raw[at:])

    def encode(self, value: Scalar) -> bytes:
        """In the first branch that can hold the value."""
        for index, branch in enumerate(self.branches):
            try:
                return write_long(index) + branch.encode(value)
            except UnreadableRecord:
                continue
        raise _misfit(value, "union")


@dataclass(slots=True, eq=False)
class Record:
    """`fields` is filled after the record is made: a field may be of the record itself."""

    name: str
    fields: list[tuple[str, Type]] = field(default_factory=list)

    def skip(self, data: bytes, at: int) -> int:
        for _, kind in self.fields:
            at = kind.skip(data, at)
        return at

    def decode(self, raw: bytes) -> Value:  # noqa: ARG002
        return Shape.OBJECT

    def encode(self, value: Scalar) -> bytes:
        raise _misfit(value, f"record {self.name}")


Type = Primitive | Fixed | Enumeration | Array | Map | Union | Record


@dataclass(frozen=True, slots=True)
class Definitions:
    """A schema and the named schemas it refers to, full names everywhere."""

    schema: Schema
    named: Mapping[str, Schema]


def defined(schema: Schema, references: Sequence[Schema] = ()) -> Definitions:
    """`references`: the schemas that `schema` refers to, each behind those it refers to itself.
    Raises InvalidSchema.
    """
    named: dict[str, Any] = {}
    try:
        for reference in references:
            fastavro.parse_schema(reference, named_schemas=named, _write_hint=False)
        parsed: Any = fastavro.parse_schema(schema, named_schemas=named, _write_hint=False)
    except (fastavro.schema.SchemaParseException, KeyError, TypeError, ValueError) as error:
        raise InvalidSchema(f"not an Avro schema ({type(error).__name__}: {error})") from error
    return Definitions(parsed, named)


def types_of(definitions: Definitions) -> Type:
    return _type(definitions.schema, definitions.named, {})


def _type(schema: Schema, named: Mapping[str, Schema], made: dict[str, Type]) -> Type:
    if isinstance(schema, str):
        if schema in PRIMITIVES:
            return Primitive(schema)
        return made.get(schema) or _type(named[schema], named, made)
    if isinstance(schema, list):
        return Union(tuple(_type(branch, named, made) for branch in schema))
    kind, logical = schema["type"], schema.get("logicalType")
    match kind:
        case "record" | "error":
            record = made[schema["name"]] = Record(schema["name"])
            record.fields += [
                (field["name"], _type(field["type"], named, made)) for field in schema["fields"]
            ]
            return record
        case "enum":
            made[schema["name"]] = Enumeration(schema["name"], tuple(schema["symbols"]))
            return made[schema["name"]]
        case "fixed":
            made[schema["name"]] = Fixed(schema["name"], schema["size"], logical)
            return made[schema["name"]]
        case "array":
            return Array(_type(schema["items"], named, made))
        case "map":
            return Map(_type(schema["values"], named, made))
        case str() if kind in PRIMITIVES:
            return Primitive(kind, logical)
        case _:
            return _type(kind, named, made)  # {"type": NAME}
