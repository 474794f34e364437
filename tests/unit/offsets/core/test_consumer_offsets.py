"""Records of `__consumer_offsets`, made by hand from Kafka's field tables."""

from __future__ import annotations

import struct

import pytest

from offsets.core.consumer_offsets import (
    Change,
    GroupDeleted,
    GroupMembers,
    MemberSeen,
    OffsetCommitted,
    OffsetDeleted,
    Unreadable,
    decode,
)

METADATA_MAX = "x" * 4_095


def text(value: str | None, *, flexible: bool = False) -> bytes:
    data = b"" if value is None else value.encode()
    if not flexible:
        return struct.pack(">h", -1 if value is None else len(data)) + data
    return varint(0 if value is None else len(data) + 1) + data


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def commit_key(version: int = 1) -> bytes:
    return struct.pack(">h", version) + text("orders") + text("töpic") + struct.pack(">i", 3)


def commit_value(version: int, metadata: str | None) -> bytes:
    flexible = version >= 4
    out = struct.pack(">hq", version, 2**40)
    if version >= 3:
        out += struct.pack(">i", 7)
    out += text(metadata, flexible=flexible) + struct.pack(">q", 1_700_000_000_123)
    if version == 1:
        out += struct.pack(">q", -1)
    if flexible:  # one tagged field, the topic id
        out += varint(1) + varint(0) + varint(16) + bytes(range(16))
    return out


@pytest.mark.parametrize("key_version", [0, 1])
@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("metadata", ["", "kw1:abc", METADATA_MAX])
def test_offsets_of_every_version(key_version: int, version: int, metadata: str) -> None:
    assert decode(commit_key(key_version), commit_value(version, metadata)) == OffsetCommitted(
        "orders", "töpic", 3, 2**40, 7 if version >= 3 else -1, metadata, 1_700_000_000_123
    )


@pytest.mark.parametrize("version", [3, 4])
def test_null_metadata_is_empty(version: int) -> None:
    change = decode(commit_key(), commit_value(version, None))
    assert isinstance(change, OffsetCommitted)
    assert change.metadata == ""


def test_a_tombstone_deletes_the_offset() -> None:
    assert decode(commit_key(), None) == OffsetDeleted("orders", "töpic", 3)


def group_value(version: int, members: int) -> bytes:
    flexible = version >= 4
    out = struct.pack(">h", version) + text("consumer", flexible=flexible) + struct.pack(">i", 9)
    out += text("range", flexible=flexible) + text(None, flexible=flexible)
    if version >= 2:
        out += struct.pack(">q", 5)
    return out + (varint(members + 1) if flexible else struct.pack(">i", members)) + b"members"


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("members", [0, 2, 200])
def test_classic_groups_of_every_version(version: int, members: int) -> None:
    key = struct.pack(">h", 2) + text("orders")
    assert decode(key, group_value(version, members)) == GroupMembers("orders", "consumer", members)
    assert decode(key, None) == GroupDeleted("orders")


@pytest.mark.parametrize("kind", [5, 10, 19])
def test_members_of_the_newer_kinds(kind: int) -> None:
    key = struct.pack(">h", kind) + text("orders") + text("member-1")
    assert decode(key, b"\0\0...") == MemberSeen("orders", "member-1", present=True)
    assert decode(key, None) == MemberSeen("orders", "member-1", present=False)


@pytest.mark.parametrize("kind", [3, 4, 6, 8, 11, 15, 99])
def test_other_records_are_of_no_interest(kind: int) -> None:
    assert decode(struct.pack(">h", kind) + text("orders"), b"\0\0") is None


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, None, "version of the key"),
        (b"\0\1\0\6ord", None, "group: 6 bytes expected, 3 there"),
        (commit_key(), b"\0\5" + bytes(40), "an offset of version 5"),
        (commit_key(), b"\0\3" + bytes(7), "offset: 8 bytes expected"),
        (commit_key(), struct.pack(">hqi", 4, 1, 1) + b"\xff" * 6, "metadata: a length that never"),
        (b"\0\2" + text("g"), b"\0\7", "a group of version 7"),
        (b"\0\1\0\1\xff" + text("t") + bytes(4), None, "not UTF-8"),
    ],
)
def test_damaged_records_are_named(key: bytes | None, value: bytes | None, reason: str) -> None:
    change: Change | None = decode(key, value)
    assert isinstance(change, Unreadable)
    assert reason in change.reason
