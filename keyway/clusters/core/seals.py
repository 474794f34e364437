"""Seals bind a copy header to the record it stands on: who makes them, and which are believed.

Without a secret a seal is a checksum: it tells a copy from a record that has inherited the header.
Any client that can write to a topic can make one, and so make a header that is believed.

With a secret it is an HMAC-SHA-256, of which 64 bits are kept: a guess cannot be tried without
writing a record, and 2^64 records are out of reach.

The checksum is XXH64 chained over the fields, each seeded with the hash before it, the first with
42; nulls are left out. That is Spark's `xxhash64(column, …)`, which once made it. Headers of
version 1 had it with a secret as its first field, which protects nothing: one observed copy gives
away all that is needed for another.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple, NewType

import xxhash

from keyway.clusters.core.trust import Seals

HASH_SEED = 42  # Spark's
SEAL_DIGITS = 16
_BLOCK_BYTES = 64  # of SHA-256
_UNSIGNED = (1 << 64) - 1

Seal = NewType("Seal", int)  # 64 bits, unsigned
# Makes a seal's digits of the header's other fields, and of the fields of what it stands on.
Digits = Callable[[str, str, int, bytes | None, bytes | None], str]


class Stood(NamedTuple):  # made for every record, in a fifth of a data class's time
    """The subject of a seal: one record as written at one cluster. `topic` is the logical name."""

    topic: str
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def made(seals: Seals) -> Digits:
    """For the seals of new headers of version 2."""
    if seals.secrets:
        return _keyed_digits(seals.secrets[0])
    return lambda claimed, *record: f"{checksum(claimed, Stood(*record)):0{SEAL_DIGITS}x}"


def fits(version: int, claimed: str, record: Stood, seal: Seal, seals: Seals) -> bool:
    """Whether `seal` is one of those that are believed."""
    if seals.checksums_believed and seal == checksum(claimed, record):
        return True
    if version == 1:
        return any(seal == checksum(claimed, record, secret) for secret in seals.secrets)
    return any(seal == keyed(claimed, record, secret) for secret in seals.secrets)


def keyed(claimed: str, record: Stood, secret: str) -> Seal:
    return Seal(int(_keyed_digits(secret)(claimed, *record), 16))


@lru_cache(maxsize=16)  # secrets of one configuration
def _keyed_digits(secret: str) -> Digits:
    """What an HMAC hashes before a message, and before the inner hash, depends on the secret alone.
    To copy both takes half the time of `hmac.digest`, which begins with the secret each time.
    """
    key = secret.encode()
    block = (sha256(key).digest() if len(key) > _BLOCK_BYTES else key).ljust(_BLOCK_BYTES, b"\0")
    begun, around = (sha256(bytes(byte ^ pad for byte in block)) for pad in (0x36, 0x5C))

    def digits(
        claimed: str, topic: str, timestamp_ms: int, key: bytes | None, value: bytes | None
    ) -> str:
        # The lengths end where they do, so no two records have the same text.
        text = (
            f"{claimed} {topic} {timestamp_ms}"
            f" {-1 if key is None else len(key)} {-1 if value is None else len(value)} "
        )
        inner, outer = begun.copy(), around.copy()
        inner.update(text.encode() + (key or b"") + (value or b""))
        outer.update(inner.digest())
        return outer.hexdigest()[:SEAL_DIGITS]

    return digits


def checksum(claimed: str, record: Stood, secret: str = "") -> Seal:
    """`secret`: of headers of version 1."""
    return Seal(
        _chained(
            secret.encode(),
            claimed.encode(),
            record.topic.encode(),
            struct.pack("<q", record.timestamp_ms),
            _length(record.key),
            record.key,
            _length(record.value),
            record.value,
        )
    )


def _length(content: bytes | None) -> bytes:
    """Nulls leave no trace in the hash, so their place is marked: null keys are no null values."""
    return struct.pack("<i", -1 if content is None else len(content))


def _chained(*fields: bytes | None) -> int:
    found = HASH_SEED
    for field in fields:
        if field is not None:
            found = xxhash.xxh64_intdigest(field, seed=found)
    return found & _UNSIGNED
