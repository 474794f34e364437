"""Paths: text to segments and back, and where a bad one goes wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.transforms.core.limits import PATH_SEGMENTS_MAX
from spark.transforms.core.paths import EVERY, WHOLE, InvalidPath, Path, parse_path


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("", ()),
        ("tailnum", ("tailnum",)),
        ("a.b-c.$d", ("a", "b-c", "$d")),
        ("legs[].tail", ("legs", EVERY, "tail")),
        ("[][].x", (EVERY, EVERY, "x")),
        ('"a.b".c', ("a.b", "c")),
        (r'"say \"hi\" \\".x', ('say "hi" \\', "x")),
        ('"".x', ("", "x")),
        ("größe.名", ("größe", "名")),
    ],
)
def test_segments(text: str, segments: tuple[object, ...]) -> None:
    assert parse_path(text).segments == segments


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (".a", "character 1"),
        ("a.", "a name expected at character 3"),
        ("a..b", "a name expected at character 3"),
        ("a b", "`.` or `[]` expected at character 2"),
        ("legs[0].x", "`.` or `[]` expected at character 5"),
        ("a.[0]", "only `[]`"),
        ('"a', "a name expected at character 1"),
        ("x" * 1_001, "at most 1000 characters"),
        (".".join("x" * (PATH_SEGMENTS_MAX + 1)), "at most 32 parts"),
    ],
)
def test_a_bad_path_says_where(text: str, reason: str) -> None:
    with pytest.raises(InvalidPath, match=reason.replace("[", r"\[").replace(".", r"\.")):
        parse_path(text)


def test_the_field_at_the_end() -> None:
    assert parse_path("a.b").field == "b"
    assert parse_path("a[]").field is None
    assert WHOLE.field is None


@given(st.lists(st.one_of(st.text(max_size=5), st.just(EVERY)), max_size=6))
def test_every_path_can_be_written_and_read_back(segments: list[str]) -> None:
    path = Path(tuple(segments))
    assert parse_path(str(path)) == path
