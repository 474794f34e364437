"""Record batches against kafka-clients itself: its builder, reader, log cleaner and consumers."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.wire.records import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    Compression,
    CorruptBatch,
    Producer,
    Record,
    UnsupportedMagic,
    build,
    drop_aborted,
    filtered,
    marker,
    read_batch,
    read_records,
    scan,
    select,
)
from tests.conformance.records.oracle import JavaError, RecordsOracle

CODECS = list(Compression)
WRITER = Producer(producer_id=4_000_000_000, epoch=7, base_sequence=30, transactional=True)

NOW = 1_760_000_000_000
RECORDS = [
    Record(1_000, NOW, b"k", b"v"),
    Record(1_001, NOW + 5, None, b"no key"),
    Record(1_002, NOW - 86_400_000, b"", b""),
    Record(1_003, NOW, b"tombstone", None),
    Record(1_007, NOW + 2**40, b"k" * 300, b"behind a gap" * 2_000),
    Record(1_008, 0, None, None, [("h", b"1"), ("h", b""), ("", None), ("ж", b"\x00\xff")]),
    Record(1_200, NOW, bytes(range(256)), b"200 on", [("trace", b"x" * 200)] * 70),
    *[Record(1_300 + i, NOW + i, b"key-%d" % (i % 7), b"{%d}" % i * 10) for i in range(500)],
]

records_of_any_kind = st.lists(
    st.builds(
        Record,
        st.integers(1, 300),  # made ascending below
        st.integers(0, 2**62),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    ),
    min_size=1,
    max_size=20,
).map(
    lambda drawn: [
        Record(at, record.timestamp, record.key, record.value, record.headers)
        for at, record in zip(
            itertools.accumulate(record.offset for record in drawn), drawn, strict=True
        )
    ]
)


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_what_java_writes(oracle: RecordsOracle, codec: Compression) -> None:
    data = oracle.build(RECORDS, base_offset=1_000, compression=codec, producer=WRITER)
    (batch,) = scan(data)
    assert read_batch(batch) == RECORDS
    assert batch.offsets == [record.offset for record in RECORDS]
    assert batch.keys == [record.key for record in RECORDS]
    assert (batch.base_offset, batch.last_offset) == (1_000, 1_799)
    assert batch.producer_id == WRITER.producer_id
    assert batch.is_transactional
    assert not batch.is_control


@pytest.mark.parametrize("codec", CODECS)
def test_java_reads_what_we_build(oracle: RecordsOracle, codec: Compression) -> None:
    data = build(RECORDS, base_offset=999, compression=codec, producer=WRITER, leader_epoch=12)
    (batch,) = oracle.read(data)
    assert batch.records == RECORDS
    assert batch.codec == codec.name.lower()
    assert (batch.producer_id, batch.producer_epoch) == (WRITER.producer_id, WRITER.epoch)
    assert batch.base_sequence == WRITER.base_sequence
    assert batch.transactional
    assert batch.leader_epoch == 12
    assert batch.max_timestamp == max(record.timestamp for record in RECORDS)


def test_uncompressed_bytes_are_the_very_same(oracle: RecordsOracle) -> None:
    theirs = oracle.build(RECORDS, base_offset=1_000, producer=WRITER, leader_epoch=3)
    ours = build(RECORDS, base_offset=1_000, producer=WRITER, leader_epoch=3)
    assert ours == theirs
    (batch,) = scan(theirs)
    assert filtered(batch, batch.offsets) == theirs


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("records_max", [1, 3, 100, 1_000])
def test_selected_records_in_java(
    oracle: RecordsOracle, codec: Compression, records_max: int
) -> None:
    data = oracle.build(
        RECORDS, base_offset=1_000, compression=codec, producer=WRITER, leader_epoch=5
    )
    (source,) = scan(data)
    wanted = RECORDS[2:9] + RECORDS[20::5]
    sent = select(source, [record.offset for record in wanted], records_max=records_max)
    batches = oracle.read(sent)
    assert [record for batch in batches for record in batch.records] == wanted
    for batch in batches:
        assert batch.count == len(batch.records) <= records_max
        assert batch.base_offset == 1_000
        assert batch.last_offset == batch.records[-1].offset
        assert batch.codec == "none"
        assert batch.leader_epoch == 5
        assert not batch.transactional
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert all(batch.count == records_max for batch in batches[:-1])


@pytest.mark.parametrize("records_max", [1, 10, 500])
def test_a_share_consumer_gets_exactly_what_was_selected(
    oracle: RecordsOracle, records_max: int
) -> None:
    """Through Java's own ShareCompletedFetch: the batches' offset ranges overlap, its cursor
    copes.
    """
    first = oracle.build(RECORDS, base_offset=1_000, compression=Compression.LZ4)
    more = [Record(2_000 + i, NOW, b"m", b"%d" % i) for i in range(50)]
    second = oracle.build(more, base_offset=2_000)
    wanted = RECORDS[1:4] + RECORDS[5::3] + more[::2]
    offsets = [record.offset for record in wanted]
    sent = b"".join(
        select(
            batch,
            [offset for offset in offsets if batch.base_offset <= offset <= batch.last_offset],
            records_max=records_max,
        )
        for batch in scan(first + second)
    )
    polls = oracle.share(sent, runs_of(offsets), records_max=1_000)
    assert [record for poll in polls for record in poll.records] == wanted
    assert not [poll for poll in polls if poll.error or poll.settled]


def test_small_batches_bound_what_a_poll_returns(oracle: RecordsOracle) -> None:
    """max.poll.records is soft: Java finishes the batch it is in (and no more than that)."""
    (batch,) = scan(build(RECORDS, base_offset=1_000))
    sent = select(batch, batch.offsets, records_max=10)
    polls = oracle.share(sent, runs_of(batch.offsets), records_max=25)
    assert max(len(poll.records) for poll in polls) < 35
    assert [record for poll in polls for record in poll.records] == RECORDS


def test_a_wrong_crc_is_what_we_think_it_is(oracle: RecordsOracle) -> None:
    """Java rejects, so loses, records under a wrong CRC: this is why every batch we send is
    checked.
    """
    (batch,) = scan(build(RECORDS[:5], base_offset=1_000))
    sent = bytearray(select(batch, batch.offsets, records_max=100))
    sent[17] ^= 1
    polls = oracle.share(bytes(sent), runs_of(batch.offsets), records_max=100)
    assert polls[0].error is not None
    rejected = {offset for poll in polls for offset, kind in poll.settled if kind == "reject"}
    assert rejected == set(batch.offsets)
    with pytest.raises(JavaError, match="CorruptRecordException"):
        oracle.read(bytes(sent))
    with pytest.raises(CorruptBatch):
        scan(bytes(sent))


def test_log_append_time_stays(oracle: RecordsOracle) -> None:
    for codec in CODECS:
        data = oracle.build(RECORDS, base_offset=1_000, compression=codec, log_append_time=NOW + 9)
        (source,) = scan(data)
        stamped = [
            Record(record.offset, NOW + 9, record.key, record.value, record.headers)
            for record in RECORDS
        ]
        assert read_batch(source) == stamped
        (batch,) = oracle.read(select(source, source.offsets[:9], records_max=9))
        assert batch.timestamp_type == "LogAppendTime"
        assert batch.records == stamped[:9]


@pytest.mark.parametrize("keep", [RECORDS, RECORDS[3:400:7], RECORDS[-1:], []])
def test_filtered_is_what_the_log_cleaner_leaves(oracle: RecordsOracle, keep: list[Record]) -> None:
    source = oracle.build(RECORDS, base_offset=1_000, producer=WRITER, leader_epoch=4)
    (batch,) = scan(source)
    ours = filtered(batch, [record.offset for record in keep])
    theirs = oracle.compact(source, [record.offset for record in keep])
    (read,) = oracle.read(ours)
    (cleaned,) = oracle.read(theirs)
    assert read.records == cleaned.records == keep
    assert (read.base_offset, read.last_offset, read.next_offset) == (1_000, 1_799, 1_800)
    assert (cleaned.base_offset, cleaned.last_offset) == (1_000, 1_799)
    assert (read.producer_id, read.producer_epoch) == (WRITER.producer_id, WRITER.epoch)
    assert read.base_sequence == cleaned.base_sequence == WRITER.base_sequence
    assert read.transactional
    assert keep or len(ours) == 61


@pytest.mark.parametrize("codec", CODECS)
def test_compacted_logs_are_read(oracle: RecordsOracle, codec: Compression) -> None:
    """With a delete horizon in place of the base timestamp, an emptied batch, and holes."""
    source = oracle.build(RECORDS, base_offset=1_000, compression=codec)
    emptied = oracle.build(
        [Record(2_000 + i, NOW, b"e", b"v") for i in range(9)], base_offset=2_000, compression=codec
    )
    keep = RECORDS[3:400:7]
    assert RECORDS[3].value is None  # a tombstone makes the cleaner set the horizon
    data = oracle.compact(
        source + emptied, [record.offset for record in keep], delete_horizon=NOW + 77
    )
    first, second = scan(data)
    assert read_batch(first) == keep
    assert (second.count, second.base_offset, second.last_offset) == (0, 2_000, 2_008)
    sent = select(first, first.offsets, records_max=7)
    batches = oracle.read(sent)
    assert [record for batch in batches for record in batch.records] == keep
    assert {batch.delete_horizon for batch in batches} == {oracle.read(data)[0].delete_horizon}


def test_markers(oracle: RecordsOracle) -> None:
    for commit, kind in ((True, CONTROL_COMMIT), (False, CONTROL_ABORT)):
        for data in (
            oracle.marker(50, WRITER, commit=commit),
            marker(50, WRITER, commit=commit, timestamp=1_000),
        ):
            (batch,) = scan(data)
            assert batch.is_control
            assert batch.control_type == kind
            assert (batch.count, batch.offsets, batch.keys) == (0, [], [])
            assert (batch.base_offset, batch.last_offset) == (50, 50)
            assert batch.producer_id == WRITER.producer_id
            assert oracle.read(data)[0].control


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_refused_clearly(oracle: RecordsOracle, magic: int) -> None:
    with pytest.raises(UnsupportedMagic, match=f"magic {magic}"):
        scan(oracle.old_message(magic))


@pytest.mark.parametrize("seed", range(40))
def test_read_committed_as_javas_consumer_does_it(oracle: RecordsOracle, seed: int) -> None:
    """Random logs of interleaved transactions, against CompletedFetch."""
    data, aborted = random_log(random.Random(seed))
    expected, end = oracle.consume(data, aborted)
    batches = scan(data)
    kept = drop_aborted(batches, aborted)
    assert [record for batch in kept for record in read_batch(batch)] == expected
    assert end == batches[-1].last_offset + 1


def test_random_logs_have_what_they_are_for(oracle: RecordsOracle) -> None:
    dropped = kept = 0
    for seed in range(40):
        data, aborted = random_log(random.Random(seed))
        seen, _ = oracle.consume(data, aborted)
        kept += len(seen)
        dropped += len(read_records(data)) - len(seen)
    assert kept > 200
    assert dropped > 200


def random_log(chance: random.Random) -> tuple[bytes, list[tuple[int, int]]]:
    """A Fetch response: batches of four transactional producers, a plain and an idempotent one."""
    open_since: dict[int, int] = {}
    aborted: list[tuple[int, int]] = []
    batches: list[bytes] = []
    offset = 0
    for _ in range(chance.randint(1, 40)):
        pid = chance.randint(1, 6)
        producer = Producer(pid, 0, 0, transactional=pid <= 4) if pid < 6 else Producer()
        if pid in open_since and chance.random() < 0.4:
            commit = chance.random() < 0.5
            if not commit:
                aborted.append((pid, open_since[pid]))
            del open_since[pid]
            batches.append(marker(offset, producer, commit=commit))
            offset += 1
            continue
        count = chance.randint(1, 5)
        if pid <= 4:
            open_since.setdefault(pid, offset)
        records = [Record(offset + i, NOW, b"%d" % pid, b"%d" % offset) for i in range(count)]
        kept = [record for record in records if chance.random() < 0.8]  # compaction's holes
        batches.append(
            build(
                kept,
                base_offset=offset,
                last_offset=offset + count - 1,
                producer=producer,
                compression=chance.choice(CODECS),
            )
        )
        offset += count
    # A response that starts in the middle: transactions begun before are in the list all the same.
    aborted.extend((pid, since) for pid, since in open_since.items() if chance.random() < 0.5)
    start = chance.randint(0, len(batches) - 1)
    chance.shuffle(aborted)
    return b"".join(batches[start:]), aborted


@given(records_of_any_kind, st.sampled_from(CODECS), st.integers(1, 7), st.data())
@settings(max_examples=150)
def test_any_records_both_ways(
    oracle: RecordsOracle,
    records: list[Record],
    codec: Compression,
    records_max: int,
    data: st.DataObject,
) -> None:
    base = data.draw(st.integers(0, records[0].offset))
    theirs = oracle.build(records, base_offset=base, compression=codec)
    assert read_records(theirs) == records
    ours = build(records, base_offset=base, compression=codec)
    assert oracle.read(ours)[0].records == records
    wanted = [record for record in records if data.draw(st.booleans())]
    (batch,) = scan(theirs)
    offsets = [record.offset for record in wanted]
    sent = oracle.read(select(batch, offsets, records_max=records_max))
    assert [record for part in sent for record in part.records] == wanted
    (kept,) = oracle.read(filtered(batch, offsets))
    assert kept.records == wanted
    assert kept.last_offset == records[-1].offset


def runs_of(offsets: list[int]) -> list[tuple[int, int]]:
    """AcquiredRecords for these offsets: one range for each run of neighbours."""
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and runs[-1][1] == offset - 1:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return runs
