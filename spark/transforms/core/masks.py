"""Masks: one value in, one that shows less out.

`redact` writes a fixed value. `hmac` writes the first hexadecimal digits of HMAC-SHA-256 (RFC 2104)
under a secret key: equal values stay equal, so that joins and keys go on working, and without the
key nobody can try out values. `keep_last` shows the last characters of a text.

A null stays null: it has nothing to hide. Numbers are taken as they are written, so 1 and 1.0 are
two values.
"""

from __future__ import annotations

import hashlib
import hmac

from spark.transforms.core.values import Number, Scalar, Shape, UnreadableRecord, Value, described


class Secret:
    """A key that shows itself neither in logs nor in errors nor in Spark's plans."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "Secret(***)"

    def text(self) -> str:
        """For a password that must be sent."""
        return self._key.decode()

    def digest(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, hashlib.sha256)


def hmac_masked(value: Value, secret: Secret, digits: int) -> Scalar:
    """A text of `digits` hexadecimal digits; of bytes `digits` / 2 bytes. Raises UnreadableRecord
    for an object or array: two spellings of one of them would get two masks.
    """
    if isinstance(value, bytes):
        return secret.digest(value)[: digits // 2]
    return secret.digest(_text(value).encode("utf-8", "surrogatepass")).hex()[:digits]


def last_kept(value: Value, characters: int, filler: str) -> str:
    """Each character replaced by `filler` but for the last `characters`. A text no longer than that
    would be shown whole, so it is filled whole. Characters are Unicode code points.
    """
    text = _text(value)
    kept = text[len(text) - characters :] if len(text) > characters else ""
    return filler * (len(text) - len(kept)) + kept


def _text(value: Value) -> str:
    match value:
        case str():
            return value
        case Number():
            return value.text
        case bool():
            return "true" if value else "false"
        case Shape() | bytes() | None:
            raise UnreadableRecord(f"this mask does not fit {described(value)}")
