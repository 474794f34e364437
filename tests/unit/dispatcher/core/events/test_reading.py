"""Input from the log: overlaps, gaps, holes, truncation."""

from __future__ import annotations

import pytest

from dispatcher.core.limits import KEY_BYTES_MAX
from dispatcher.core.model import (
    AckType,
    Gone,
    LogCut,
    LogTruncated,
    MemberId,
    OperatorAct,
    OperatorVerb,
    PoisonPolicy,
    Policy,
    RecordsRead,
    SessionId,
)
from dispatcher.core.steps import (
    CursorMoved,
    Notice,
    Noticed,
    ReadOn,
    RetriesForgotten,
    Snapshot,
    TailDone,
)
from tests.rig.playbook import Playbook


def test_what_is_known_already_is_cut_off() -> None:
    play = Playbook().join("c1").produce(b"a", b"b")
    play.on(RecordsRead(0, 3, [0, 1, 2], [b"a", b"b", b"c"], 0))
    assert play.core.read_position == 3
    assert play.acquire("c1") == [0, 1, 2]


@pytest.mark.parametrize(("start", "end"), [(5, 7), (0, 2), (1, 1)])
def test_what_does_not_continue_the_window_is_asked_for_again(start: int, end: int) -> None:
    play = Playbook().join("c1").produce(b"a", b"b")
    play.on(RecordsRead(start, end, [], [], 0)).expect(ReadOn(2, 16_382))
    assert play.core.read_position == 2


def test_what_has_no_room_is_asked_for_again() -> None:
    play = Playbook(Policy(span_max=3)).join("c1")
    play.log = {i: b"%d" % i for i in range(5)}
    play.on(RecordsRead(0, 5, list(play.log), list(play.log.values()), 0))
    assert play.core.read_position == 3
    play.acquire("c1")
    play.acks("c1", [(0, 2, b"\1")])
    play.expect(ReadOn(3, 3))


def test_holes_are_settled_and_not_persisted() -> None:
    play = Playbook().join("c1").produce(b"a").hole(3).produce(b"b").hole(2)
    assert play.step.changes == []
    assert play.core.settled_ranges() == [(1, 3), (5, 6)]
    play.acquire("c1")
    play.ack("c1", 4)
    play.ack("c1", 0)
    play.persists(CursorMoved(7, 7))


def test_a_long_hole_in_front_is_passed_at_once() -> None:
    play = Playbook(Policy(span_max=16)).join("c1")
    play.log = {10_000_000: b"a"}
    play.on(RecordsRead(0, 10_000_001, [10_000_000], [b"a"], 0))
    assert (play.core.cursor, play.core.read_position) == (10_000_000, 10_000_001)
    assert play.acquire("c1") == [10_000_000]


def test_a_long_hole_in_front_takes_no_room_from_a_limit_of_records() -> None:
    play = Playbook(Policy(window_records=3)).join("c1")
    keys = {1_000 + i: b"%d" % i for i in range(5)}
    play.on(RecordsRead(0, 1_005, list(keys), list(keys.values()), 0))
    assert (play.core.cursor, play.core.read_position) == (1_000, 1_003)


def test_an_empty_read_to_the_end_of_a_hole() -> None:
    play = Playbook(Policy(span_max=16)).join("c1")
    play.on(RecordsRead(0, 500, [], [], 0))
    assert play.core.cursor == 500


def test_truncation_ends_everything_below_the_log_start_that_is_not_in_flight() -> None:
    play = Playbook().join("c1").produce(b"a", b"b", b"a", b"c", b"a")
    assert play.acquire("c1") == [0, 1, 3]
    play.ack("c1", 3, AckType.RELEASE)
    play.on(LogTruncated(4, play.now_ms))
    assert (play.core.cursor, play.notices()) == (0, {Notice.TRUNCATED: 2}), "2 and 3"
    assert play.ack("c1", 3) == [None], "nothing is wrong with it"
    assert play.acquire("c1") == [], "0 is of the same key"
    assert play.ack("c1", [0, 1]) == [None, None]
    assert play.core.cursor == 4
    assert play.acquire("c1") == [4]
    assert play.stored.leases[0].offsets == [4]
    assert play.stored.retries == []


