"""Random Avro schemas and records: fastavro reads the edited bytes by the derived schema."""

from __future__ import annotations

import copy
import io
import math
from typing import Any

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from spark.transforms.core.avro_derived import ConflictingChange, SchemaTree
from spark.transforms.core.avro_document import AvroDocument
from spark.transforms.core.avro_types import Definitions, defined, types_of
from spark.transforms.core.paths import EVERY, Path
from spark.transforms.core.values import Number, UnreadableRecord

LONG = st.integers(-(2**63), 2**63 - 1)
SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": LONG,
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=5),
    "string": st.text(max_size=5),
}
FIELDS = ("a", "b", "c")


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    """A record; every named type has a name of its own."""
    count = iter(range(1_000))

    def name(prefix: str) -> str:
        return f"{draw(st.sampled_from(['', 'ns.']))}{prefix}{next(count)}"

    def kind(depth: int) -> Any:
        choice = draw(
            st.sampled_from([*SIMPLE, "record", "array", "map", "union", "enum", "fixed"])
        )
        if choice in SIMPLE or depth == 0:
            return choice if choice in SIMPLE else "string"
        if choice == "record":
            return record(depth - 1)
        if choice == "array":
            return {"type": "array", "items": kind(depth - 1)}
        if choice == "map":
            return {"type": "map", "values": kind(depth - 1)}
        if choice == "enum":
            return {"type": "enum", "name": name("E"), "symbols": ["X", "Y"]}
        if choice == "fixed":
            return {"type": "fixed", "name": name("F"), "size": 3}
        inner = kind(depth - 1)
        return inner if inner == "null" or isinstance(inner, list) else ["null", inner]

    def record(depth: int) -> Any:
        fields = [
            {"name": field, "type": kind(depth)} for field in FIELDS[: draw(st.integers(1, 3))]
        ]
        return {"type": "record", "name": name("R"), "fields": fields}

    return record(3)


def data_of(draw: st.DrawFn, schema: Any) -> Any:
    if isinstance(schema, str):
        return draw(SIMPLE[schema])
    if isinstance(schema, list):
        return data_of(draw, draw(st.sampled_from(schema)))
    match schema["type"]:
        case "record":
            return {field["name"]: data_of(draw, field["type"]) for field in schema["fields"]}
        case "array":
            return [data_of(draw, schema["items"]) for _ in range(draw(st.integers(0, 2)))]
        case "map":
            keys = draw(st.lists(st.sampled_from(FIELDS), unique=True, max_size=2))
            return {key: data_of(draw, schema["values"]) for key in keys}
        case "enum":
            return draw(st.sampled_from(schema["symbols"]))
        case _:
            return draw(st.binary(min_size=3, max_size=3))


@st.composite
def records(draw: st.DrawFn) -> tuple[Any, Any, bytes, Path]:
    schema = draw(schemas())
    datum = data_of(draw, schema)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, copy.deepcopy(schema), datum)
    return schema, datum, out.getvalue(), draw(paths_into(schema))


def paths_into(schema: Any) -> st.SearchStrategy[Path]:
    found: list[Path] = []

    def walk(shape: Any, way: tuple[Any, ...]) -> None:
        if isinstance(shape, list):
            for branch in shape:
                walk(branch, way)
        elif isinstance(shape, dict) and shape["type"] == "record":
            for field in shape["fields"]:
                found.append(Path((*way, field["name"])))
                walk(field["type"], (*way, field["name"]))
        elif isinstance(shape, dict) and shape["type"] == "array":
            walk(shape["items"], (*way, EVERY))
        elif isinstance(shape, dict) and shape["type"] == "map":
            walk(shape["values"], (*way, "a"))

    walk(schema, ())
    return st.sampled_from(found)


def edited(value: Any, segments: tuple[Any, ...], act: Any) -> Any:
    """The oracle: `act` on the object that holds the last segment's field."""
    if value is None:
        return None
    if segments[0] is EVERY:
        return [edited(inner, segments[1:], act) for inner in value]
    if segments[0] not in value:
        return value
    if len(segments) == 1:
        return act(value, segments[0])
    return {**value, segments[0]: edited(value[segments[0]], segments[1:], act)}


def opened(definitions: Definitions, data: bytes) -> AvroDocument:
    return AvroDocument(data, types_of(definitions))


