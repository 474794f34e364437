"""The end of validity in bytes that are no certificate. Certificates that openssl made:
tests/shell/gateway/listen/test_certificates.py.
"""

from __future__ import annotations

from calendar import timegm

import pytest

from keyway.tls.core.expiry import NoCertificate, expires_s, pem_blocks

UTC, GENERALIZED = 0x17, 0x18


def der(kind: int, *parts: bytes) -> bytes:
    inside = b"".join(parts)
    size = len(inside)
    head = bytes([size]) if size < 0x80 else bytes([0x82, size >> 8, size & 0xFF])
    return bytes([kind]) + head + inside


def certificate(time: bytes, *, version: bool = True, padding: int = 0) -> bytes:
    shown = [der(0xA0, der(0x02, b"\x02"))] if version else []
    validity = der(0x30, der(UTC, b"200101000000Z"), time)
    issuer = der(0x30, bytes(padding))
    return der(0x30, der(0x30, *shown, der(0x02, b"\x01"), der(0x30), issuer, validity))


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (der(UTC, b"491231235959Z"), (2049, 12, 31, 23, 59, 59)),
        (der(UTC, b"500101000000Z"), (1950, 1, 1, 0, 0, 0)),
        (der(GENERALIZED, b"99991231235959Z"), (9999, 12, 31, 23, 59, 59)),
    ],
)
def test_both_kinds_of_time(time: bytes, expected: tuple[int, ...]) -> None:
    assert expires_s(certificate(time)) == timegm((*expected, 0, 0, 0))


def test_a_version_may_be_missing_and_parts_may_be_long() -> None:
    time = der(UTC, b"300101000000Z")
    same = timegm((2030, 1, 1, 0, 0, 0, 0, 0, 0))
    assert expires_s(certificate(time, version=False)) == same
    assert expires_s(certificate(time, padding=1_000)) == same


@pytest.mark.parametrize("time", [b"30010100000Z", b"300101000000+0100", b"3001010000xxZ"])
def test_a_time_that_is_none(time: bytes) -> None:
    with pytest.raises(NoCertificate):
        expires_s(certificate(der(UTC, time)))


def test_bytes_that_are_cut_off() -> None:
    whole = certificate(der(UTC, b"300101000000Z"))
    for end in range(len(whole)):
        with pytest.raises(NoCertificate):
            expires_s(whole[:end])


def test_certificates_among_other_text() -> None:
    block = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"
    key = "-----BEGIN PRIVATE KEY-----\nBBBB\n-----END PRIVATE KEY-----"
    assert pem_blocks(f"{key}\nsubject: x\n{block}\n{block}\n") == [block, block]