@pytest.mark.parametrize("kind", [AckType.RELEASE, AckType.REJECT, AckType.GAP])
def test_a_record_that_the_log_lost_in_flight_does_not_come_back(kind: AckType) -> None:
    play = Playbook(Policy(rejected=PoisonPolicy.BLOCK)).join("c1").produce(b"a", b"b", b"a")
    play.acquire("c1", 1)
    play.on(LogTruncated(2, play.now_ms))
    play.on(LogTruncated(2, play.now_ms))
    assert play.acquire("c1") == []
    assert play.ack("c1", 0, kind) == [None]
    assert play.notices()[Notice.TRUNCATED] == 1
    assert (play.core.cursor, play.stored.retries) == (2, [])
    assert play.acquire("c1") == [2]


def test_nothing_of_a_key_goes_out_beside_a_record_that_the_log_lost() -> None:
    """Another member had the key by then, and got the later record while the first one's was at
    work.
    """
    play = Playbook().join("c1", "c2")
    mine = play.keys_of("c2")[0]
    play.leave("c2").produce(mine, b"other", mine)
    assert play.acquire("c1") == [0, 1]
    play.join("c2").on(LogTruncated(2, play.now_ms))
    assert play.acquire("c2") == []
    play.wait(Policy().lock_duration_ms)
    assert play.acquire("c2") == [2]
    assert play.ack("c1", 0) == [None], "late, and nothing is wrong with it"


def test_a_run_of_a_key_that_the_log_lost_in_part() -> None:
    play = Playbook(Policy(prefetch_per_key=3)).join("c1").produce(*[b"a"] * 5)
    assert play.acquire("c1") == [0, 1, 2]
    play.ack("c1", 1, AckType.RELEASE)
    play.on(LogTruncated(4, play.now_ms))
    assert (play.core.cursor, play.notices()) == (0, {Notice.TRUNCATED: 2}), "1 and 3"
    assert play.ack("c1", [0, 2]) == [None, None]
    assert play.acquire("c1") == [4]


def test_truncation_beyond_what_was_read() -> None:
    """However far: retention may have passed a window that nobody read for weeks."""
    far = 1_000_000_000_000
    play = Playbook().join("c1").produce(b"a")
    play.on(LogTruncated(far, play.now_ms)).expect(ReadOn(far, 16_384))
    assert play.core.read_position == far
    assert play.notices() == {Notice.TRUNCATED: far}, "the one that was read, and all others"
    assert play.on(LogTruncated(5, play.now_ms)).step.changes == []


def test_truncation_of_what_was_never_read_loses_what_is_not_known_to_be_settled() -> None:
    play = Playbook(snapshot=Snapshot(cursor=0, settled=[(2, 4)])).join("c1")
    play.on(LogTruncated(7, play.now_ms))
    assert play.notices() == {Notice.TRUNCATED: 4}, "0, 1, 5 and 6"


def test_truncation_up_to_what_is_being_read_asks_for_no_second_read() -> None:
    play = Playbook().join("c1").produce(b"a").expect(ReadOn(1, 16_383))
    assert play.on(LogTruncated(1, play.now_ms)).read_on() == []


def test_a_log_start_below_the_cursor_says_nothing() -> None:
    """The rings are full: places of records below the cursor are others' by now."""
    play = Playbook(Policy(span_max=64)).join("c1").hole(5).produce(*[None] * 64)
    assert play.on(LogTruncated(4, play.now_ms)).step.changes == []
    assert play.core.cursor == 5


def test_truncation_of_what_a_restart_has_not_read_again() -> None:
    play = Playbook().join("c1").produce(b"a", b"b", b"c")
    play.acquire("c1")
    play.ack("c1", 1, AckType.RELEASE)
    play.restart().on(LogTruncated(2, play.now_ms))
    assert play.notices() == {Notice.TRUNCATED: 1}
    assert [lease.offsets for lease in play.stored.leases] == [[0, 2]]
    play.join("c1").read()
    assert play.ack("c1", [0, 2]) == [None, None]
    assert play.core.cursor == 3


def test_truncation_of_what_was_not_read_since_a_restart() -> None:
    """0 and 3 were settled, 1 never handed out, 2 and 4 are leased, 5 was never read."""
    play = Playbook().join("c1").produce(b"a", b"a", b"c", b"d", b"e", b"f")
    play.acquire("c1", 4)
    play.ack("c1", 0)
    play.ack("c1", 3)
    play.restart().on(LogTruncated(6, play.now_ms))
    assert play.notices() == {Notice.TRUNCATED: 2}
    assert play.core.cursor == 2
    play.join("c1").produce(b"g").read()
    assert play.acquire("c1") == [], "it may be of the key of 2, or of 4"
    assert play.ack("c1", 2) == [None]
    assert play.acquire("c1") == []
    assert play.ack("c1", 4) == [None]
    assert play.acquire("c1") == [6]


