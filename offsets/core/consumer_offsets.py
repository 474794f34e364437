"""The records of Kafka's `__consumer_offsets`, as far as offsets that follow a group need them.

Field tables from Kafka's group coordinator, 4.3.1 (OffsetCommitKey/Value, GroupMetadataKey/Value,
and the member keys of KIP-848, share and streams groups). Numbers are big-endian; a string of a
version that is not flexible has an int16 length, -1 for null; a flexible one (values from version 4
on) has an unsigned varint of its length + 1, 0 for null.

    key 0, 1   group, topic, partition          value 0-4: an offset; null: it is deleted
    key 2      group                            value 0-4: a classic group; null: it is deleted
    key 5, 10, 19   group, member id            value: not read; null: the member is gone

All other keys are of no interest. A record that does not follow its table is `Unreadable`: it
concerns one group, so it stops nobody else.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

COMMIT_KEYS: Final = (0, 1)
GROUP_KEY: Final = 2
MEMBER_KEYS: Final = (5, 10, 19)  # KIP-848 consumer groups, share groups, streams groups
VALUE_VERSION_MAX: Final = 4
FLEXIBLE_FROM: Final = 4
LEADER_EPOCH_FROM: Final = 3
VARINT_BITS_MAX: Final = 28  # of a length: five bytes and more are none that Kafka writes


@dataclass(frozen=True, slots=True)
class OffsetCommitted:
    """`offset`: the next one to read. `leader_epoch` -1: not known."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int


@dataclass(frozen=True, slots=True)
class OffsetDeleted:
    """The group or the topic was deleted, or the offset expired."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """A classic group has this many members now; 0: it is empty."""

    group: str
    protocol_type: str
    members: int


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    group: str


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """A member of a KIP-848 or share group is there, or, if `present` is False, has gone."""

    group: str
    member_id: str
    present: bool


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The record does not follow its table, or has a version from after this table."""

    reason: str


Change = OffsetCommitted | OffsetDeleted | GroupMembers | GroupDeleted | MemberSeen | Unreadable


def decode(key: bytes | None, value: bytes | None) -> Change | None:
    """The change that one record makes; None: a record of no interest."""
    try:
        return _decode(_Bytes(key or b""), value)
    except _Short as error:
        return Unreadable(str(error))
    except UnicodeDecodeError:
        return Unreadable("a name is not UTF-8")


def _decode(key: _Bytes, value: bytes | None) -> Change | None:
    kind = key.number(">h", "version of the key")
    if kind in COMMIT_KEYS:
        group, topic = key.text("group"), key.text("topic")
        partition = key.number(">i", "partition")
        if value is None:
            return OffsetDeleted(group, topic, partition)
        return _commit(group, topic, partition, _Bytes(value))
    if kind == GROUP_KEY:
        group = key.text("group")
        return GroupDeleted(group) if value is None else _group(group, _Bytes(value))
    if kind in MEMBER_KEYS:
        return MemberSeen(key.text("group"), key.text("member id"), present=value is not None)
    return None


def _commit(group: str, topic: str, partition: int, value: _Bytes) -> Change:
    version = value.number(">h", "version of the value")
    if not 0 <= version <= VALUE_VERSION_MAX:
        return Unreadable(f"an offset of version {version}, {VALUE_VERSION_MAX} is the last known")
    value.flexible = version >= FLEXIBLE_FROM
    offset = value.number(">q", "offset")
    leader_epoch = value.number(">i", "leader epoch") if version >= LEADER_EPOCH_FROM else -1
    metadata = value.text("metadata")
    committed_ms = value.number(">q", "commit timestamp")
    return OffsetCommitted(group, topic, partition, offset, leader_epoch, metadata, committed_ms)


def _group(group: str, value: _Bytes) -> Change:
    version = value.number(">h", "version of the value")
    if not 0 <= version <= VALUE_VERSION_MAX:
        return Unreadable(f"a group of version {version}, {VALUE_VERSION_MAX} is the last known")
    value.flexible = version >= FLEXIBLE_FROM
    protocol_type = value.text("protocol type")
    value.number(">i", "generation")
    value.text("protocol")
    value.text("leader")
    if version >= 2:
        value.number(">q", "state timestamp")
    return GroupMembers(group, protocol_type, value.count("members"))


class _Short(Exception):
    """The bytes end before the field does."""


class _Bytes:
    """Reads one field after the other."""

    __slots__ = ("_at", "_data", "flexible")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.flexible = False

    def number(self, form: str, field: str) -> int:
        return int(struct.unpack(form, self._take(struct.calcsize(form), field))[0])

    def text(self, field: str) -> str:
        """Null is read as "": for a group, topic or metadata they mean the same."""
        size = self._varint(field) - 1 if self.flexible else self.number(">h", field)
        return self._take(max(0, size), field).decode()

    def count(self, field: str) -> int:
        return max(0, self._varint(field) - 1 if self.flexible else self.number(">i", field))

    def _varint(self, field: str) -> int:
        number = shift = 0
        while True:
            byte = self._take(1, field)[0]
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number
            if shift > VARINT_BITS_MAX:
                raise _Short(f"{field}: a length that never ends")

    def _take(self, size: int, field: str) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise _Short(f"{field}: {size} bytes expected, {len(taken)} there")
        self._at += size
        return taken
