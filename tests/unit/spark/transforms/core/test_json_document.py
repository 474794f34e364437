"""JSON taken apart and put together: parts not edited stay as they were, byte for byte."""

from __future__ import annotations

import pytest

from spark.transforms.core.json_document import JsonDocument
from spark.transforms.core.paths import parse_path
from spark.transforms.core.values import Number, Scalar, Shape, UnreadableRecord

ODD = (
    b' { "n" : 12345678901234567890.10 , "e":1E+400,"u":"\\u00e9\\/",'
    b' "a" : [ null , {"t" : "x"} ,\t'
    b'{"t":null}, {} ],\n "empty":{ }, "n": -0, "\xc3\xa9": "\xf0\x9f\x9b\xab" } \n'
)


def edited(data: bytes, path: str, value: Scalar) -> bytes:
    document = JsonDocument(data)
    for place in document.places(parse_path(path)):
        place.replace(value)
    return document.encode()


def values(data: bytes, path: str) -> list[object]:
    return [place.value for place in JsonDocument(data).places(parse_path(path))]


def removed(data: bytes, path: str) -> bytes:
    document = JsonDocument(data)
    for place in reversed(document.places(parse_path(path))):
        place.remove()
    return document.encode()


def renamed(data: bytes, path: str, name: str) -> bytes:
    document = JsonDocument(data)
    for place in document.places(parse_path(path)):
        place.rename(name)
    return document.encode()


def test_put_together_it_is_the_same_bytes() -> None:
    document = JsonDocument(ODD)
    for path in ("u", "a[].t", "empty.x", "é", "n"):
        document.places(parse_path(path))
    document.changed = True
    assert document.encode() == ODD


def test_an_edit_changes_nothing_else() -> None:
    assert edited(ODD, "é", "***") == ODD.replace(b'"\xf0\x9f\x9b\xab"', b'"***"')
    assert edited(ODD, "a[].t", None) == ODD.replace(b'"x"', b"null")
    assert edited(ODD, "empty", Number("1.50")) == ODD.replace(b"{ }", b"1.50")


def test_a_name_that_occurs_twice_is_edited_twice() -> None:
    text = b'{"pin":1,"x":2,"pin":3}'
    assert edited(text, "pin", "*") == b'{"pin":"*","x":2,"pin":"*"}'
    assert removed(text, "pin") == b'{"x":2}'


def test_an_escaped_spelling_of_a_name_is_the_name() -> None:
    assert edited(b'{"p\\u0069n":1}', "pin", "*") == b'{"p\\u0069n":"*"}'


def test_values() -> None:
    assert values(ODD, "n") == [Number("12345678901234567890.10"), Number("-0")]
    assert values(ODD, "u") == ["é/"]
    assert values(ODD, "a[]") == [None, Shape.OBJECT, Shape.OBJECT, Shape.OBJECT]
    assert values(b"[true,false,null]", "[]") == [True, False, None]
    assert values(b' "all" ', "") == ["all"]


def test_removing_takes_the_comma_along() -> None:
    assert removed(b'{"a":1, "b":2 ,"c":3}', "a") == b'{ "b":2 ,"c":3}'
    assert removed(b'{"a":1, "b":2 ,"c":3}', "b") == b'{"a":1,"c":3}'
    assert removed(b'{"a":1, "b":2 ,"c":3}', "c") == b'{"a":1, "b":2 }'
    assert removed(b'{"a":1}', "a") == b"{}"
    assert removed(b'{"a":[{"t":1},{"t":2,"u":3}]}', "a[].t") == b'{"a":[{},{"u":3}]}'


def test_renaming_keeps_place_and_value() -> None:
    assert renamed(b'{ "a" : 1.0 ,"b":2}', "a", 'q"') == b'{ "q\\"" : 1.0 ,"b":2}'
    with pytest.raises(UnreadableRecord, match="new name already"):
        renamed(b'{"a":1,"b":2}', "a", "b")


def test_edits_add_up() -> None:
    document = JsonDocument(b'{"a":{"b":[1,2]},"c":3}')
    (place,) = document.places(parse_path("a"))
    place.rename("z")
    for element in document.places(parse_path("z.b[]")):
        element.replace("x")
    (place,) = document.places(parse_path("c"))
    place.remove()
    assert document.encode() == b'{"z":{"b":["x","x"]}}'


@pytest.mark.parametrize(
    ("path", "lacking"),
    [("a.b", False), ("a.x", True), ("n.x", True), ("e[].x", False), ("l[].x", True), ("x", True)],
)
def test_lacking_is_a_field_that_is_not_there(path: str, lacking: bool) -> None:
    document = JsonDocument(b'{"a":{"b":null},"n":null,"e":[],"l":[{"x":1},{}]}')
    document.places(parse_path(path))
    assert document.lacking == lacking


@pytest.mark.parametrize(
    ("data", "path", "reason"),
    [
        (b"", "a", "not JSON at character 1"),
        (b"{", "a", "not JSON"),
        (b'{"a":1', "a", "not JSON"),
        (b'{"a":1,}', "a", "not JSON at character 8"),
        (b'{"a" 1}', "a", "not JSON"),
        (b'{"a":01}', "a", "not JSON"),
        (b'{"a":[1,{"b":tru}]}', "a", "not JSON"),
        (b'{"a":NaN}', "b", "not JSON"),
        (b'{"a":[Infinity]}', "b", "not JSON"),
        (b"{'a':1}", "a", "not JSON"),
        (b'{"a":"\n"}', "a", "not JSON"),
        (b'{"a":"\\x"}', "a", "not JSON"),
        (b'{"a":1} {"b":2}', "a", "not JSON at character 8"),
        (b'{"a":1}]', "a", "not JSON at character 8"),
        (b'\xef\xbb\xbf{"a":1}', "a", "not JSON at character 1"),
        (b'{"a":"\xff"}', "a", "not UTF-8 at byte 6"),
        (b"[" * 100_000, "a", "nested too deeply|not JSON"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "a", "nested too deeply"),
        (b'"text"', "a", "on path a is a text, not an object"),
        (b'{"a":[{"b":1}]}', "a.b", "on path a.b is an array, not an object"),
        (b'{"a":{"b":1}}', "a[].b", r"on path a\[\].b is an object, not an array"),
        (b'{"a":[{"b":1},2]}', "a[].b", r"on path a\[\].b is a number, not an object"),
        (b'{"a":5}', "a.b", "on path a.b is a number, not an object"),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, path: str, reason: str) -> None:
    with pytest.raises(UnreadableRecord, match=reason):
        JsonDocument(data).places(parse_path(path))


def test_a_long_text_without_its_end_fails_in_time() -> None:
    with pytest.raises(UnreadableRecord, match="not JSON"):
        JsonDocument(b'{"a":"' + b"x" * 2_000_000).places(parse_path("a"))
    with pytest.raises(UnreadableRecord, match="not JSON"):
        JsonDocument(b'{"a":' + b"1" * 2_000_000 + b"x").places(parse_path("a"))


def test_half_of_a_surrogate_pair_stays_escaped() -> None:
    assert values(b'{"a":"\\ud83d"}', "a") == ["\ud83d"]
    assert edited(b'{"a":1}', "a", "x\ud83d") == b'{"a":"x\\ud83d"}'
