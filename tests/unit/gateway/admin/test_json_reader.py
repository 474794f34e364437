"""A JSON text read value by value: the same as read at once, wherever its portions end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admin.json_reader import JsonReader


def reader_of(text: bytes, portion: int = 3) -> JsonReader:
    return JsonReader(text, pause=lambda: None, portion=portion)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(
    rows=st.lists(st.dictionaries(st.text(), VALUES, max_size=3)),
    portion=st.integers(1, 40),
    indent=st.none() | st.integers(0, 2),
    ascii_only=st.booleans(),
)
def test_rows_are_read_as_they_were_written(
    rows: list[dict[str, Any]], portion: int, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(rows, indent=indent, ensure_ascii=ascii_only)
    reader = reader_of(text.encode() + b"\n", portion)
    found = []
    for _ in reader.items():
        fields = {name: reader.value() for name in reader.names()}
        assert all(json.loads(shown) == value for value, shown in fields.values())
        assert all(shown in text for _, shown in fields.values())
        found.append({name: value for name, (value, _) in fields.items()})
    assert found == rows


@pytest.mark.parametrize("portion", [1, 2, 3, 100])
@pytest.mark.parametrize("number", ["0", "-1.5", "1e9", "12.25E-3", "123456789012345678901234"])
def test_a_number_is_read_to_its_end(number: str, portion: int) -> None:
    value, shown = reader_of(number.encode(), portion).value()
    assert (value, shown) == (json.loads(number), number)


def whole(reader: JsonReader) -> object:
    return reader.value()


def rows(reader: JsonReader) -> object:
    return [reader.value() for _ in reader.items()]


def fields(reader: JsonReader) -> object:
    return [reader.value() for _ in reader.names()]


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((whole, text) for text in ("", " ", "tru", '"a', "[1, 2", '{"a": ', "1.", "-", "x")),
        *((rows, text) for text in ("", "{}", "[1", "[1 2]", "[1,]", "[", "[1}", "1")),
        *((fields, text) for text in ("[]", '{"a"}', '{"a" 1}', "{1: 2}", '{"a": 1', '{"a": 1]')),
    ],
)
def test_another_text(read: Callable[[JsonReader], object], text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(reader_of(text.encode()))


def test_there_is_a_pause_after_each_portion() -> None:
    pauses = []
    reader = JsonReader(json.dumps(["x" * 90] * 100).encode(), lambda: pauses.append(1), 1_000)
    assert len(list(zip(reader.items(), iter(reader.value, None), strict=False))) == 100
    assert len(pauses) == 10