def read(definitions: Definitions, data: bytes) -> Any:
    rest = io.BytesIO(data)
    found = fastavro.schemaless_reader(rest, copy.deepcopy(definitions.schema), None)
    assert rest.read() == b""
    return found


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)  # -0.0 is not 0.0, True is not 1


@given(records())
def test_taken_apart_and_put_together(record: tuple[Any, Any, bytes, Path]) -> None:
    schema, _, data, path = record
    document = opened(defined(schema), data)
    for place in document.places(path):
        assert not isinstance(place.value, Number) or not math.isnan(float(place.value.exact()))
    document.changed = True
    assert same(read(defined(schema), document.encode()), read(defined(schema), data))
    assert len(document.encode()) == len(data)


@given(records())
def test_drop(record: tuple[Any, Any, bytes, Path]) -> None:
    schema, datum, data, path = record
    definitions = defined(schema)
    document = opened(definitions, data)
    for place in reversed(document.places(path)):
        place.remove()
    tree = SchemaTree(definitions)
    tree.drop(path)

    def without(holder: Any, name: str) -> Any:
        return {key: value for key, value in holder.items() if key != name}

    assert same(
        read(tree.definitions(), document.encode()),
        edited(read(definitions, data), path.segments, without),
    )
    assert datum is not None


@given(records())
def test_rename(record: tuple[Any, Any, bytes, Path]) -> None:
    schema, _, data, path = record
    definitions = defined(schema)
    document = opened(definitions, data)
    for place in document.places(path):
        place.rename("new")
    tree = SchemaTree(definitions)
    tree.rename(path, "new")

    def other(holder: Any, name: str) -> Any:
        return {"new" if key == name else key: value for key, value in holder.items()}

    assert document.encode() == data
    assert same(
        read(tree.definitions(), document.encode()),
        edited(read(definitions, data), path.segments, other),
    )


@given(records(), st.sampled_from(["long", "string"]))
def test_retype(record: tuple[Any, Any, bytes, Path], kind: Any) -> None:
    schema, _, data, path = record
    definitions = defined(schema)
    document = opened(definitions, data)
    new: Any = Number("7") if kind == "long" else "seven"
    for place in document.places(path):
        # Where null is no branch, a null cannot be: the field is of type null itself.
        place.retype(new, kind)
    tree = SchemaTree(definitions)
    tree.retype(path, kind)

    def other(holder: Any, name: str) -> Any:
        return {**holder, name: 7 if kind == "long" else "seven"}

    assert same(
        read(tree.definitions(), document.encode()),
        edited(read(definitions, data), path.segments, other),
    )


@given(records(), st.text(max_size=4))
def test_replace_keeps_the_schema(record: tuple[Any, Any, bytes, Path], text: str) -> None:
    schema, _, data, path = record
    definitions = defined(schema)
    document = opened(definitions, data)
    try:
        for place in document.places(path):
            place.replace(text)
    except UnreadableRecord:
        return

    def other(holder: Any, name: str) -> Any:
        return {**holder, name: text}

    assert same(
        read(definitions, document.encode()),
        edited(read(definitions, data), path.segments, other),
    )


@given(records(), st.binary(max_size=20))
def test_damaged_bytes_are_refused_and_nothing_else(
    record: tuple[Any, Any, bytes, Path], noise: bytes
) -> None:
    schema, _, data, path = record
    for damaged in (data[:-1], data + b"\0", noise):
        document = opened(defined(schema), damaged)
        try:
            for place in document.places(path):
                place.value  # noqa: B018 - is read
        except UnreadableRecord:
            continue
        document.changed = True
        assert len(document.encode()) <= len(damaged) or damaged is noise


def test_conflicts_are_seen_in_both_orders() -> None:
    inner = {"type": "record", "name": "A", "fields": [{"name": n, "type": "int"} for n in "st"]}
    schema: Any = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "x", "type": inner}, {"name": "y", "type": ["null", "A"]}],
    }
    for segments in (("x", "s"), ("y", "s")):
        tree = SchemaTree(defined(schema))
        tree.drop(Path(segments))
        try:
            tree.definitions()
        except ConflictingChange:
            continue
        raise AssertionError("one use of A has a field that the other has not")
    tree = SchemaTree(defined(schema))
    for segments in (("x", "s"), ("y", "s")):
        tree.drop(Path(segments))
    derived: Any = tree.definitions().schema
    assert derived["fields"][0]["type"]["fields"] == [{"name": "t", "type": "int"}]
    assert derived["fields"][1]["type"] == ["null", "A"]
