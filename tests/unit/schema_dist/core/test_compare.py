"""Texts that mean the same schema, and texts that do not."""

from __future__ import annotations

import json
import re

import pytest

from schema_dist.core.compare import (
    SchemaTextError,
    canonical,
    canonical_object,
    computed_fingerprint,
    difference,
    fingerprint,
)
from schema_dist.core.model import (
    AVRO,
    JSON,
    PROTOBUF,
    Reference,
    Schema,
    SchemaId,
    SchemaVersion,
    Version,
)

PROTO = """
syntax = "proto3"; // which one
import "b.proto"; import "a.proto";
option java_package = "x";
/* a message */ message P { string a = 1; }
"""

FORMATTED = (
    "syntax='proto3'; option java_package=\"x\";\n"
    "import 'a.proto';import 'b.proto';message P{string a=1;}"
)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (
            AVRO,
            '{"type": "record", "name": "R", "fields": []}',
            '{"fields":[],"name":"R","type":"record"}',
        ),
        (AVRO, '"string"', ' "string" '),
        (AVRO, '{"type":"double","default":1}', '{"type":"double","default":1.0}'),
        (AVRO, '{"type":"string","default":"\\u00e9"}', '{"type":"string","default":"é"}'),
        (JSON, '{"a": 1, "b": [true]}', '{"b":[true],"a":1}'),
        (PROTOBUF, PROTO, FORMATTED),
        (PROTOBUF, "CgdwLnByb3Rv", "CgdwLnByb3Rv="),  # a descriptor, with its padding or without
    ],
)
def test_the_same(kind: str, one: str, other: str) -> None:
    assert canonical(kind, one) == canonical(kind, other)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (AVRO, '{"type":"boolean","default":true}', '{"type":"boolean","default":1}'),
        (AVRO, '{"type":"record","fields":[1,2]}', '{"type":"record","fields":[2,1]}'),
        (JSON, '{"maximum": 1.5}', '{"maximum": 1}'),
        (PROTOBUF, "message P { string a = 1; }", "message P { string a = 2; }"),
        (PROTOBUF, "message P {} message Q {}", "message Q {} message P {}"),
        (PROTOBUF, 'option a = "x y"; message P {}', 'option a = "xy"; message P {}'),
        (PROTOBUF, "CgdwLnByb3Rv", "CgdxLnByb3Rv"),
        ("OTHER", "a b", "a  b"),
    ],
)
def test_not_the_same(kind: str, one: str, other: str) -> None:
    assert canonical(kind, one) != canonical(kind, other)


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        (AVRO, "{", "not JSON"),
        (AVRO, "", "not JSON"),
        (AVRO, "1", "an object, a list or a name"),
        (AVRO, '{"default": NaN}', "NaN is no JSON"),
        (AVRO, "[" * 100_000, "nested deeper than 500 levels"),
        (JSON, '"string"', "an object, true or false"),
        (PROTOBUF, "message P {", "ends inside a statement"),
        (PROTOBUF, "message P {} message", "ends inside a statement"),
        (PROTOBUF, "message P {}}", "a '}' too many"),
        (PROTOBUF, 'option a = "0123456789abc', "unexpected '\"012345678'$"),
        (PROTOBUF, "// nothing", "no statement"),
        (PROTOBUF, "", "no statement"),
    ],
)
def test_a_text_that_does_not_parse(kind: str, text: str, says: str) -> None:
    with pytest.raises(SchemaTextError, match=says):
        canonical(kind, text)


def test_references_and_type_belong_to_the_meaning() -> None:
    one = Reference("a", "a-value", Version(1))
    other = Reference("b", "b-value", Version(1))
    assert computed_fingerprint(Schema(AVRO, '"string"', (one, other))) == computed_fingerprint(
        Schema(AVRO, '"string"', (other, one))
    )
    shapes = [
        Schema(AVRO, '{"type":"string"}'),
        Schema(JSON, '{"type":"string"}'),
        Schema(AVRO, '{"type":"string"}', (one,)),
        Schema(AVRO, '{"type":"string"}', (Reference("a", "a-value", Version(2)),)),
    ]
    assert len({computed_fingerprint(shape) for shape in shapes}) == len(shapes)
    with_more = Schema(AVRO, shapes[0].text, extra='{"x":1}')
    assert fingerprint(shapes[0]) == computed_fingerprint(with_more)


def test_an_object_is_one_text_in_any_order_of_its_keys() -> None:
    assert canonical_object({"b": [1, 2], "a": None}) == '{"a":null,"b":[1,2]}'


def test_what_differs_is_said() -> None:
    def made(number: int, text: str) -> SchemaVersion:
        return SchemaVersion(
            subject="s", version=Version(1), id=SchemaId(number), schema=Schema(AVRO, text)
        )

    wanted = made(1, '"string"')
    assert difference(wanted, made(1, ' "string"')) is None
    assert difference(wanted, None) == "it is not there"
    assert difference(wanted, made(2, '"string"')) == "it has id 2"
    assert difference(wanted, made(1, '"bytes"')) == "its schema is another one"
    assert "does not parse" in str(difference(wanted, made(1, "{")))


def test_a_large_protobuf_text_reads_as_json_dumps_writes_it() -> None:
    fields = "".join(f"string f{at} = {at + 1}; " for at in range(700))  # several calls
    text = f'import "b"; option a = "x\\"y"; import "a"; message M {{ {fields}}} message N {{}}'
    words = [f"message M {{ {fields}}}", "message N {}"]
    split = [re.findall(r"[\w]+|[^\w\s]", word) for word in words]
    loose = [["import", '"a"', ";"], ["import", '"b"', ";"]]
    loose.append(["option", "a", "=", '"x\\"y"', ";"])
    assert canonical(PROTOBUF, text) == json.dumps([loose, split])


def test_a_comment_without_an_end_is_searched_for_it_once() -> None:
    """Each `/*` was searched to the end of the text: half a day for what the view takes."""
    with pytest.raises(SchemaTextError, match="a comment has no end"):
        canonical(PROTOBUF, "/* " * 700_000)
    assert (
        canonical(PROTOBUF, "/* a */ message /* */ M {} // end")
        == '[[], [["message", "M", "{", "}"]]]'
    )
