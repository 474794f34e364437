"""Random JSON in random spelling: edits touch their field alone, and json agrees on the result."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spark.transforms.core.json_document import JsonDocument
from spark.transforms.core.paths import EVERY, Path, Segment
from spark.transforms.core.values import UnreadableRecord

NAMES = st.sampled_from(["a", "b", "c", "é", "a.b", 'q"', ""])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
PATHS = st.lists(st.one_of(NAMES, st.just(EVERY)), max_size=4)


@st.composite
def spelled(draw: st.DrawFn, value: Any) -> str:
    """`value` as JSON with blanks and escapes anywhere."""

    def blank() -> str:
        return draw(st.sampled_from(["", "", " ", "\n\t", " \r "]))

    def text(data: str) -> str:
        return json.dumps(data, ensure_ascii=draw(st.booleans()))

    def write(data: Any) -> str:
        if isinstance(data, dict):
            members = ",".join(
                f"{blank()}{text(name)}{blank()}:{blank()}{write(inner)}{blank()}"
                for name, inner in data.items()
            )
            return "{" + (members or blank()) + "}"
        if isinstance(data, list):
            return "[" + (",".join(blank() + write(e) + blank() for e in data) or blank()) + "]"
        return text(data) if isinstance(data, str) else json.dumps(data)

    return blank() + write(value) + blank()


@st.composite
def documents(draw: st.DrawFn) -> tuple[Any, bytes]:
    value = draw(VALUES)
    text: str = draw(spelled(value))
    return value, text.encode("utf-8", "replace") if not text.isprintable() else text.encode()


def replaced(value: Any, segments: tuple[Segment, ...], new: Any) -> Any:
    """The oracle, on parsed JSON."""
    if not segments:
        return new
    if value is None:
        return None
    if segments[0] is EVERY:
        return [replaced(inner, segments[1:], new) for inner in value]
    return {
        name: replaced(inner, segments[1:], new) if name == segments[0] else inner
        for name, inner in value.items()
    }


@given(documents(), PATHS)
def test_replace_is_what_json_would_do(document: tuple[Any, bytes], segments: list[str]) -> None:
    value, data = document
    path = Path(tuple(segments))
    opened = JsonDocument(data)
    try:
        places = opened.places(path)
    except UnreadableRecord:
        return
    opened.changed = True
    assert opened.encode() == data
    for place in places:
        place.replace("Ω")
    assert json.loads(opened.encode()) == replaced(value, path.segments, "Ω")


@given(documents(), PATHS)
def test_it_refuses_a_path_only_where_the_shape_differs(
    document: tuple[Any, bytes], segments: list[str]
) -> None:
    value, data = document
    path = Path(tuple(segments))
    try:
        replaced(value, path.segments, "Ω")
        fits = True
    except (AttributeError, TypeError):
        fits = False
    if fits and not _text_as_list(value, path.segments):
        JsonDocument(data).places(path)


def _text_as_list(value: Any, segments: tuple[Segment, ...]) -> bool:
    """The oracle takes a text or an object for a list there."""
    if not segments or value is None:
        return False
    if segments[0] is EVERY:
        if not isinstance(value, list):
            return True
        return any(_text_as_list(inner, segments[1:]) for inner in value)
    return segments[0] in value and _text_as_list(value[segments[0]], segments[1:])


@given(st.binary(max_size=30) | st.text('{}[]:,"\\ntrue01.eE- ', max_size=30).map(str.encode))
def test_any_bytes_are_read_or_refused_as_json_does(data: bytes) -> None:
    def strict(_word: str) -> None:
        raise ValueError

    try:
        parsed = json.loads(data.decode(), parse_constant=strict)
    except ValueError:
        parsed = ValueError
    try:
        JsonDocument(data).places(Path(()))
    except UnreadableRecord:
        assert parsed is ValueError
    else:
        assert parsed is not ValueError
