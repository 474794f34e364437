"""The one header of a copied record: its way here, and a seal that binds the header to this very
record.

    keyway-copy: 1-00000005-b1946ac92492d234-0-4711-ams1/orders
                 │ flags    seal             │ │    origin: cluster/topic
                 version            partition  offset

Plain ASCII, so that every console tool shows it, and with fixed widths up to the seal, so that
Spark's own columns can cut it. The topic is the logical one (without the clusters' name patterns).

Applications that copy the headers of their input to their output (Kafka Streams, Connect) would
hand the flags on to records that are new, which then would never be distributed. So a header is
believed only where its seal fits: a hash over the secret, the header's other fields, and the record
(logical topic, timestamp, key, value) as written at this cluster. A header that is not believed
counts as absent. Not told apart: a record written again with the same topic, timestamp, key and
value.

The hash is XXH64 chained over the fields, each seeded with the hash before it, the first with 42;
nulls are left out. That is Spark's `xxhash64(column, …)` (measured for nulls, lengths 0 to 65,
negative numbers), so nothing has to leave Spark's columns. It is a checksum: with a secret nobody
forges it by accident or by reading this file, but it is no cryptographic signature.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

import xxhash

from clusters.core.limits import COPY_HEADER_BYTES_MAX, COPY_HEADERS_MAX
from clusters.core.tree import ClusterName, Flags

COPY_HEADER = "keyway-copy"
VERSION = "1"
NO_SECRET = ""
HASH_SEED = 42  # Spark's

Seal = NewType("Seal", int)  # 64 bits, unsigned
Headers = Iterable[tuple[str, bytes | None]]

# Also Spark's `rlike` reads it. Cluster names are those that clusters/config.py takes, topics
# Kafka's. No partition or offset has a zero in front: a header has one form.
PATTERN = (
    r"^1-[0-9a-f]{8}-[0-9a-f]{16}-(0|[1-9][0-9]{0,9})-(0|[1-9][0-9]{0,18})"
    r"-[A-Za-z0-9._-]{1,64}/[A-Za-z0-9._-]{1,249}$"
)
_PATTERN = re.compile(PATTERN.removesuffix("$") + r"\Z")
_UNSIGNED = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record was produced: cluster, logical topic, partition and offset there."""

    cluster: ClusterName
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.offset}-{self.cluster}/{self.topic}"


@dataclass(frozen=True, slots=True)
class Stood:
    """The subject of a seal: one record as written at one cluster. `topic` is the logical name."""

    topic: str
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Copy:
    """The contents of a header whose seal fits."""

    flags: Flags
    origin: Origin


class Doubt(StrEnum):
    """Why a header named keyway-copy was not believed, or not needed."""

    OVERSIZED = "oversized"
    MALFORMED = "malformed"  # also: no value, another version
    SEAL = "seal"  # inherited from another record, of another topic, or forged
    REPEATED = "repeated"  # behind one whose seal fits
    TOO_MANY = "too_many"  # behind the first COPY_HEADERS_MAX: not looked at


@dataclass(frozen=True, slots=True)
class Judged:
    """`copy`: of the first header whose seal fits; None: a fresh record. `doubts`: one for every
    other header of that name.
    """

    copy: Copy | None
    doubts: tuple[Doubt, ...]


def judge(headers: Headers, record: Stood, *, secret: str = NO_SECRET) -> Judged:
    """Of all headers of a record, in order; those of other names are not looked at."""
    copy: Copy | None = None
    doubts: list[Doubt] = []
    mine = (value for name, value in headers if name == COPY_HEADER)
    for at, value in enumerate(mine):
        if at >= COPY_HEADERS_MAX:
            doubts.append(Doubt.TOO_MANY)
            continue
        parsed = parse(value)
        if isinstance(parsed, Doubt):
            doubts.append(parsed)
            continue
        claimed, seal = parsed
        if seal != seal_of(claimed, record, secret=secret):
            doubts.append(Doubt.SEAL)
        elif copy is not None:
            doubts.append(Doubt.REPEATED)
        else:
            copy = claimed
    return Judged(copy, tuple(doubts))


def parse(value: bytes | None) -> tuple[Copy, Seal] | Doubt:
    """The claims of one header, and its seal, which is not checked here."""
    if value is None:
        return Doubt.MALFORMED
    if len(value) > COPY_HEADER_BYTES_MAX:
        return Doubt.OVERSIZED
    try:
        text = value.decode("ascii")
    except UnicodeDecodeError:
        return Doubt.MALFORMED
    if not _PATTERN.match(text):
        return Doubt.MALFORMED
    _, flags, seal, partition, offset, place = text.split("-", 5)
    cluster, topic = place.split("/")
    origin = Origin(ClusterName(cluster), topic, int(partition), int(offset))
    return Copy(Flags(int(flags, 16)), origin), Seal(int(seal, 16))


def encode(copy: Copy, record: Stood, *, secret: str = NO_SECRET) -> bytes:
    """The header's value for `record`, the copy as it is about to be written."""
    seal = seal_of(copy, record, secret=secret)
    text = f"{VERSION}-{copy.flags:08x}-{seal:016x}-{copy.origin}"
    assert _PATTERN.match(text), text
    return text.encode("ascii")


def seal_of(copy: Copy, record: Stood, *, secret: str = NO_SECRET) -> Seal:
    """The hash that binds `copy` to `record`."""
    return Seal(
        _chained(
            secret.encode(),
            f"{copy.flags:08x}-{copy.origin}".encode(),
            record.topic.encode(),
            struct.pack("<q", record.timestamp_ms),
            _length(record.key),
            record.key,
            _length(record.value),
            record.value,
        )
    )


def _length(field: bytes | None) -> bytes:
    """Nulls leave no trace in the hash, so their place is marked: null keys are no null values."""
    return struct.pack("<i", -1 if field is None else len(field))


def _chained(*fields: bytes | None) -> int:
    found = HASH_SEED
    for field in fields:
        if field is not None:
            found = xxhash.xxh64_intdigest(field, seed=found)
    return found & _UNSIGNED
