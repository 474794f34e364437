"""Where producers put a key: the partitioners of stock clients, and which one a topic shows.

Each takes a hash of the key modulo the number of partitions. So with n times as many partitions the
records of a new partition q come from the old one q % P, whatever the hash is. That is all that the
order of keys needs; the hash itself says which keys of an old partition move.

- murmur2: Kafka's own default (Java, Streams, Spark, kafka-python), librdkafka's `murmur2_random`.
- crc32: librdkafka's default, `consistent_random`. It spreads records with an empty key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final
from zlib import crc32

from mypy_extensions import i64

from dispatcher.core.routing.hashes import times32

_LOW32: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_STRAYS_SHOWN: Final = 3
# A partitioner is known when others would put all keys where they are once in so many times only.
_CHANCE: Final = 1_000_000


class Partitioner(Enum):
    MURMUR2 = "murmur2"
    CRC32 = "crc32"


def partition_of(partitioner: Partitioner, key: bytes, partitions: int) -> int:
    if partitioner is Partitioner.MURMUR2:
        return (murmur2(key) & _POSITIVE) % partitions
    return crc32(key) % partitions


def murmur2(key: bytes) -> int:
    """The hash of `org.apache.kafka.common.utils.Utils.murmur2`, as an unsigned number of 32
    bits.
    """
    size: i64 = len(key)
    mixed: i64 = (_SEED ^ size) & _LOW32
    at: i64 = 0
    while size - at >= 4:
        word: i64 = key[at] | key[at + 1] << 8 | key[at + 2] << 16 | i64(key[at + 3]) << 24
        word = times32(word, _M)
        word ^= word >> 24
        word = times32(word, _M)
        mixed = times32(mixed, _M) ^ word
        at += 4
    left = size - at
    if left == 3:
        mixed ^= i64(key[at + 2]) << 16
    if left >= 2:
        mixed ^= i64(key[at + 1]) << 8
    if left >= 1:
        mixed = times32(mixed ^ key[at], _M)
    mixed ^= mixed >> 13
    mixed = times32(mixed, _M)
    return int(mixed ^ (mixed >> 15))


@dataclass(frozen=True, slots=True)
class Shown:
    """What the newest records of a topic show. `partitioner` None: they fit none of those that are
    known; or, with `strays` empty, they cannot tell: no keyed record, a single partition, or `few`
    different keys.
    """

    partitioner: Partitioner | None
    keyed: int  # records that were looked at
    # Some that are not where the best guess puts them: partition, key.
    strays: tuple[tuple[int, bytes], ...] = ()
    few: int = 0


def shown_by(
    samples: Mapping[int, Collection[bytes]], partitions: int, named: Partitioner | None = None
) -> Shown:
    """`samples`: keys of records, by the partition they are in. Records with an empty key say
    nothing: librdkafka spreads them. `named`: the operator knows that it is this one, which the
    records can only refute.
    """
    keyed = [(at, key) for at in sorted(samples) for key in samples[at] if key]
    if not keyed or partitions == 1:
        return Shown(named, len(keyed))
    best: list[tuple[int, bytes]] = keyed
    fitting = []
    for partitioner in Partitioner if named is None else (named,):
        strays = [
            (at, key) for at, key in keyed if partition_of(partitioner, key, partitions) != at
        ]
        if not strays:
            fitting.append(partitioner)
        if len(strays) < len(best):
            best = strays
    if not fitting:
        return Shown(None, len(keyed), tuple(best[:_STRAYS_SHOWN]))
    different = len({key for _, key in keyed})
    if named is None and (len(fitting) > 1 or partitions**different < _CHANCE):
        return Shown(None, len(keyed), few=different)
    return Shown(fitting[0], len(keyed))
