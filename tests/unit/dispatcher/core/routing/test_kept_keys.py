"""Long keys: what a window keeps of them tells them apart, and filters say the same of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.limits import KEY_BYTES_MAX
from dispatcher.core.routing.glob import matches
from dispatcher.core.routing.kept_keys import is_shortened, kept, kept_bytes
from gateway.core.limits import FILTER_GLOB_BYTES_MAX


@pytest.mark.parametrize("key", [None, b"", b"order-123", b"k" * KEY_BYTES_MAX])
def test_a_key_of_usual_length_is_kept_whole(key: bytes | None) -> None:
    assert kept(key) is key


@pytest.mark.parametrize("size", [KEY_BYTES_MAX + 1, KEY_BYTES_MAX + 2, 1_000_000])
def test_a_longer_one_is_kept_as_one_byte_more_than_the_longest_whole_one(size: int) -> None:
    short = kept_bytes(b"k" * size)
    assert len(short) == KEY_BYTES_MAX + 1
    assert is_shortened(short)
    assert short.decode().startswith("kkk"), "readable, as the key is"


def test_long_keys_that_differ_anywhere_are_different() -> None:
    size = 5_000
    keys = [b"a" * at + b"b" + b"a" * (size - at - 1) for at in range(0, size, 7)]
    keys += [b"a" * size, b"a" * (size + 1)]
    assert len({kept_bytes(key) for key in keys}) == len(keys)


_ALPHABET = st.sampled_from([b"a", b"b", b"*", b"?", b"-"])
_GLOBS = st.lists(_ALPHABET, max_size=FILTER_GLOB_BYTES_MAX).map(b"".join)


@given(data=st.data(), head=_GLOBS, middle=_GLOBS, tail=_GLOBS, fill=st.integers(0, 3_000))
def test_a_filter_says_the_same_of_the_key_and_of_what_is_kept(
    data: st.DataObject, head: bytes, middle: bytes, tail: bytes, fill: int
) -> None:
    """A glob that is made of the key's own ends, or of anything."""
    key = head + middle + b"a" * (KEY_BYTES_MAX + fill) + tail
    made = head[: data.draw(st.integers(0, 100))] + b"*" + middle[:50] + b"*"
    made += tail[len(tail) - data.draw(st.integers(0, min(100, len(tail)))) :]
    for glob in (made, data.draw(_GLOBS)):
        assert matches(glob, kept_bytes(key)) == matches(glob, key)