def test_a_key_that_comes_back_begins_anew() -> None:
    play = Playbook().join("c1").produce(b"a")
    play.acquire("c1")
    play.ack("c1", 0)
    play.produce(b"a", b"a")
    assert play.acquire("c1") == [1]
    play.ack("c1", 1)
    assert play.acquire("c1") == [2]


def test_a_record_follows_nothing_that_had_its_place_before() -> None:
    """0 and 1 are of one key; 64 lies where 0 was."""
    play = Playbook(Policy(span_max=64)).join("c1").produce(b"a", b"a")
    for offset in range(2):
        assert play.acquire("c1") == [offset]
        play.ack("c1", offset)
    play.produce(*[None] * 62, b"z")
    play.acquire("c1")
    play.ack("c1", 64)
    assert play.produce(b"z").acquire("c1") == [65]


def test_what_is_read_up_to_a_leased_record_leaves_it_alone() -> None:
    play = Playbook().join("c1").produce(b"a", b"b", b"c")
    play.acquire("c1")
    play.restart().join("c1").on(RecordsRead(0, 2, [0, 1], [b"a", b"b"], play.now_ms))
    assert play.ack("c1", 2) == [None]


def test_a_retry_that_compaction_took_is_forgotten_when_read_again() -> None:
    play = Playbook().join("c1").produce(b"a", b"b")
    play.acquire("c1")
    play.ack("c1", 0, AckType.RELEASE)
    play.restart()
    del play.log[0]
    play.join("c1").read()
    assert (play.core.cursor, play.stored.retries) == (1, [])
    play.expect(Noticed(Notice.TRUNCATED, 1, offset=0))


def test_what_compaction_took_is_forgotten_in_the_order_of_the_log() -> None:
    play = Playbook().join("c1").produce(*[b"%d" % at for at in range(9)])
    play.acquire("c1")
    play.ack("c1", [8, 1], AckType.RELEASE)
    play.ack("c1", [0, *range(2, 8)])
    play.restart()
    del play.log[1], play.log[8]
    play.join("c1").read().persists(RetriesForgotten([1, 8]), CursorMoved(9, 9))
    play.expect(Noticed(Notice.TRUNCATED, 2, offset=1))


def compacted_in_flight() -> Playbook:
    """0 is in flight and gone from the log, as 2 has its key. Nobody knows that since a restart."""
    play = Playbook().join("c1").produce(b"a", b"b", b"a", b"c", None)
    assert play.acquire("c1", 1) == [0]
    play.restart()
    del play.log[0]
    return play.join("c1").read()


def test_a_leased_record_that_compaction_took_holds_all_keys_until_it_is_acknowledged() -> None:
    """The later value of its key went to another member, which was done with it first."""
    play = compacted_in_flight()
    assert (play.core.cursor, play.core.read_position) == (0, 5)
    assert play.acquire("c1") == [4], "it has no key"
    play.restart().join("c1").read()
    assert play.acquire("c1") == []
    assert play.ack("c1", 0) == [None]
    assert play.acquire("c1") == [1, 2, 3]
    assert play.core.cursor == 1


def test_a_leased_record_that_compaction_took_holds_all_keys_until_its_lock_ends() -> None:
    play = compacted_in_flight()
    play.wait(Policy().lock_duration_ms)
    assert play.notices()[Notice.TRUNCATED] == 1
    assert (play.core.cursor, play.stored.retries) == (1, [])
    assert play.acquire("c1") == [1, 2, 3, 4]


def test_several_leased_records_that_compaction_took() -> None:
    """Aside and in the rings: all keys wait for the last of them."""
    play = Playbook(Policy(span_max=64)).join("c1").produce(*[b"%d" % at for at in range(64)])
    assert play.acquire("c1") == [*range(64)]
    play.ack("c1", [*range(1, 40), *range(41, 63)])
    play.produce(*[b"%d" % at for at in range(64, 100)])
    assert play.core.front > 0, "0 is aside"
    play.restart()
    del play.log[0], play.log[40], play.log[63]
    play.join("c1").read()
    for offset in (40, 0, 63):
        assert play.acquire("c1") == []
        assert play.ack("c1", offset) == [None]
    assert play.acquire("c1") == [*range(64, 100)]


