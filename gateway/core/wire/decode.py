"""From bytes to messages, by a plan. Nothing here trusts the bytes: a length is compared with the
rest of the data before use.

Two columns, because thousands of their elements come with one share fetch; both exist in flexible
versions only:
  ackbatches  list[tuple[first offset, last offset, acknowledge types]], the types as bytes
  acquired    list[tuple[first offset, last offset, delivery count]]
Unknown tags of an element, which no client sends today, go to `<column>._tags` of the enclosing
message, by index.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.wire.errors import (
    BadLength,
    BadTags,
    BadText,
    TooManyElements,
    TrailingBytes,
    Truncated,
    UnexpectedNull,
)
from gateway.core.wire.long_bytes import Stretch
from gateway.core.wire.schema import (
    ACK_BATCHES,
    BOOL,
    BYTES,
    COLUMN_TAGS,
    I8,
    I8S,
    I16,
    I16S,
    I32,
    I32S,
    I64,
    STRING,
    STRINGS,
    STRUCT,
    STRUCTS,
    TAGS,
    U16,
    UUID,
    Message,
    Op,
    Plan,
    Value,
)

# Structs, strings of arrays, column elements and tags of one message. An empty struct takes two
# bytes on the wire and some 300 here, so without this a frame of 100 MiB could take 15 GB. The
# metadata of a million partitions still fits.
ELEMENTS_MAX: Final = 2_000_000
# Of a request that is answered here, from any client. It acknowledges 100 partitions with 2,000
# ranges each: decoded in 30 ms, compiled.
REQUEST_ELEMENTS_MAX: Final = 250_000
# A struct, a string or a number in an array of such a request (a partition, a group) may become a
# row of the answer, and counts for so many elements. So there are 15,625 at most: decoded in 30 ms,
# and their rows encoded in 55 ms, compiled, on a machine that does other work, too.
REQUEST_ROW_ELEMENTS: Final = 16
# Of a request that is looked into on its way (DescribeConfigs): it gets no row from here.
PASSING_ROW_ELEMENTS: Final = 8
LENGTH_MAX: Final = 0x7FFF_FFFF
STRING_MAX: Final = 0x7FFF  # bytes; Kafka's limit also where the length is a varint
UUID_SIZE: Final = 16
_ACK_SIZE_MIN: Final = 18  # two offsets, the length of the types, the number of tags
_ACK_SIZE_ONE_TYPE: Final = 19
_ONE_TYPE: Final = 2  # length 1 as a compact array writes it
_ACQUIRED_SIZE_MIN: Final = 19  # two offsets, the delivery count, the number of tags
_VARINT_SHIFT_MAX: Final = 28  # five bytes

Tags = dict[int, bytes]


class Reader:
    """Where in the data we are. Every method moves on or raises a WireError."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data: bytes = data
        self.at: i64 = at
        self.end: i64 = len(data)
        self.elements_left: i64 = ELEMENTS_MAX
        self.row_elements: i64 = 1

    def skip(self, size: i64) -> i64:
        """Moves behind `size` bytes and says where they start."""
        at = self.at
        if size > self.end - at:
            raise Truncated(f"{size} bytes wanted at {at}, {self.end - at} left")
        self.at = at + size
        return at

    def uvarint(self) -> i64:
        value: i64 = 0
        shift: i64 = 0
        while True:
            at = self.skip(1)
            byte: i64 = self.data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > _VARINT_SHIFT_MAX:
                raise BadLength(f"varint of more than five bytes before {self.at}")
        if value > LENGTH_MAX:
            raise BadLength(f"varint {value} before {self.at}")
        return value

    def i32(self) -> i64:
        at = self.skip(4)
        return i64(read_i32_be(self.data, at))

    def i16(self) -> i64:
        at = self.skip(2)
        return i64(read_i16_be(self.data, at))

    def size(self, op: Op, *, flexible: bool) -> i64:
        """Length of bytes or count of an array; -1 = null, only where the field may be."""
        size: i64 = self.uvarint() - 1 if flexible else self.i32()
        if size < 0:
            if size < -1:
                raise BadLength(f"{op.name}: length {size}")
            if not op.nullable:
                raise UnexpectedNull(op.name)
        return size

    def count(self, op: Op, size_min: i64, *, flexible: bool) -> i64:
        """Count of an array whose elements take `size_min` bytes or more."""
        count = self.size(op, flexible=flexible)
        if count > (self.end - self.at) // size_min:
            raise Truncated(f"{op.name}: {count} elements at {self.at}, {self.end - self.at} bytes")
        if count > 0:  # Null is -1: it must not give elements back.
            self.charge(count)
        return count

    def charge(self, elements: i64) -> None:
        self.elements_left -= elements
        if self.elements_left < 0:
            raise TooManyElements(f"too many elements at {self.at}")

    def charge_rows(self, count: i64) -> None:
        """The weight of elements that become rows, beyond the one of every element."""
        self.charge(count * (self.row_elements - 1))


