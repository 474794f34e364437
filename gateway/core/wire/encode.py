"""From messages to bytes, by a plan. The bytes are those kafka-clients writes for the same message.

So: tagged fields go out only when they differ from their defaults, merged with the unknown ones in
the order of tags. The contents of a message: codec.py.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64

from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.wire.decode import LENGTH_MAX, STRING_MAX, UUID_SIZE, Tags
from gateway.core.wire.errors import EncodeError
from gateway.core.wire.long_bytes import LongBytes, whole
from gateway.core.wire.schema import (
    ACK_BATCHES,
    ACQUIRED,
    BOOL,
    COLUMN_TAGS,
    I8,
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

_MISSING: Final = object()


@final
class Writer:
    """The bytes so far. A long value is not copied."""

    def __init__(self) -> None:
        self.out: BytesWriter = BytesWriter()  # behind the last of `_parts`
        self._parts: list[bytes | memoryview] = []

    def long_value(self, parts: list[bytes | memoryview]) -> None:
        self._parts.append(self.out.getvalue())
        self._parts += parts
        self.out = BytesWriter()

    def done(self) -> bytes | LongBytes:
        """The last part of a long message is bytes, and not its long value."""
        last = self.out.getvalue()
        return LongBytes([*self._parts, last]) if self._parts else last


def encode(plan: Plan, message: Message) -> bytes:
    """Raises EncodeError."""
    return whole(encode_long(plan, message))


def encode_long(plan: Plan, message: Message) -> bytes | LongBytes:
    """The same without a copy of a long value."""
    writer = Writer()
    _struct(writer, plan, message)
    return writer.done()


def write_uvarint(writer: BytesWriter, value: i64) -> None:
    while value > 0x7F:
        writer.append((value & 0x7F) | 0x80)
        value >>= 7
    writer.append(value)


def _struct(writer: Writer, plan: Plan, message: Message) -> None:
    seen: i64 = 0
    name = ""
    try:
        for op in plan.ops:
            name = op.name
            value = message.get(name, _MISSING)
            if value is _MISSING:
                value = op.default
            else:
                seen += 1
            if op.kind < ACK_BATCHES:
                _value(writer, op, value, plan.flexible)
            else:
                _column(writer, op, value, message.get(name + COLUMN_TAGS))
        if plan.flexible:
            name = TAGS
            _tagged(writer, plan, message)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise EncodeError(f"{name}: {error}") from error
    if seen != len(message):
        for name in message:
            if name not in plan.names:
                raise EncodeError(f"no field {name}")


def _value(writer: Writer, op: Op, value: Value, flexible: bool) -> None:
    kind = op.kind
    if kind == I32:
        write_i32_be(writer.out, value)
    elif kind == STRING:
        _string(writer, op, value, flexible)
    elif kind == I64:
        write_i64_be(writer.out, value)
    elif kind == I16:
        write_i16_be(writer.out, value)
    elif kind == STRUCTS:
        _structs(writer, op, value, flexible)
    elif kind == UUID:
        if not isinstance(value, bytes) or len(value) != UUID_SIZE:
            raise EncodeError(f"{op.name}: 16 bytes wanted")
        writer.out.write(value)
    elif kind == BOOL:
        writer.out.append(1 if value else 0)
    else:
        _rare_value(writer, op, value, flexible)


def _rare_value(writer: Writer, op: Op, value: Value, flexible: bool) -> None:
    kind = op.kind
    if kind == I32S:
        for number in _list(writer, op, value, flexible):
            write_i32_be(writer.out, number)
    elif kind == I16S:
        for number in _list(writer, op, value, flexible):
            write_i16_be(writer.out, number)
    elif kind == STRINGS:
        assert op.item is not None
        for string in _list(writer, op, value, flexible):
            _string(writer, op.item, string, flexible)
    elif kind == STRUCT:
        _one_struct(writer, op, value)
    elif kind == I8:
        writer.out.append(_in_range(op, value, -128, 127) & 0xFF)
    elif kind == U16:
        number = _in_range(op, value, 0, 0xFFFF)
        writer.out.append(number >> 8)
        writer.out.append(number & 0xFF)
    else:
        _bytes(writer, op, value, flexible)


def _in_range(op: Op, value: Value, lowest: int, highest: int) -> int:
    number: int = value
    if not lowest <= number <= highest:
        raise EncodeError(f"{op.name}: {number} is not within {lowest} and {highest}")
    return number


def _string(writer: Writer, op: Op, value: Value, flexible: bool) -> None:
    if value is None:
        _null(writer, op, flexible, 2)
        return
    if not isinstance(value, str):
        raise EncodeError(f"{op.name}: str wanted, not {type(value).__name__}")
    data = value.encode("utf-8")
    size = len(data)
    if size > STRING_MAX:
        raise EncodeError(f"{op.name}: string of {size} bytes")
    if flexible:
        write_uvarint(writer.out, size + 1)
    else:
        write_i16_be(writer.out, i16(size))
    writer.out.write(data)


def _bytes(writer: Writer, op: Op, value: Value, flexible: bool) -> None:
    if value is None:
        _null(writer, op, flexible, 4)
        return
    if isinstance(value, LongBytes):
        _size(writer, value.size, flexible)
        writer.long_value(value.parts)
        return
    if not isinstance(value, bytes):
        raise EncodeError(f"{op.name}: bytes wanted, not {type(value).__name__}")
    _size(writer, len(value), flexible)
    if len(value) > LONG_STEP_BYTES:
        writer.long_value([value])
    else:
        writer.out.write(value)


def _list(writer: Writer, op: Op, value: Value, flexible: bool) -> list[Value]:
    """Writes the count and returns the elements to follow it: none for null."""
    if value is None:
        _null(writer, op, flexible, 4)
        return []
    if not isinstance(value, list):
        raise EncodeError(f"{op.name}: list wanted, not {type(value).__name__}")
    _size(writer, len(value), flexible)
    return value


def _size(writer: Writer, size: int, flexible: bool) -> None:
    if flexible:
        write_uvarint(writer.out, size + 1)
    else:
        write_i32_be(writer.out, i32(size))


def _null(writer: Writer, op: Op, flexible: bool, size_bytes: int) -> None:
    if not op.nullable:
        raise EncodeError(f"{op.name} may not be null")
    if flexible:
        writer.out.append(0)
    else:
        writer.out.write(b"\xff" * size_bytes)


def _structs(writer: Writer, op: Op, value: Value, flexible: bool) -> None:
    plan = op.plan
    assert plan is not None
    for message in _list(writer, op, value, flexible):
        _struct(writer, plan, _checked_dict(op, message))


def _one_struct(writer: Writer, op: Op, value: Value) -> None:
    if op.nullable:
        writer.out.append(255 if value is None else 1)
        if value is None:
            return
    assert op.plan is not None
    _struct(writer, op.plan, _checked_dict(op, value))


def _checked_dict(op: Op, value: Value) -> Message:
    if not isinstance(value, dict):
        raise EncodeError(f"{op.name}: dict wanted, not {type(value).__name__}")
    return value


def _tagged(writer: Writer, plan: Plan, message: Message) -> None:
    unknown: Tags | None = message.get(TAGS)
    if not unknown and not plan.tagged:
        writer.out.append(0)
        return
    fields: Tags = {}
    for op in plan.tagged:
        value = message.get(op.name, _MISSING)
        if value is _MISSING or _is_default(op, value):
            continue
        content = Writer()
        _value(content, op, value, flexible=True)
        fields[int(op.tag)] = whole(content.done())
    if unknown:
        for tag, data in unknown.items():
            if tag in fields or not 0 <= tag <= LENGTH_MAX:
                raise EncodeError(f"tag {tag} is a field we know, or no tag at all")
            fields[tag] = data
    write_tags(writer, fields)


def _is_default(op: Op, value: Value) -> bool:
    if op.kind == STRUCT and isinstance(value, dict) and isinstance(op.default, dict):
        return all(name in op.default and value[name] == op.default[name] for name in value)
    return bool(value == op.default)


def write_tags(writer: Writer, tags: Tags) -> None:
    write_uvarint(writer.out, len(tags))
    for tag in sorted(tags):
        data = tags[tag]
        write_uvarint(writer.out, tag)
        write_uvarint(writer.out, len(data))
        writer.out.write(data)


def _column(writer: Writer, op: Op, value: Value, tags: dict[int, Tags] | None) -> None:
    if not isinstance(value, list):
        raise EncodeError(f"{op.name}: list wanted, not {type(value).__name__}")
    write_uvarint(writer.out, len(value) + 1)
    if op.kind == ACQUIRED:
        _acquired(writer, value, tags)
    else:
        _ack_batches(writer, value, tags)


def _ack_batches(
    writer: Writer, batches: list[tuple[int, int, bytes]], tags: dict[int, Tags] | None
) -> None:
    out = writer.out
    index = 0
    for first, last, types in batches:
        write_i64_be(out, first)
        write_i64_be(out, last)
        write_uvarint(out, len(types) + 1)
        out.write(types)
        if tags is None:
            out.append(0)
        else:
            write_tags(writer, tags.get(index, {}))
            index += 1


def _acquired(
    writer: Writer, ranges: list[tuple[int, int, int]], tags: dict[int, Tags] | None
) -> None:
    out = writer.out
    index = 0
    for first, last, deliveries in ranges:
        write_i64_be(out, first)
        write_i64_be(out, last)
        write_i16_be(out, deliveries)
        if tags is None:
            out.append(0)
        else:
            write_tags(writer, tags.get(index, {}))
            index += 1