def test_a_parked_record_that_compaction_took_is_told_when_it_is_missed() -> None:
    """It stood in nobody's way, so its offset is the only trace of it."""
    play = Playbook(Policy(span_max=64, rejected=PoisonPolicy.BLOCK)).join("c1").produce(b"a", b"b")
    play.acquire("c1")
    play.ack("c1", 0, AckType.REJECT)
    play.ack("c1", 1)
    play.restart()
    del play.log[0]
    play.produce(b"c").join("c1").read()
    assert play.core.held().parked == 0
    play.expect(Noticed(Notice.TRUNCATED, 1, offset=0))
    play.on(OperatorAct(OperatorVerb.SKIP, [0], play.now_ms))
    assert play.notices() == {}


@pytest.mark.parametrize("end", [AckType.ACCEPT, AckType.RELEASE, AckType.REJECT, None])
def test_other_records_wait_for_who_works_on_a_lost_tail(end: AckType | None) -> None:
    """Nothing of it goes out any more. What takes its offsets, of the same keys perhaps, is read
    when all that is in flight of it has ended.
    """
    play = Playbook(Policy(backoff_base_ms=0, exhausted=PoisonPolicy.DROP)).join("c1", "c2")
    (a, b), (c,) = play.keys_of("c1", 2), play.keys_of("c2")
    play.produce(a, c, b, b, c)
    assert play.acquire("c1") == [0, 2]
    play.on(LogCut(2, play.now_ms))
    assert not play.step.effects
    assert play.acquire("c2") == [1], "4 is lost"
    play.ack("c2", 1)
    play.ack("c1", 0)
    assert play.effects(TailDone) + play.effects(ReadOn) == [], "2 is at work"
    assert play.acquire("c2") == []
    if end is None:
        play.wait(play.policy.lock_duration_ms)
    else:
        play.ack("c1", 2, end)
    play.expect(TailDone())
    assert play.acquire("c1") == play.acquire("c2") == []
    assert play.read_on() == []


def test_a_run_of_a_key_ends_where_its_tail_is_lost() -> None:
    play = Playbook(Policy(prefetch_per_key=4)).join("c1").produce(b"a", b"a", b"a", b"b")
    assert play.acquire("c1", 1) == [0]
    play.on(LogCut(2, play.now_ms))
    assert play.acquire("c1") == [1]


def test_what_the_log_lost_before_it_was_sent_is_truncated() -> None:
    play = Playbook().join("c1").produce(b"a", b"a", b"b", b"c")
    assert play.acquire("c1") == [0, 2, 3]
    play.on(Gone(MemberId("c1"), SessionId("other"), [0, 3], play.now_ms))
    del play.log[0], play.log[3]
    play.on(Gone(MemberId("c1"), SessionId("s1"), [0, 3, 99], play.now_ms))
    play.expect(Noticed(Notice.TRUNCATED, 2, offset=0))
    assert play.stored.leases[0].offsets == [2]
    assert play.acquire("c1") == [1], "the next record of its key"
    assert play.ack("c1", [1, 2]) == [None, None]
    assert play.core.cursor == 4


def test_a_window_keeps_little_of_long_keys_and_tells_them_apart() -> None:
    """Kafka takes keys of 1 MB: those of a span were 16 GB."""
    one, other = b"k" * 100_000 + b"1" + b"k" * 1_000, b"k" * 100_000 + b"2" + b"k" * 1_000
    play = Playbook().join("c1").produce(one, other, one)
    assert [len(key) for key in play.core.unsettled_keys()] == [KEY_BYTES_MAX + 1] * 2
    assert play.acquire("c1") == [0, 1]
    play.ack("c1", 0)
    assert play.acquire("c1") == [2]


def test_a_long_key_aside_is_the_same_key_when_it_is_read_again() -> None:
    long = b"k" * 5_000
    play = Playbook(Policy(span_max=2, rejected=PoisonPolicy.BLOCK)).join("c1").produce(long, b"b")
    assert play.acquire("c1") == [0, 1]
    play.ack("c1", 0, AckType.REJECT)
    play.ack("c1", 1)
    play.produce(b"c", long)
    play.restart().join("c1").read()
    assert play.acquire("c1") == [2], "the parked record holds its key"
    play.on(OperatorAct(OperatorVerb.RETRY, [0], play.now_ms))
    assert play.acquire("c1") == [0]