def decode(
    plan: Plan,
    data: bytes,
    at: int,
    elements_max: int = ELEMENTS_MAX,
    row_elements: int = 1,
) -> Message:
    """Decodes all of `data` from `at` on. A struct, or a string or number of an array, counts for
    `row_elements`; with 1, numbers do not count. Raises WireError.
    """
    reader = Reader(data, at)
    reader.elements_left = elements_max
    reader.row_elements = row_elements
    message = _struct(reader, plan)
    if reader.at != reader.end:
        raise TrailingBytes(f"{reader.end - reader.at} bytes behind the message")
    return message


def _struct(reader: Reader, plan: Plan) -> Message:
    message: Message = {}
    for op in plan.ops:
        if op.kind < ACK_BATCHES:
            message[op.name] = _value(reader, op, plan.flexible)
        else:
            _column(reader, op, message)
    for name, value in plan.constants:
        message[name] = value
    for name, struct in plan.copied:
        message[name] = struct.copy()
    for field in plan.fresh:
        message[field.name] = field.default_value()
    if plan.flexible:
        count = reader.uvarint()
        if count:
            _tagged(reader, plan, count, message)
    return message


def _value(reader: Reader, op: Op, flexible: bool) -> Value:
    kind = op.kind
    if kind == I32:
        return reader.i32()
    if kind == STRING:
        return _string(reader, op, flexible)
    if kind == I64:
        at = reader.skip(8)
        return read_i64_be(reader.data, at)
    if kind == I16:
        return reader.i16()
    if kind == STRUCTS:
        return _structs(reader, op, flexible)
    if kind == UUID:
        at = reader.skip(UUID_SIZE)
        return reader.data[at : at + UUID_SIZE]
    if kind == I32S:
        return _i32s(reader, op, flexible)
    if kind == BOOL:
        at = reader.skip(1)
        return reader.data[at] != 0
    return _rare_value(reader, op, flexible)


def _rare_value(reader: Reader, op: Op, flexible: bool) -> Value:
    kind = op.kind
    if kind == I8:
        at = reader.skip(1)
        byte: i64 = reader.data[at]
        return byte - 256 if byte > 127 else byte
    if kind == BYTES or kind == I8S:  # noqa: SIM109 - a tuple costs
        size = reader.size(op, flexible=flexible)
        if size < 0:
            return None
        at = reader.skip(size)
        if size > LONG_STEP_BYTES:
            return Stretch(reader.data, int(at), int(at + size))
        return reader.data[at : at + size]
    if kind == STRINGS:
        return _strings(reader, op, flexible)
    if kind == STRUCT:
        if op.nullable and _is_null(reader):
            return None
        assert op.plan is not None
        return _struct(reader, op.plan)
    if kind == I16S:
        return _i16s(reader, op, flexible)
    assert kind == U16
    return reader.i16() & 0xFFFF


def _is_null(reader: Reader) -> bool:
    at = reader.skip(1)
    return reader.data[at] > 127  # A nullable struct starts with a signed byte: negative = null.


def _string(reader: Reader, op: Op, flexible: bool) -> str | None:
    size: i64 = reader.uvarint() - 1 if flexible else reader.i16()
    if size < 0:
        if size < -1:
            raise BadLength(f"{op.name}: length {size}")
        if not op.nullable:
            raise UnexpectedNull(op.name)
        return None
    if size > STRING_MAX:
        raise BadLength(f"{op.name}: string of {size} bytes")
    at = reader.skip(size)
    try:
        return reader.data[at : at + size].decode("utf-8")
    except UnicodeDecodeError:
        raise BadText(op.name) from None


def _structs(reader: Reader, op: Op, flexible: bool) -> list[Message] | None:
    plan = op.plan
    assert plan is not None
    count = reader.count(op, plan.size_min, flexible=flexible)
    if count < 0:
        return None
    reader.charge_rows(count)
    return [_struct(reader, plan) for _ in range(count)]


def _i32s(reader: Reader, op: Op, flexible: bool) -> list[int] | None:
    count = reader.size(op, flexible=flexible)
    if count < 0:
        return None
    if count > reader.end - reader.at:
        raise Truncated(f"{op.name}: {count} elements at {reader.at}")
    reader.charge_rows(count)
    at = reader.skip(4 * count)
    data = reader.data
    return [read_i32_be(data, at + 4 * index) for index in range(count)]


