"""The offsets of a window: Danube's InFlightWindow cases (B5), bitmap bytes, rings that grow."""

from __future__ import annotations

import random

from dispatcher.core.dispatcher import Dispatcher
from dispatcher.core.model import (
    Acknowledge,
    Acquire,
    Member,
    MemberId,
    MembersChanged,
    Policy,
    RecordsRead,
    SessionId,
    Ticked,
)
from dispatcher.core.records.span import Span
from dispatcher.core.steps import BitsSet, CursorMoved, Notice, Noticed, Snapshot
from tests.rig.playbook import Playbook


def test_block_same_key() -> None:
    play = Playbook().join("c1").produce(b"k", b"k")
    assert play.acquire("c1") == [0]
    assert play.acquire("c1") == []


def test_ack_unblocks() -> None:
    play = Playbook().join("c1").produce(b"k", b"k")
    play.acquire("c1")
    assert play.ack("c1", 0) == [None]
    assert play.acquire("c1") == [1]


def test_cursor_follows_contiguous_acks() -> None:
    play = Playbook(snapshot=Snapshot(cursor=1)).join("c1").produce(b"a", b"b", b"c")
    assert play.acquire("c1") == [1, 2, 3]
    for offset in (1, 2, 3):
        play.ack("c1", offset)
        play.persists(CursorMoved(offset + 1, offset + 1))


def test_cursor_waits_for_the_gap() -> None:
    play = Playbook(snapshot=Snapshot(cursor=1)).join("c1").produce(b"a", b"b", b"c")
    play.acquire("c1")
    cursors = []
    for offset in (3, 1, 2):
        play.ack("c1", offset)
        cursors.append(play.core.cursor)
    assert cursors == [1, 2, 4]


def test_doc_example_10_to_13() -> None:
    play = Playbook(snapshot=Snapshot(cursor=10)).join("c1").produce(b"a", b"b", b"c", b"d")
    play.acquire("c1")
    play.ack("c1", [10, 12, 13])
    assert (play.core.cursor, play.core.settled_ranges()) == (11, [(12, 13)])
    play.ack("c1", 11)
    assert (play.core.cursor, play.core.settled_ranges()) == (14, [])


def test_of_the_keys_that_are_free_the_oldest_record_comes_first() -> None:
    play = Playbook().join("c1").produce(b"a", b"b", b"c", b"a", b"c", b"b")
    assert play.acquire("c1") == [0, 1, 2]
    play.ack("c1", [2, 0, 1])
    assert [play.acquire("c1", 1) for _ in range(3)] == [[3], [4], [5]]


def test_skipped_offsets_move_the_cursor() -> None:
    play = Playbook(snapshot=Snapshot(cursor=1)).join("c1", filters=(b"mine-*",))
    play.produce(b"other", b"other", b"mine-1", b"other")
    assert play.core.cursor == 3
    assert play.core.settled_ranges() == [(4, 4)]
    assert play.acquire("c1") == [3]
    play.ack("c1", 3)
    assert play.core.cursor == 5


def test_capacity_is_the_span_of_offsets() -> None:
    play = Playbook(Policy(span_max=2, held_max=0)).join("c1").produce(b"a", b"b", b"c")
    assert play.core.read_position == 2
    assert play.acquire("c1") == [0, 1]
    play.ack("c1", 1)
    assert play.read().core.read_position == 2, "offset 0 still holds the span"
    play.ack("c1", 0)
    assert play.read_on() == [(2, 2)]
    assert play.read().acquire("c1") == [2]


def test_capacity_of_records_beside_the_span() -> None:
    """W2 of Danube's window: in flight and blocked together; here an option."""
    play = Playbook(Policy(window_records=2)).join("c1").produce(b"a", b"a", b"b")
    assert (play.core.read_position, play.read_on()) == (2, [])
    assert play.acquire("c1") == [0]
    play.ack("c1", 0)
    assert play.read_on() == [(2, 1)]
    play.read()
    assert play.acquire("c1") == [1, 2]


