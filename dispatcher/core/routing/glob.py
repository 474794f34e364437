"""Key filters: globs over the key's bytes.

`*` stands for any run of bytes, also none; `?` for exactly one byte, so a character of two UTF-8
bytes takes two. There are no escapes and no classes; the whole key has to match. What stands
between two stars is looked for in KEY_SEARCHED_BYTES_MAX of the key only. A member accepts a key if
any of its filters matches, or if it has none.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from dispatcher.core.limits import GLOB_STEPS_MAX, KEY_SEARCHED_BYTES_MAX

_STAR: Final = 0x2A
_ONE: Final = 0x3F


def matches(pattern: bytes, key: bytes) -> bool:
    """Whether the whole key matches."""
    if len(pattern) * len(key) > GLOB_STEPS_MAX:
        return matches_long(pattern, key)
    pattern_size: i64 = len(pattern)
    key_size: i64 = len(key)
    at: i64 = 0
    key_at: i64 = 0
    behind: i64 = 0  # the last star seen, 0 = none yet; only that one is ever tried again
    while key_at < key_size:
        # The star is looked at first: a `*` in the key must not use up the pattern's star.
        if at < pattern_size and pattern[at] == _STAR:
            at += 1
            behind = at
        elif at < pattern_size and (pattern[at] == _ONE or pattern[at] == key[key_at]):
            at += 1
            key_at += 1
        elif behind > 0:
            key_at -= at - behind - 1  # One byte more is of the star's run.
            at = behind
        else:
            return False
    while at < pattern_size and pattern[at] == _STAR:
        at += 1
    return at == pattern_size


def matches_long(pattern: bytes, key: bytes) -> bool:
    """As `matches`, for long keys: the parts before the first star and behind the last are
    compared, the parts between two stars are searched from left to right.
    """
    first: i64 = pattern.find(b"*")
    if first < 0:
        return len(pattern) == len(key) and _stands_at(pattern, key, 0)
    last: i64 = pattern.rfind(b"*")
    tail = pattern[last + 1 :]
    end: i64 = len(key) - len(tail)
    if first > end or not _stands_at(pattern[:first], key, 0) or not _stands_at(tail, key, end):
        return False
    if end > first + KEY_SEARCHED_BYTES_MAX:
        end = first + KEY_SEARCHED_BYTES_MAX
    at = first
    for part in pattern[first:last].split(b"*"):
        behind = _behind(part, key, at, end)
        if behind is None:
            return False
        at = behind
    return True


def _stands_at(part: bytes, key: bytes, at: i64) -> bool:
    size: i64 = len(part)
    i: i64 = 0
    while i < size:
        if part[i] != _ONE and part[i] != key[at + i]:
            return False
        i += 1
    return True


def _behind(part: bytes, key: bytes, start: i64, end: i64) -> int | None:
    """Where the first place of `part` in key[start:end] ends."""
    if b"?" not in part:
        found = key.find(part, start, end)
        return None if found < 0 else found + len(part)
    size: i64 = len(part)
    at = start
    while at + size <= end:
        i: i64 = 0
        while i < size and (part[i] == _ONE or part[i] == key[at + i]):
            i += 1
        if i == size:
            return at + size
        at += 1
    return None


def accepts(filters: tuple[bytes, ...], key: bytes | None) -> bool:
    """Whether a member with these filters takes records of this key.

    A record without a key has nothing to match: only a member without filters, or one that takes
    everything (`*`), gets it.
    """
    if not filters:
        return True
    for pattern in filters:
        if key is None:
            if len(pattern) > 0 and pattern.count(b"*") == len(pattern):
                return True
        elif matches(pattern, key):
            return True
    return False
