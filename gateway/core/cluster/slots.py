"""The slots of upstream brokers: with more than one, a broker is several virtual brokers, which
several nodes can own.

Slot 0 has upstream's own id, so whatever names a broker by it stays right. The partitions that a
broker leads are spread over its slots by topic id and partition number.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

SLOT_IDS: Final = 1_000_000  # from one slot of a broker to its next

_SPREAD: Final = 0x9E37_79B1  # CRC is linear: alone it would give even partitions one slot
_32_BITS: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Slots:
    """`count`: of each broker. With one, a virtual broker is the broker, whatever its id."""

    count: int = 1

    def slot(self, topic_id: bytes, partition: int) -> int:
        if self.count == 1:
            return 0
        mixed = zlib.crc32(topic_id + partition.to_bytes(4, "big")) * _SPREAD & _32_BITS
        return (mixed >> 16) % self.count

    def virtual(self, broker: int, slot: int) -> int:
        """-1, no broker, has no slots."""
        return broker if broker < 0 else broker + slot * SLOT_IDS

    def all_of(self, broker: int) -> list[int]:
        """The virtual brokers of an upstream broker."""
        return [self.virtual(broker, slot) for slot in range(self.count)]

    def upstream(self, virtual: int) -> int:
        return virtual if self.count == 1 or virtual < 0 else virtual % SLOT_IDS

    def is_extra(self, virtual: int | None) -> bool:
        """Whether the id is none of upstream's own. None: the bootstrap port."""
        return virtual is not None and self.upstream(virtual) != virtual


ONE_SLOT: Final = Slots()
