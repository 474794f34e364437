"""The end of a certificate's validity, read from its DER bytes (RFC 5280, 4.1): the ssl module
tells it of the peers' certificates only.
"""

from __future__ import annotations

import re
from calendar import timegm
from typing import Final

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0  # explicit [0]
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_PEM: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----\s.+?-----END CERTIFICATE-----", re.ASCII | re.DOTALL
)
_DIGITS: Final = {_UTC_TIME: 12, _GENERALIZED_TIME: 14}


class NoCertificate(ValueError):
    """The bytes are no certificate."""


def pem_blocks(text: str) -> list[str]:
    """Every certificate of a PEM file, in its order."""
    return _PEM.findall(text)


def expires_s(der: bytes) -> int:
    """Seconds since the epoch. Raises NoCertificate."""
    try:
        at, _ = _inside(der, 0, _SEQUENCE)  # the certificate
        at, _ = _inside(der, at, _SEQUENCE)  # what is signed
        if der[at] == _VERSION:
            at = _behind(der, at)
        for _ in ("serial number", "signature algorithm", "issuer"):
            at = _behind(der, at)
        at, _ = _inside(der, at, _SEQUENCE)  # the validity
        at = _behind(der, at)  # not before
        kind = der[at]
        begin, end = _inside(der, at, kind)
        return _seconds(kind, der[begin:end])
    except (IndexError, KeyError, ValueError) as error:
        raise NoCertificate(f"no certificate: {error}") from error


def _inside(der: bytes, at: int, kind: int) -> tuple[int, int]:
    """Where the contents of the value at `at` begin and end."""
    if der[at] != kind:
        raise ValueError(f"{der[at]:#x} where {kind:#x} belongs")
    size = der[at + 1]
    begin = at + 2
    if size & 0x80:
        digits = size & 0x7F
        size = int.from_bytes(der[begin : begin + digits], "big")
        begin += digits
    if begin + size > len(der):
        raise ValueError("cut off")
    return begin, begin + size


def _behind(der: bytes, at: int) -> int:
    return _inside(der, at, der[at])[1]


def _seconds(kind: int, value: bytes) -> int:
    text = value.decode("ascii")
    digits, zone = text[: _DIGITS[kind]], text[_DIGITS[kind] :]
    if zone != "Z" or not digits.isdecimal():
        raise ValueError(f"{text!r} is no time")
    if kind == _UTC_TIME:  # two digits of the year: 1950 to 2049
        digits = ("19" if digits >= "50" else "20") + digits
    fields = [int(digits[:4]), *(int(digits[at : at + 2]) for at in range(4, 14, 2))]
    return timegm((*fields, 0, 0, 0))
