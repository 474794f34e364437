"""Random messages of any table and version, and the right kafka-clients JSON of a message."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from random import Random
from typing import Any

from gateway.core.wire import schema as s
from gateway.core.wire.schema import COLUMN_TAGS, TAGS, Field, Message, Schema

_LIMITS = {s.I8: 7, s.I16: 15, s.I32: 31, s.I64: 63}
_TEXTS = ["", "a", "topic-é", "日本", "😀" * 5, "x" * 300, "y" * 32_767]
_UNKNOWN_TAGS = [4, 5, 77, 127, 128, 16_384, 2**31 - 2]
_NULL_SHARE = 0.25
_TAG_SHARE = 0.6
_UNKNOWN_TAG_SHARE = 0.25


class Values:
    """`plain` values are those every client library takes: small numbers, no unknown tags."""

    def __init__(self, seed: int, *, plain: bool = False) -> None:
        self.random = Random(seed)
        self.plain = plain

    def message(self, schema: Schema, version: int) -> Message:
        flexible = schema.flexible_from is not None and version >= schema.flexible_from
        return self._struct(schema.fields, version, flexible=flexible)

    def _struct(self, fields: list[Field], version: int, *, flexible: bool) -> Message:
        message: Message = {}
        for field in fields:
            if not field.versions.has(version):
                continue
            if field.tag >= 0 and self.random.random() > _TAG_SHARE:
                continue
            message[field.name] = self._value(field, version, flexible=flexible)
            if field.kind >= s.ACK_BATCHES and self._wants_tags():
                message[field.name + COLUMN_TAGS] = {
                    index: self._tags() for index in range(0, len(message[field.name]), 2)
                }
        if flexible and self._wants_tags():
            message[TAGS] = self._tags()
        return message

    def _wants_tags(self) -> bool:
        return not self.plain and self.random.random() < _UNKNOWN_TAG_SHARE

    def _tags(self) -> dict[int, bytes]:
        tags = self.random.sample(_UNKNOWN_TAGS, self.random.randint(1, 3))
        return {tag: self._bytes() for tag in tags}

    def _value(self, field: Field, version: int, *, flexible: bool) -> Any:
        random = self.random
        if field.nullable.has(version) and random.random() < _NULL_SHARE:
            return None
        match field.kind:
            case s.BOOL:
                return random.random() < 0.5
            case s.I8 | s.I16 | s.I32 | s.I64:
                return self._number(_LIMITS[field.kind])
            case s.U16:
                return random.choice([0, 9092, 65_535])
            case s.UUID:
                return random.randbytes(16)
            case s.STRING:
                return self._text()
            case s.BYTES | s.I8S:
                return self._bytes()
            case s.STRUCT:
                return self._struct(field.fields, version, flexible=flexible)
            case _:
                return [self._item(field, version, flexible) for _ in range(random.randint(0, 3))]

    def _item(self, field: Field, version: int, flexible: bool) -> Any:
        match field.kind:
            case s.I32S:
                return self._number(31)
            case s.I16S:
                return self._number(15)
            case s.STRINGS:
                return self._text()
            case s.STRUCTS:
                return self._struct(field.fields, version, flexible=flexible)
            case s.ACK_BATCHES:
                return (self._number(63), self._number(63), self._bytes()[:3])
            case _:
                assert field.kind == s.ACQUIRED
                return (self._number(63), self._number(63), self._number(15))

    def _number(self, bits: int) -> int:
        if self.plain:
            return self.random.randint(0, 100)
        highest = int(2**bits - 1)
        return self.random.choice([0, 1, -1, highest, -highest - 1, self.random.randrange(highest)])

    def _text(self) -> str:
        return self.random.choice(_TEXTS[:4] if self.plain else _TEXTS)

    def _bytes(self) -> bytes:
        return self.random.randbytes(self.random.choice([0, 1, 2, 3, 126, 127, 200]))


def skeleton(fields: list[Field], version: int) -> Message:
    """Defaults everywhere, but one element in each array of structs and no struct null.

    A tagged struct has an unknown tag, so that it is written though its fields are at defaults.
    """
    message: Message = {}
    for field in fields:
        if field.kind in (s.STRUCT, s.STRUCTS):
            struct = skeleton(field.fields, version)
            if field.kind == s.STRUCT and field.tag >= 0:
                struct[TAGS] = {77: b""}
            message[field.name] = [struct] if field.kind == s.STRUCTS else struct
        elif field.kind == s.ACK_BATCHES:
            message[field.name] = [(0, 0, b"")]
        elif field.kind == s.ACQUIRED:
            message[field.name] = [(0, 0, 0)]
    return message


def kafka_json(fields: list[Field], version: int, message: Message) -> dict[str, Any]:
    """The message as kafka-clients' JsonConverter writes it: its names, its values."""
    json: dict[str, Any] = {}
    for field in fields:
        value = message[field.name]
        if not field.versions.has(version) or (field.tag >= 0 and value == field.default_value()):
            continue
        name = field.name[0].lower() + field.name[1:]
        if field.name == "Records" and value is not None:
            json["recordsSizeInBytes"] = len(value)
        else:
            json[name] = _json_value(field, version, value)
    return json


def _json_value(field: Field, version: int, value: Any) -> Any:
    if value is None:
        return None
    match field.kind:
        case s.UUID:
            return urlsafe_b64encode(value).rstrip(b"=").decode()
        case s.BYTES:
            return b64encode(value).decode()
        case s.I8S:
            return _signed(value)
        case s.STRUCT:
            return kafka_json(field.fields, version, value)
        case s.STRUCTS:
            return [kafka_json(field.fields, version, item) for item in value]
        case s.ACK_BATCHES:
            return [
                {"firstOffset": first, "lastOffset": last, "acknowledgeTypes": _signed(types)}
                for first, last, types in value
            ]
        case s.ACQUIRED:
            return [
                {"firstOffset": first, "lastOffset": last, "deliveryCount": deliveries}
                for first, last, deliveries in value
            ]
        case _:
            return value


def _signed(data: bytes) -> list[int]:
    return [byte - 256 if byte > 127 else byte for byte in data]
