"""Values taken apart by the schema that their first bytes name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest

from schema_dist.decoding import (
    HEADER_BYTES,
    REFERENCES_MAX,
    Decodable,
    Text,
    Undecodable,
    document_of,
    schema_id_of,
    schema_of,
)

CUSTOMER = {"type": "record", "name": "Customer", "fields": [{"name": "name", "type": "string"}]}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "customer", "type": "Customer"},
        {"name": "sum", "type": MONEY},
        {"name": "raw", "type": "bytes"},
    ],
}
PLACE = 'syntax = "proto3"; package geo; message Place { string city = 1; }'
TRIP = """
syntax = "proto3";
package trips;
import "geo/place.proto";
import "google/protobuf/timestamp.proto";
message First { int32 a = 1; }
message Trip {
  message Stop { geo.Place place = 1; google.protobuf.Timestamp at = 2; }
  string id = 1;
}
"""


class Registry:
    """Answers by path."""

    def __init__(self, **answers: Mapping[str, Any]) -> None:
        self.answers = {name.replace("__", "/"): answer for name, answer in answers.items()}
        self.asked: list[str] = []

    async def ask(self, method: str, path: str, *, query: dict[str, str] | None = None) -> object:
        assert (method, query is None) == ("GET", False)
        self.asked.append(path)
        return self.answers[path.removeprefix("/")]


def reference(name: str, subject: str) -> dict[str, Any]:
    return {"name": name, "subject": subject, "version": 1}


def fetched(registry: Registry, schema_id: int = 7) -> Decodable:
    return asyncio.run(schema_of(registry, schema_id, "orders"))


def test_a_schema_with_those_it_refers_to() -> None:
    registry = Registry(
        schemas__ids__7={"schema": "top", "references": [reference("b", "b"), reference("a", "a")]},
        subjects__b__versions__1={"schema": "text b", "references": [reference("a", "a")]},
        subjects__a__versions__1={"schema": "text a"},
    )
    found = fetched(registry)
    assert (found.kind, found.text) == ("AVRO", "top")
    assert [tuple(pair) for pair in found.references] == [("a", "text a"), ("b", "text b")]
    assert registry.asked.count("/subjects/a/versions/1") == 1


def test_references_without_end() -> None:
    many = [reference(f"r{at}", "a") for at in range(REFERENCES_MAX + 1)]
    registry = Registry(
        schemas__ids__7={"schema": "top", "references": many},
        subjects__a__versions__1={"schema": "text"},
    )
    with pytest.raises(Undecodable, match="refers to more than"):
        fetched(registry)


def test_avro() -> None:
    order = {"customer": {"name": "Ann"}, "sum": Decimal("12.50"), "raw": b"\x01\xff"}
    named: dict[str, Any] = {}
    fastavro.parse_schema(CUSTOMER, named_schemas=named)
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER, named_schemas=named), order)
    schema = Decodable("AVRO", json.dumps(ORDER), [Text("Customer", json.dumps(CUSTOMER))])
    assert document_of(schema, out.getvalue()) == {
        "customer": {"name": "Ann"},
        "sum": "12.50",
        "raw": "01ff",
    }
    with pytest.raises(Undecodable, match="does not fit"):
        document_of(schema, b"")


def test_json() -> None:
    schema = Decodable("JSON", "{}", [])
    assert document_of(schema, b'{"a": [1]}') == {"a": [1]}
    for wrong in (b"{", b"", b"[" * 100_000):
        with pytest.raises(Undecodable, match="does not fit"):
            document_of(schema, wrong)


def test_protobuf_of_a_nested_message_with_an_import() -> None:
    schema = Decodable("PROTOBUF", TRIP, [Text("geo/place.proto", PLACE)])
    place = b"\x0a\x04" + b"Rome"
    stop = b"\x0a" + bytes([len(place)]) + place + b"\x12\x02\x08\x05"
    nested = bytes([4, 2, 0]) + stop  # two indexes, zigzag: message 1, its message 0
    assert document_of(schema, nested) == {
        "place": {"city": "Rome"},
        "at": "1970-01-01T00:00:05Z",
    }
    assert document_of(schema, b"\x00\x08\x05") == {"a": 5}, "a lone 0: the first message"
    for wrong in (b"", b"\x02\x7f", b"\x04\x02", b"\x00\xff\xff", b"\xff" * 9):
        with pytest.raises(Undecodable):
            document_of(schema, wrong)


@pytest.mark.parametrize("name", ["../out.proto", "/etc/x.proto", "a/../../x.proto"])
def test_a_reference_writes_nowhere_else(name: str) -> None:
    schema = Decodable("PROTOBUF", TRIP, [Text(name, PLACE)])
    with pytest.raises(Undecodable, match="no name of a file"):
        document_of(schema, b"\x00")


def test_schemas_that_are_none() -> None:
    for kind, text in (("PROTOBUF", "message {"), ("AVRO", '{"type": "nothing"}'), ("XML", "<a>")):
        with pytest.raises(Undecodable):
            document_of(Decodable(kind, text, []), b"\x00\x00")


@pytest.mark.parametrize("value", [b"", b"\x00\x00\x00", b"\x01\x00\x00\x00\x07abc"])
def test_values_without_a_schema(value: bytes) -> None:
    with pytest.raises(Undecodable, match="does not begin"):
        schema_id_of(value)
    assert schema_id_of(b"\x00\x00\x00\x01\x02") == 258
    assert HEADER_BYTES == 5
