"""Key globs: Danube's cases, the mended star-in-key defect, and records without a key."""

from __future__ import annotations

import time

import pytest

from dispatcher.core.limits import GLOB_STEPS_MAX, KEY_SEARCHED_BYTES_MAX
from dispatcher.core.routing.glob import accepts, matches, matches_long

CASES = [
    ("user-*", "user-1", True),
    ("user-*", "user-", True),
    ("user-*", "order-1", False),
    ("us-?", "us-a", True),
    ("us-?", "us-ab", False),
    ("us-?", "us-", False),
    ("*", "", True),
    ("**", "", True),
    ("", "", True),
    ("", "a", False),
    ("?", "", False),
    ("exact", "exact", True),
    ("exact", "exactly", False),
    ("exact", "Exact", False),
    ("eu-*-order", "eu-west-1-order", True),
    ("eu-*-order", "eu-west-1-payment", False),
    ("*-*-*", "a-b-c", True),
    ("*-*-*", "a-b", False),
    ("a**c", "abbbc", True),
    ("a**c", "ac", True),
    ("a*c", "ab", False),
    ("?", "é", False),
    ("??", "é", True),
    ("a[b]", "a[b]", True),
    ("a[b]", "ab", False),
    ("\\*", "\\x", True),
    # A star in the key is a byte like any other (in Danube it uses up the pattern's star).
    ("*b", "*ab", True),
    ("*", "*", True),
    ("*a*", "**a", True),
    ("a*b", "a*b*b", True),
    ("?b", "*b", True),
    ("a?c", "a?c", True),
    # The last star gives its characters back, more than once.
    ("*ab", "aab", True),
    ("*aab*b", "aaaabxb", True),
    ("a*b?d", "abxbyd", True),
]


@pytest.mark.parametrize(("pattern", "key", "expected"), CASES)
def test_matches(pattern: str, key: str, expected: bool) -> None:
    assert matches(pattern.encode(), key.encode()) is expected
    assert matches_long(pattern.encode(), key.encode()) is expected


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        (b"x*ab", b"xaab", True),  # the star gives its bytes back, one at a time
        (b"x*ab", b"xaaab", True),
        (b"x*ab", b"xaba", False),
        (b"xy*aab", b"xyaaaab", True),
        (b"*a*ab", b"aaab", True),
        (b"*a*ab", b"ab", False),
        (b"a*", b"a", True),
        (b"abc*abc", b"abc", False),  # nothing is matched twice
        (b"abc*c", b"abc", False),
        (b"aba*ab", b"abab", False),
        (b"ab*", b"ax", False),  # a name that differs in its last byte
        (b"*abc", b"axc", False),
    ],
)
def test_a_star_takes_as_much_as_the_rest_leaves(
    pattern: bytes, key: bytes, expected: bool
) -> None:
    assert matches(pattern, key) is expected
    assert matches_long(pattern, key) is expected


@pytest.mark.parametrize("size", [1, 2, 61, 62, 63, 124, 125, 186, 254])
def test_parts_of_any_length_between_two_stars(size: int) -> None:
    """Where the words of the search end nothing is lost, and nothing found that is not there."""
    part = bytes(97 + at % 23 for at in range(size))
    wild = part[: size // 2] + b"?" + part[size // 2 + 1 :]
    other = part[:-1] + b"!"
    for glob in (part, wild):
        for behind in (b"", b"a", part[:-1], other * 3):
            before = behind[: KEY_SEARCHED_BYTES_MAX - size]
            assert matches_long(b"*" + glob + b"*", before + part + b"z")
            assert matches_long(b"a*" + glob + b"*z", b"a" + before + part + b"z")
            assert not matches_long(b"a*" + glob + b"*" + glob + b"*", b"a" + part + part[1:])
    if size > 2:
        assert not matches_long(b"*" + wild + b"*", other * 5)
        assert not matches_long(b"*" + wild + b"*", (part[1:] + other) * 5)


@pytest.mark.parametrize("part", [b"a" * 127 + b"b", b"?" * 20 + b"a" * 107 + b"b"])
def test_a_hostile_glob_takes_no_longer_for_a_longer_key(part: bytes) -> None:
    """By trying: 128 steps for each byte of the key, some 20 s without a compiler."""
    before = time.process_time()
    for _ in range(30):
        assert not matches(b"*" + part + b"*", b"a" * 1_000_000)
    assert time.process_time() - before < 8


def test_nor_does_a_glob_nearly_as_long_as_its_key_take_longer() -> None:
    before = time.process_time()
    assert not matches(b"*" + b"a" * 3_000 + b"?b*", b"a" * 9_000)
    assert time.process_time() - before < 8


def test_what_stands_between_two_stars_is_looked_for_near_the_beginning_of_a_long_key() -> None:
    near, far = b"x" * (KEY_SEARCHED_BYTES_MAX - 2), b"x" * (KEY_SEARCHED_BYTES_MAX - 1)
    for part in (b"ab", b"a?"):
        for key in (b"p-" + near + b"ab", b"p-" + near + b"ab" + b"x" * 1_000_000):
            assert matches(b"p-*" + part + b"*", key)
        assert not matches(b"p-*" + part + b"*", b"p-" + far + b"ab" + b"x" * 1_000_000)
    assert matches(b"p-*x*-z", b"p-" + far * 1_000 + b"-z"), "the end is the key's own"
    assert not matches(b"p-*x*-z", b"p-" + far * 1_000 + b"-y")


def test_one_byte_is_any_byte_in_a_long_key_too() -> None:
    every = bytes(range(256))
    for byte in every:
        assert matches_long(b"*a?b*", b"a%cb" % byte + every)
    assert not matches_long(b"*a?b*", every + b"ab")
    assert matches_long(b"*a*", b"a")


def test_short_and_long_keys_meet() -> None:
    for size in (GLOB_STEPS_MAX // 4, GLOB_STEPS_MAX // 4 + 1):
        assert matches(b"*a*b", b"x" * (size - 2) + b"ab")
        assert not matches(b"*a*b", b"x" * (size - 2) + b"ba")


def test_keys_are_bytes() -> None:
    assert matches(b"\xff?\x00*", b"\xff\xfe\x00")
    assert not matches(b"\xff?\x00*", b"\xff\x00")


def test_many_stars_are_not_exponential() -> None:
    pattern = b"*a" * 40 + b"*b"
    before = time.process_time()
    assert not matches(pattern, b"a" * 5_000)
    assert time.process_time() - before < 5


def test_accepts_any_of_the_filters() -> None:
    assert accepts((), b"anything")
    assert accepts((b"a*", b"b*"), b"bee")
    assert not accepts((b"a*", b"b*"), b"cee")


def test_no_key_passes_only_filters_that_take_everything() -> None:
    assert accepts((), None)
    assert accepts((b"a*", b"*"), None)
    assert accepts((b"**",), None)
    assert not accepts((b"a*",), None)
    assert not accepts((b"",), None)
    assert not accepts((b"?*",), None)
    assert accepts((b"",), b"")