def test_ten_thousand_records_of_a_span_of_16_384() -> None:
    core = Dispatcher(Policy(window_records=10_000, held_max=0), Snapshot(cursor=2_000))
    core.handle(MembersChanged((Member(MemberId("c1")),), 0))
    sparse = list(range(2_000, 12_000, 2))
    core.handle(RecordsRead(2_000, 12_000, sparse, [b"%d" % offset for offset in sparse], 0))
    assert core.read_position == 12_000, "5,000 records: holes are not counted"
    dense = list(range(12_000, 20_000))
    core.handle(RecordsRead(12_000, 20_000, dense, [b"%d" % offset for offset in dense], 0))
    assert (core.read_position, core.stats().unsettled) == (17_000, 10_000)
    assert core.handle(Ticked(500)).effects == []
    (said,) = core.handle(Ticked(1_000)).effects
    assert isinstance(said, Noticed)
    assert said.notice is Notice.SPAN_FULL
    full = core.stats().full_span
    assert full is not None
    assert (full.offset, full.by_span) == (2_000, False)
    core.handle(Acquire(MemberId("c1"), SessionId("s"), 500, 1_000))
    core.handle(Acknowledge(MemberId("c1"), SessionId("s"), [(2_500, 2_500, b"\1")], 1_000))
    core.handle(RecordsRead(17_000, 20_000, dense[5_000:], [None] * 3_000, 1_000))
    assert (core.read_position, core.cursor) == (17_001, 2_000)


def test_a_limit_of_records_that_was_lowered_lets_what_was_leased_be_read_again() -> None:
    """With prefetch nothing goes out before that: a window that waited for room would wait for
    ever.
    """
    play = Playbook(Policy(prefetch_per_key=2)).join("c1")
    play.produce(*[b"%d" % i for i in range(10)])
    play.acquire("c1")
    play.ack("c1", range(5))
    lowered = Playbook(Policy(prefetch_per_key=2, window_records=2), play.stored).join("c1")
    lowered.log, lowered.log_end = play.log, play.log_end
    lowered.read()
    assert lowered.core.read_position == 10
    assert lowered.ack("c1", range(5, 10)) == [None] * 5


def test_changed_bytes_are_sent_in_runs() -> None:
    window = Span(0)
    window.reserve(1_000)
    for offset in (700, 3, 9, 700):
        window.mark(offset)
    assert window.take_dirty() == [
        BitsSet(chunk=0, byte_at=0, data=bytes([0b1000, 0b10])),
        BitsSet(chunk=0, byte_at=87, data=bytes([0b10000])),
    ]
    assert window.take_dirty() == []


def test_a_run_is_written_over_a_gap_of_32_bytes_at_most() -> None:
    window = Span(0)
    window.reserve(1_000)
    for byte in (0, 32, 65):
        window.mark(8 * byte)
    assert [(run.byte_at, len(run.data)) for run in window.take_dirty()] == [(0, 33), (65, 1)]


def test_runs_end_at_their_chunk() -> None:
    window = Span(65_530)
    window.mark(65_535)
    window.mark(65_536)
    assert window.take_dirty() == [
        BitsSet(chunk=0, byte_at=8_191, data=b"\x80"),
        BitsSet(chunk=1, byte_at=0, data=b"\x01"),
    ]


def test_bytes_behind_the_cursor_are_not_sent() -> None:
    play = Playbook().join("c1").produce(*[b"%d" % i for i in range(40)])
    play.acquire("c1")
    play.ack("c1", range(40))
    assert [change for change in play.step.changes if isinstance(change, BitsSet)] == []


def test_settled_ranges_over_byte_borders() -> None:
    window = Span(5)
    window.reserve(200)
    window.known_end = 105
    settled = [*range(6, 40), 41, *range(56, 64), 100, 104]
    for offset in settled:
        window.mark(offset)
    assert window.settled_ranges() == [(6, 39), (41, 41), (56, 63), (100, 100), (104, 104)]