def _i16s(reader: Reader, op: Op, flexible: bool) -> list[int] | None:
    count = reader.count(op, 2, flexible=flexible)
    if count < 0:
        return None
    reader.charge_rows(count)
    return [int(reader.i16()) for _ in range(count)]


def _strings(reader: Reader, op: Op, flexible: bool) -> list[str] | None:
    count = reader.count(op, 1 if flexible else 2, flexible=flexible)
    if count < 0:
        return None
    reader.charge_rows(count)
    item = op.item
    assert item is not None
    strings: list[str] = []
    for _ in range(count):
        string = _string(reader, item, flexible)
        assert string is not None
        strings.append(string)
    return strings


def _tagged(reader: Reader, plan: Plan, count: i64, message: Message) -> None:
    unknown: Tags = {}
    seen: set[int] = set()
    reader.charge(count)
    for _ in range(count):
        tag = reader.uvarint()
        size = reader.uvarint()
        at = reader.skip(size)
        if tag in seen:
            raise BadTags(f"tag {tag} given twice")
        seen.add(tag)
        op = _op_of_tag(plan, tag)
        if op is None:
            unknown[tag] = reader.data[at : at + size]
            continue
        end = reader.end
        reader.at = at
        reader.end = at + size
        message[op.name] = _value(reader, op, flexible=True)
        if reader.at != reader.end:
            raise BadTags(f"{op.name}: {reader.end - reader.at} bytes too many")
        reader.end = end
    if unknown:
        message[TAGS] = unknown


def _op_of_tag(plan: Plan, tag: i64) -> Op | None:
    for op in plan.tagged:
        if op.tag == tag:
            return op
    return None


def _unknown_tags(reader: Reader, count: i64) -> Tags:
    tags: Tags = {}
    reader.charge(count)
    for _ in range(count):
        tag = reader.uvarint()
        size = reader.uvarint()
        at = reader.skip(size)
        if tag in tags:
            raise BadTags(f"tag {tag} given twice")
        tags[tag] = reader.data[at : at + size]
    return tags


def _column(reader: Reader, op: Op, message: Message) -> None:
    tags: dict[int, Tags] = {}
    if op.kind == ACK_BATCHES:
        message[op.name] = _ack_batches(reader, op, tags)
    else:
        message[op.name] = _acquired(reader, op, tags)
    if tags:
        message[op.name + COLUMN_TAGS] = tags


def _ack_batches(reader: Reader, op: Op, tags: dict[int, Tags]) -> list[tuple[int, int, bytes]]:
    batches: list[tuple[int, int, bytes]] = []
    count = reader.count(op, _ACK_SIZE_MIN, flexible=True)
    data = reader.data
    for index in range(count):
        at = reader.at
        if (
            at + _ACK_SIZE_ONE_TYPE <= reader.end
            and data[at + 16] == _ONE_TYPE
            and data[at + 18] == 0
        ):  # One type, no tags: the form that clients send nearly always.
            types = data[at + 17 : at + 18]
            batches.append((read_i64_be(data, at), read_i64_be(data, at + 8), types))
            reader.at = at + _ACK_SIZE_ONE_TYPE
            continue
        reader.skip(_ACK_SIZE_MIN - 2)
        size = reader.uvarint() - 1
        if size < 0:
            raise UnexpectedNull("AcknowledgeTypes")
        types_at = reader.skip(size)
        types = data[types_at : types_at + size]
        batches.append((read_i64_be(data, at), read_i64_be(data, at + 8), types))
        tag_count = reader.uvarint()
        if tag_count:
            tags[index] = _unknown_tags(reader, tag_count)
    return batches


def _acquired(reader: Reader, op: Op, tags: dict[int, Tags]) -> list[tuple[int, int, int]]:
    ranges: list[tuple[int, int, int]] = []
    count = reader.count(op, _ACQUIRED_SIZE_MIN, flexible=True)
    data = reader.data
    for index in range(count):
        at = reader.skip(_ACQUIRED_SIZE_MIN - 1)
        ranges.append(
            (read_i64_be(data, at), read_i64_be(data, at + 8), read_i16_be(data, at + 16))
        )
        if reader.at < reader.end and data[reader.at] == 0:
            reader.at += 1
            continue
        tag_count = reader.uvarint()
        if tag_count:
            tags[index] = _unknown_tags(reader, tag_count)
    return ranges
