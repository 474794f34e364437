"""Key filters: globs over the key's bytes.

`*` stands for any run of bytes, also none; `?` for exactly one byte, so a character of two UTF-8
bytes takes two. There are no escapes and no classes; the whole key has to match. A member accepts
a key if any of its filters matches, or if it has none.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

_STAR: Final = 0x2A
_ONE: Final = 0x3F


def matches(pattern: bytes, key: bytes) -> bool:
    """Whether the whole key matches. At most len(pattern) * len(key) steps, no recursion."""
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
