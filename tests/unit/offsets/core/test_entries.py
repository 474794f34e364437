"""Records of the topic `keyway-offsets` come back as they were written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyway.commit_metadata.core import metadata as settled_metadata
from offsets.core.entries import (
    APPLIED,
    ENTRY,
    ROW,
    Applied,
    Entry,
    MalformedEntry,
    decode_applied,
    decode_entry,
    encode_applied,
    encode_entry,
    key_of,
    read_key,
    with_flags,
    without_flags,
    work_told_ms,
)
from offsets.core.model import Progress, Range, Stream, joined
from offsets.core.topic_state import TopicState
from offsets.core.translate import Unsafe

PLACE = ("my group", "tøpic", 3)
A, B = Stream("A", "tøpic", 3), Stream("B", "tøpic", 3)

ranges = st.lists(st.integers(0, 10_000), unique=True, max_size=40).map(
    lambda entries: joined(sorted(entries))
)


@given(settled=ranges, metadata=st.text(max_size=50), flags=st.integers(0, 2**32 - 1))
def test_entries_come_back(settled: list[Range], metadata: str, flags: int) -> None:
    entry = Entry(
        *PLACE,
        source="A",
        committed_ms=1_700_000_000_000,
        offset=2**40,
        log_end=2**40 + 5,
        partitions=4,
        timestamp_ms=-5,
        margin_ms=60_000,
        replay=7,
        unsafe=(Unsafe.LAG, Unsafe.BEFORE_START),
        exact=True,
        progress=Progress({A: 5, B: 2**50}, {A: 6, B: 2**50}, {B: settled} if settled else {}),
        metadata=metadata,
        flags=flags,
    )
    assert decode_entry(PLACE, "A", encode_entry(entry)) == entry


def test_an_entry_without_origins_and_a_deleted_one() -> None:
    for entry in (Entry(*PLACE, "A", 5), Entry(*PLACE, "A", 5, deleted=True)):
        assert decode_entry(PLACE, "A", encode_entry(entry)) == entry


def test_16384_settled_records_fit_a_record_of_kafka() -> None:
    settled = [(at, at) for at in range(10**9, 10**9 + 16_384, 2)]
    entry = Entry(*PLACE, "A", 5, progress=Progress({A: 1}, {A: 1}, {A: settled}))
    assert len(encode_entry(entry)) < 100_000


def test_keys_come_back() -> None:
    assert read_key(key_of(ENTRY, PLACE, "A")) == (ENTRY, PLACE, "A")
    assert read_key(key_of(APPLIED, PLACE)) == (APPLIED, PLACE, "")


@pytest.mark.parametrize("key", [None, b"", b"{", b"[]", b'["entry",1,2,3]', b'["entry","g","t"]'])
def test_a_malformed_key_is_named(key: bytes | None) -> None:
    with pytest.raises(MalformedEntry, match="key"):
        read_key(key)


@pytest.mark.parametrize("value", [b"", b"[]", b'{"version":2}', b'{"version":1}'])
def test_a_malformed_value_is_counted_and_changes_nothing(value: bytes) -> None:
    state_topic = TopicState()
    for kind in (ENTRY, APPLIED):
        assert state_topic.read(key_of(kind, PLACE, "A"), value) is None
    assert state_topic.malformed == 2
    assert state_topic == TopicState(malformed=2)
    with pytest.raises(MalformedEntry):
        decode_entry(PLACE, "A", value)
    with pytest.raises(MalformedEntry):
        decode_applied(value)


def test_the_state_topic_keeps_the_latest() -> None:
    state_topic = TopicState()
    first, second = Entry(*PLACE, "A", 5, offset=1), Entry(*PLACE, "A", 6, offset=2)
    other = Entry(*PLACE, "C", 9, offset=3)
    applied = Applied(7, "metadata", "A", 5)
    assert state_topic.read(key_of(ENTRY, PLACE, "A"), encode_entry(first)) == first
    assert state_topic.read(key_of(ENTRY, PLACE, "A"), encode_entry(first)) is None, "known"
    assert state_topic.read(key_of(ENTRY, PLACE, "A"), encode_entry(second)) == second
    assert state_topic.read(key_of(ENTRY, PLACE, "C"), encode_entry(other)) == other
    state_topic.read(key_of(APPLIED, PLACE), encode_applied(applied))
    state_topic.read(key_of(ROW, PLACE, "A"), json.dumps({"version": 2, "new": 4}).encode())
    assert state_topic.newest(PLACE, besides="B") == other
    assert state_topic.newest(PLACE, besides="C") == second
    assert state_topic.applied[PLACE] == applied
    assert state_topic.rows[PLACE, "A"]["new"] == 4
    for key in (key_of(ENTRY, PLACE, "A"), key_of(APPLIED, PLACE), key_of(ROW, PLACE, "A")):
        state_topic.read(key, None)
    assert state_topic == TopicState(entries={(PLACE, "C"): other})


@pytest.mark.parametrize("before", [(None, None), (0, None), (6, 5_000)])
def test_an_applied_commit_comes_back(before: tuple[int | None, int | None]) -> None:
    applied = Applied(7, "metadata", "A", 5, 3, *before)
    assert decode_applied(encode_applied(applied)) == applied


def told(*settled: Range, origin: int = 7_000_000) -> str:
    return settled_metadata.encode(7, list(settled), origin=origin, settled_ms=5)


@pytest.mark.parametrize(
    ("offset", "metadata", "made"),
    [
        (7, told((9, 12)), True),
        (7, told((9, 12), origin=8_000_000), True),  # a gateway took it over
        (7, told((9, 13)), False),
        (7, told(), False),
        (7, "", False),  # a reset to the cursor: all behind it comes again
        (6, told((9, 12)), False),
    ],
)
def test_settled_records_tell_a_commit_from_later_work(
    offset: int, metadata: str, *, made: bool
) -> None:
    assert Applied(7, told((9, 12)), "A", 5).made(offset, metadata) is made


@pytest.mark.parametrize("metadata", ["", "streams", "other"])
def test_a_plain_commit_is_told_by_its_offset(metadata: str) -> None:
    assert Applied(7, "streams", "A", 5).made(7, metadata)
    assert not Applied(7, "streams", "A", 5).made(8, metadata)


def test_a_deleted_entry_is_not_followed() -> None:
    state_topic = TopicState()
    state_topic.read(key_of(ENTRY, PLACE, "A"), encode_entry(Entry(*PLACE, "A", 5, deleted=True)))
    assert state_topic.newest(PLACE, besides="B") is None


@pytest.mark.parametrize("metadata", ["", "kw1:abc", "keyway-flags=", "x" * 4_000, "streams ÿ"])
def test_flags_in_metadata_leave_it_as_it_was(metadata: str) -> None:
    assert without_flags(with_flags(metadata, 5)) == metadata
    assert without_flags(metadata) == metadata


def test_a_key_shared_group_tells_when_it_worked_however_late_it_is_committed() -> None:
    text = settled_metadata.encode(6, [(8, 9)], origin=7_000_000, settled_ms=5_000)
    assert work_told_ms(6, text) == 5_000
    assert work_told_ms(6, with_flags(text, 3)) == 5_000
    assert work_told_ms(7, text) is None, "copied to another offset"
    assert work_told_ms(6, settled_metadata.encode(6, [], origin=7)) is None
    assert work_told_ms(6, "a stock group's") is None
