"""Masks: the parts they show, and that the same value gives the same mask."""

from __future__ import annotations

import hashlib
import hmac
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.transforms.core.masks import Secret, hmac_masked, last_kept
from spark.transforms.core.values import Number, Shape, UnreadableRecord

KEY = b"a key of 16 byte"
SECRET = Secret(KEY)


def test_hmac_is_that_of_the_standard_library() -> None:
    expected = hmac.new(KEY, b"N14228", hashlib.sha256).hexdigest()
    assert hmac_masked("N14228", SECRET, 64) == expected
    assert hmac_masked("N14228", SECRET, 16) == expected[:16]
    assert hmac_masked(b"N14228", SECRET, 32) == bytes.fromhex(expected)[:16]
    assert hmac_masked(Number("1.10"), SECRET, 16) != hmac_masked(Number("1.1"), SECRET, 16)


@given(st.text(), st.text())
def test_equal_values_and_only_those_have_equal_masks(one: str, other: str) -> None:
    masks = hmac_masked(one, SECRET, 32), hmac_masked(str(other), SECRET, 32)
    assert (masks[0] == masks[1]) == (one == other)
    assert hmac_masked(one, Secret(b"another key of 24 bytes.."), 32) != masks[0]


@given(st.text(), st.integers(0, 20))
def test_keep_last_keeps_the_length_and_at_most_so_many(text: str, kept: int) -> None:
    masked = last_kept(text, kept, "•")
    assert len(masked) == len(text)
    if len(text) > kept:
        assert masked == "•" * (len(text) - kept) + text[len(text) - kept :]
    else:
        assert masked == "•" * len(text)


def test_keep_last_of_numbers_and_unicode() -> None:
    assert last_kept(Number("4111111111111111"), 4, "*") == "************1111"
    assert last_kept("Zoë 🛫🛬", 2, "*") == "****🛫🛬"


@pytest.mark.parametrize("value", [Shape.OBJECT, Shape.ARRAY, None])
def test_no_mask_of_what_has_no_one_spelling(value: Shape | None) -> None:
    with pytest.raises(UnreadableRecord, match="does not fit"):
        hmac_masked(value, SECRET, 16)
    with pytest.raises(UnreadableRecord, match="does not fit"):
        last_kept(value, 2, "*")


def test_a_secret_does_not_show_itself() -> None:
    assert "key" not in f"{SECRET} {SECRET!r}"
    assert pickle.loads(pickle.dumps(SECRET)).digest(b"x") == SECRET.digest(b"x")