def test_rings_grow_with_their_contents_and_shrink_when_idle() -> None:
    play = Playbook(Policy(span_max=4_096)).join("c1")
    play.produce(b"held", *[b"%d" % (i % 50) for i in range(63)])
    assert play.acquire("c1", 1) == [0]
    small = play.core._state.window.capacity
    play.produce(*[b"%d" % (i % 50) for i in range(3_000)])
    assert play.core._state.window.capacity >= 3_064 > small
    while offsets := play.acquire("c1"):
        assert play.acks("c1", [(o, o, b"\1") for o in offsets]) == [None] * len(offsets)
    assert play.core.settled_ranges() == [(1, 3_063)]
    play.ack("c1", 0)
    assert play.wait(500).core._state.window.capacity == small


def test_rings_are_as_large_as_the_offsets_need_and_no_larger() -> None:
    window = Span(1_000)
    assert window.capacity == 64
    for offsets, capacity in ((64, 64), (65, 128), (128, 128), (1_000, 1_024), (1_024, 1_024)):
        window.reserve(1_000 + offsets)
        assert window.capacity == capacity
        assert len(window.bits) * 8 == 2 * capacity
    for needed, capacity in ((129, 1_024), (128, 512), (64, 256), (1, 64)):
        window.read_position = 1_000 + needed
        window.shrink()
        assert window.capacity == capacity


def test_runs_begin_at_the_cursor_and_end_at_a_gap() -> None:
    window = Span(800)
    window.reserve(800 + 4_096)
    for byte in (100, 101, 150, 182, 215):
        window.mark(8 * byte + 7)
        window.mark(8 * byte)
    window.read_position = 1_000
    window.move_front(816)
    runs = [(run.chunk, run.byte_at, len(run.data)) for run in window.take_dirty()]
    assert runs == [(0, 150, 33), (0, 215, 1)]


def test_settled_ranges_are_those_of_the_bits() -> None:
    chosen = random.Random(3)
    for cursor in (*range(10), 45, 47, 48, 10_003):
        for end in range(cursor + 1, cursor + 60):
            window = Span(cursor)
            window.read_position = end
            settled = [at for at in range(cursor, end) if chosen.random() < (0.5, 0.95)[end & 1]]
            for offset in settled:
                window.mark(offset)
            found = [at for low, high in window.settled_ranges() for at in range(low, high + 1)]
            assert found == settled
            window.reserve(cursor + 1_000)
            window.shrink()
            grown = [at for low, high in window.settled_ranges() for at in range(low, high + 1)]
            assert grown == settled


def test_what_is_settled_behind_the_cursor_stays_when_it_moves() -> None:
    window = Span(10_000)
    for offset in (10_000, 10_001, 10_030, 10_039):
        window.mark(offset)
    window.read_position = 10_040
    window.move_front(10_002)
    assert window.settled_ranges() == [(10_030, 10_030), (10_039, 10_039)]
    window.move_front(10_035)
    assert window.settled_ranges() == [(10_039, 10_039)]


def test_a_cursor_that_leaves_all_behind_leaves_no_bit_set() -> None:
    for behind in (10_064, 10_128, 10_129, 1_000_000):
        window = Span(10_000)
        for offset in range(10_000, 10_064):
            window.mark(offset)
        window.move_front(behind)
        assert window.settled_ranges() == []


def test_the_rings_hold_as_many_offsets_as_they_are_large() -> None:
    window = Span(5)
    held = [offset for offset in range(100) if window.holds(offset)]
    assert held == list(range(5, 5 + 64))


def test_a_record_far_behind_the_front_of_its_key_is_settled_first() -> None:
    play = Playbook(Policy(prefetch_per_key=4)).join("c1").produce(*[b"k"] * 6)
    assert play.acquire("c1") == [0, 1, 2, 3]
    assert play.ack("c1", [2, 3]) == [None] * 2
    assert play.acquire("c1") == [4, 5]
    assert play.ack("c1", [1, 4, 5, 0]) == [None] * 4
    assert play.core.cursor == 6
