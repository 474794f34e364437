"""Unreliable groups: settled when sent, dropped when the member is saturated, counted, in order."""

from __future__ import annotations

import pytest

from dispatcher.core.limits import KEY_BYTES_MAX
from dispatcher.core.model import (
    AckError,
    Acknowledge,
    AckType,
    LogTruncated,
    MemberId,
    NotSent,
    Policy,
    RecordsRead,
    SessionId,
)
from dispatcher.core.reports.stats import Held, MemberStats, WindowStats
from dispatcher.core.steps import AckResult, MembersReady, Notice, Noticed, ReadOn, Snapshot
from tests.rig.playbook import Playbook


def lossy(cap: int = 1_000, span: int = 16_384) -> Policy:
    return Policy(reliable=False, in_flight_per_member_max=cap, span_max=span)


def wished(play: Playbook) -> list[tuple[int, int]]:
    return play.read_on()


def test_what_is_sent_is_settled_whatever_is_acknowledged() -> None:
    play = Playbook(lossy()).join("c1").produce(b"a", b"a", b"b")
    play.expect(MembersReady([MemberId("c1")]))
    assert play.acquire("c1", 2) == [0, 1], "two of a key at once: nothing is in flight"
    assert play.delivered().attempts == [1, 1]
    assert play.notices() == {Notice.SENT: 2}
    assert play.core.cursor == 2
    for kind in AckType:
        assert play.ack("c1", [0, 1, 7], kind) == [None] * 3
    assert play.ack("stranger", [2]) == [None]
    assert play.acquire("c1") == [2]
    assert (play.core.cursor, play.core.stats().unsettled) == (3, 0)
    assert play.acquire("c1") == []


@pytest.mark.parametrize(
    "batch", [(-1, 3, b"\1"), (5, 4, b"\1"), (0, 2, b"\1\1"), (0, 0, b"\5"), (0, 1, b"\5\1")]
)
def test_malformed_acknowledgements_are_refused(batch: tuple[int, int, bytes]) -> None:
    play = Playbook(lossy()).join("c1").produce(b"a")
    play.acquire("c1")
    event = Acknowledge(MemberId("c1"), SessionId("s1"), [batch], play.now_ms)
    assert play.acks("c1", event.batches) == [AckError.INVALID_REQUEST]


def test_of_a_long_key_little_waits() -> None:
    play = Playbook(lossy()).join("c1", "c2").produce(b"k" * 100_000, b"a", b"k" * 100_000)
    assert [len(key) for key in play.core.unsettled_keys()] == [KEY_BYTES_MAX + 1, 1]
    play.leave("c1")
    assert play.acquire("c2") == [0, 1, 2], "the same key, also when it is given to another"


def test_no_key_drains() -> None:
    play = Playbook(lossy()).join("c1", "c2").produce(b"a", b"b", b"c")
    play.acquire("c1", 1)
    play.leave("c1")
    assert play.core.draining == (0, 0)
    assert (play.core.stats().draining, play.core.stats().draining_cleared) == ([], 0)


def test_a_type_beyond_what_the_request_may_have() -> None:
    play = Playbook(lossy()).join("c1").produce(b"a")
    batches = [(0, 0, b"\4"), (0, 0, b"\3")]
    event = Acknowledge(MemberId("c1"), SessionId("s1"), batches, play.now_ms, type_max=3)
    play.on(event).expect(AckResult([AckError.INVALID_REQUEST, None]))


def test_a_saturated_member_loses_what_comes_and_others_do_not() -> None:
    play = Playbook(lossy(cap=10)).join("slow", "quick")
    slow, quick = play.keys_of("slow")[0], play.keys_of("quick")[0]
    play.produce(*[slow, quick] * 10)
    assert play.acquire("quick") == list(range(1, 20, 2))
    play.produce(*[slow, quick] * 10)
    assert play.notices() == {Notice.UNDELIVERED: 10}
    assert play.acquire("quick") == list(range(21, 40, 2))
    stats = play.core.stats()
    assert (stats.dropped, [m.dropped for m in stats.members]) == (10, [10, 0])
    assert play.acquire("slow") == list(range(0, 20, 2)), "the oldest wait, the newest were dropped"
    assert play.core.cursor == 40
    play.produce(slow)
    assert play.acquire("slow") == [40], "it has room again"
    assert [m.dropped for m in play.join("third").core.stats().members] == [10, 0, 0]


def test_a_smaller_limit_drops_the_newest_of_what_waits() -> None:
    play = Playbook(lossy(cap=10)).join("slow", "quick")
    slow, quick = play.keys_of("slow")[0], play.keys_of("quick")[0]
    play.produce(*[slow] * 7, quick, quick)
    assert play.acquire("slow", 2) == [0, 1]
    play.core.retune(lossy(cap=2))
    stats = play.core.stats()
    assert (stats.dropped, [m.dropped for m in stats.members]) == (3, [3, 0]), "at once"
    assert play.wait(500).notices() == {Notice.UNDELIVERED: 3, Notice.SATURATED: 1}
    play.core.retune(lossy(cap=3))
    play.core.retune(lossy(cap=2))
    assert play.wait(500).notices() == {}, "it had no more to lose"
    assert play.acquire("slow") == [2, 3], "the oldest"
    assert play.acquire("quick") == [7, 8]
    assert play.core.cursor == 9
    assert play.produce(slow, slow, slow).notices() == {Notice.UNDELIVERED: 1}


def test_saturation_is_said_once_until_there_is_room_again() -> None:
    play = Playbook(lossy(cap=4)).join("c1")
    assert play.wait(500).notices() == {}
    play.produce(*[b"k"] * 6)
    said = [n for n in play.wait(500).notices() if n is Notice.SATURATED]
    play.produce(b"k")
    assert said == [Notice.SATURATED]
    assert play.wait(500).notices() == {}
    play.acquire("c1")
    play.wait(500)
    play.produce(*[b"k"] * 6)
    assert play.wait(500).notices() == {Notice.SATURATED: 1}


def test_who_comes_gets_no_later_record_of_a_key_before_an_earlier_one() -> None:
    play = Playbook(lossy()).join("c1", "c2")
    moving, staying = play.keys_of("c2")[0], play.keys_of("c1")[0]
    play.leave("c2").produce(moving, staying, moving)
    play.join("c2").expect(MembersReady([MemberId("c2")])).produce(moving, staying)
    assert play.acquire("c2") == [0, 2, 3], "the ones that waited for the other, first"
    assert play.acquire("c1") == [1, 4]


def test_who_leaves_takes_nothing_along() -> None:
    play = Playbook(lossy(cap=3)).join("c1", "c2")
    one, two = play.keys_of("c1")[0], play.keys_of("c2")[0]
    play.produce(one, two, one, two)
    play.leave("c1")
    assert play.notices() == {Notice.UNDELIVERED: 1}, "the heir has room for three"
    assert play.acquire("c2") == [0, 1, 2]


def test_what_waits_for_nobody_is_read_again_for_whoever_comes_next() -> None:
    play = Playbook(lossy()).join("c1", "c2")
    one, two = play.keys_of("c1")[0], play.keys_of("c2")[0]
    play.produce(one, two, one, two)
    play.acquire("c1", 1)
    play.leave("c1").leave("c2")
    assert (play.core.cursor, play.core.read_position) == (1, 1)
    play.join("c3").read()
    assert play.acquire("c3") == [1, 2, 3]


def test_a_restart_sends_nothing_that_was_committed_as_sent() -> None:
    play = Playbook(lossy()).join("c1", "c2")
    one, two = play.keys_of("c1")[0], play.keys_of("c2")[0]
    play.produce(one, two, one, two, one).hole(2)
    assert play.core.settled_ranges() == [(5, 6)]
    play.acquire("c2")
    assert play.core.settled_ranges() == [(1, 1), (3, 3), (5, 6)]
    play.acquire("c1", 1)
    assert play.restart().stored == Snapshot(cursor=2, settled=[(3, 3), (5, 6)])
    play.join("c3").produce(two)
    assert play.acquire("c3") == [2, 4, 7]


def test_keys_that_nobody_accepts_are_skipped() -> None:
    play = Playbook(lossy()).join("c1", filters=(b"a*",)).produce(b"a", b"b")
    assert play.notices() == {Notice.SKIPPED: 1}
    assert play.acquire("c1") == [0]


def not_sent(play: Playbook, *offsets: int) -> Playbook:
    return play.on(NotSent(MemberId("c1"), SessionId("s1"), list(offsets), play.now_ms))


def test_records_that_could_not_be_sent_are_the_next_ones() -> None:
    """They had no room in the answer, or Kafka was away: the member has done nothing wrong."""
    play = Playbook(lossy()).join("c1").produce(b"a", b"b", b"a", b"c")
    assert play.acquire("c1", 3) == [0, 1, 2]
    assert not_sent(play, 1, 2).notices() == {}
    assert play.core.cursor == 1
    assert play.produce(b"b").acquire("c1") == [1, 2, 3, 4]
    assert play.notices() == {Notice.SENT: 2}, "the others were counted before"
    assert play.core.cursor == 5


def test_a_member_that_waits_is_woken_for_what_could_not_be_sent() -> None:
    play = Playbook(lossy()).join("c1").produce(b"a")
    play.acquire("c1")
    not_sent(play, 0).expect(MembersReady([MemberId("c1")]))


def test_what_could_not_be_sent_is_dropped_once_it_would_be_late() -> None:
    """Another member may have been sent a later record of the key meanwhile."""
    play = Playbook(lossy()).join("c1").produce(b"a", b"b")
    play.acquire("c1")
    play.join("c2").leave("c2")
    assert not_sent(play, 0, 1).notices() == {Notice.UNDELIVERED: 2}
    assert play.acquire("c1") == []


def test_what_could_not_be_sent_waits_in_the_bounds_of_all_that_waits() -> None:
    play = Playbook(lossy(cap=3, span=6)).join("c1").produce(*[b"k"] * 3)
    assert play.acquire("c1") == [0, 1, 2]
    play.produce(*[b"k"] * 2)
    assert not_sent(play, 0, 1, 2).notices() == {Notice.UNDELIVERED: 2}, "room for three"
    assert play.acquire("c1") == [0, 1, 2]
    play.produce(*[b"k"] * 3).acquire("c1")
    play.produce(b"k", b"k", b"k")
    play.acquire("c1", 1)
    assert not_sent(play, 0).notices() == {Notice.UNDELIVERED: 1}, "long sent"


def test_retention_that_passed_what_waits() -> None:
    play = Playbook(lossy()).join("c1").produce(*[b"k"] * 5)
    play.on(LogTruncated(3, play.now_ms))
    assert play.notices() == {Notice.TRUNCATED: 3}
    assert play.acquire("c1") == [3, 4]
    play.on(LogTruncated(9, play.now_ms)).expect(ReadOn(9, 1_000))
    assert play.core.cursor == 9


def test_a_backlog_is_read_at_the_pace_of_the_members() -> None:
    """The log has 100 records when the first member comes; it may have 10 waiting."""
    play = Playbook(lossy(cap=10))
    play.log.update(dict.fromkeys(range(100), b"k"))
    play.log_end = 100
    play.join("c1")
    taken: list[int] = []
    while wished(play):
        ((start, offsets_max),) = wished(play)
        end = min(start + offsets_max, 100)
        keys = [play.log[offset] for offset in range(start, end)]
        offsets = list(range(start, end))
        play.on(RecordsRead(start, end, offsets, list(keys), play.now_ms, 100))
        assert wished(play) == [] or end == 100
        play.wait(500)
        taken += play.acquire("c1")
        if len(taken) == 100:
            break
    assert taken == list(range(100))
    assert play.core.stats().dropped == 0


def test_from_then_on_what_the_log_has_while_nobody_has_room_is_dropped_at_the_tick() -> None:
    play = Playbook(lossy(cap=10)).join("c1").produce(b"k")
    play.acquire("c1")
    play.wait(500)
    play.on(RecordsRead(1, 11, list(range(1, 11)), [b"k"] * 10, play.now_ms, 11))
    assert wished(play) == []
    assert wished(play.wait(500)) == [(11, 16_384)]
    play.on(RecordsRead(11, 31, list(range(11, 31)), [b"k"] * 20, play.now_ms, 31))
    assert play.notices() == {Notice.UNDELIVERED: 20}
    assert play.acquire("c1") == list(range(1, 11))


def test_a_log_that_runs_away_is_followed_whether_or_not_there_is_room() -> None:
    play = Playbook(lossy(cap=10, span=64)).join("c1").produce(b"k")
    play.on(RecordsRead(1, 5, [1, 2, 3, 4], [b"k"] * 4, play.now_ms, 69))
    assert wished(play) == [(5, 5)], "64 behind"
    play = Playbook(lossy(cap=10, span=64)).join("c1").produce(b"k")
    play.on(RecordsRead(1, 5, [1, 2, 3, 4], [b"k"] * 4, play.now_ms, 70))
    assert wished(play) == [(5, 64)], "65 behind"
    play.on(RecordsRead(5, 69, list(range(5, 69)), [b"k"] * 64, play.now_ms, 70))
    assert play.notices()[Notice.UNDELIVERED] == 64, "the waiting ones are out of the span by now"
    assert play.acquire("c1") == [5, 6, 7, 8, 9]


def test_nothing_waits_longer_than_the_span() -> None:
    play = Playbook(lossy(cap=10, span=8)).join("slow", "quick")
    slow, quick = play.keys_of("slow")[0], play.keys_of("quick")[0]
    play.produce(slow, slow, *[quick] * 6)
    play.acquire("quick")
    play.produce(quick)
    play.on(RecordsRead(8, 9, [8], [quick], play.now_ms, 9))
    assert play.core.cursor == 1
    assert play.core.stats().members[0].dropped == 1
    assert play.acquire("slow") == [1]


def test_a_member_is_woken_when_the_first_record_comes() -> None:
    play = Playbook(lossy()).join("c1", "c2")
    mine = play.keys_of("c1")[0]
    for _ in range(2):
        assert play.produce(mine).effects(MembersReady) == [MembersReady([MemberId("c1")])]
        assert play.produce(mine, mine).effects(MembersReady) == []
        ready = [play.core.ready_for(MemberId(name), 0) for name in ("c1", "c2", "c3")]
        assert ready == [3, 0, 0]
        play.acquire("c1")


def test_who_asks_for_nothing_gets_nothing() -> None:
    play = Playbook(lossy()).join("c1").produce(b"a")
    for records_max in (0, -1):
        assert play.acquire("c1", records_max) == []
        assert play.notices() == {}
    assert play.acquire("c1", 1) == [0]
    assert play.delivered().deadline_ms == play.now_ms + play.policy.lock_duration_ms


def test_what_an_operator_sees() -> None:
    play = Playbook(lossy(cap=4, span=64)).join("c1").produce(b"a", b"a", b"b", None, b"c", b"c")
    play.acquire("c1", 1)
    assert play.core.stats() == WindowStats(
        cursor=1,
        read_position=6,
        unsettled=3,
        keys=3,
        in_flight=0,
        backing_off=0,
        dead_lettering=0,
        parked=[],
        members=[MemberStats(MemberId("c1"), 3, 0, 0, 0, 0, dropped=2)],
        span_max=64,
        full_span=None,
        draining=[],
        last_sent=0,
        draining_cleared=0,
        individually_sent=[(4, 5)],
        dropped=2,
    )


def test_what_was_committed_as_sent_is_passed_over_however_it_is_read() -> None:
    stored = Snapshot(cursor=2, settled=[(3, 3), (5, 6)])
    play = Playbook(lossy(), stored).join("c1")
    for start, end in ((2, 3), (3, 6), (6, 8)):
        offsets = list(range(start, end))
        play.on(RecordsRead(start, end, offsets, [b"k"] * len(offsets), play.now_ms, 8))
        assert (3, 3) in play.core.settled_ranges()
    assert play.core.settled_ranges() == [(3, 3), (5, 6)]
    assert play.acquire("c1") == [2, 4, 7]
    assert (play.core.cursor, play.core.settled_ranges()) == (8, []), "passed ones are forgotten"
    play = Playbook(lossy(), stored).on(LogTruncated(6, 1_000))
    assert (play.core.cursor, play.core.settled_ranges()) == (6, [(6, 6)])


def test_retention_up_to_what_is_being_read_asks_for_no_second_read() -> None:
    play = Playbook(lossy()).join("c1").produce(b"k").expect(ReadOn(1, 999))
    play.acquire("c1")
    assert wished(play.on(LogTruncated(1, play.now_ms))) == []
    assert wished(play.wait(500)) == []


def test_what_the_log_has_when_somebody_comes_back_is_a_backlog() -> None:
    play = Playbook(lossy(cap=10, span=64)).join("c1").produce(b"k")
    play.on(RecordsRead(1, 2, [1], [b"k"], play.now_ms, 1_000))
    play.leave("c1").join("c2").expect(ReadOn(0, 10))
    play.on(RecordsRead(0, 10, list(range(10)), [b"k"] * 10, play.now_ms, 1_000))
    assert wished(play) == []
    assert wished(play.wait(500)) == []


def test_an_answer_that_brings_nothing_says_nothing_of_the_backlog() -> None:
    play = Playbook(lossy(cap=10)).join("c1").on(RecordsRead(0, 0, [], [], 1_000, 0))
    play.on(RecordsRead(0, 10, list(range(10)), [b"k"] * 10, play.now_ms, 1_000))
    assert wished(play.wait(500)) == []


def test_saturation_ends_when_half_of_the_room_is_free() -> None:
    play = Playbook(lossy(cap=10)).join("c1").produce(*[b"k"] * 11)
    play.wait(500).expect(Noticed(Notice.SATURATED, 1, "member c1 dropped 1"))
    play.acquire("c1", 4)
    play.wait(500).produce(*[b"k"] * 5)
    assert play.notices() == {Notice.UNDELIVERED: 1}
    assert play.wait(500).notices() == {}, "six waited"
    play.acquire("c1", 5)
    for _ in range(3):
        assert play.wait(500).notices() == {}
    play.produce(*[b"k"] * 6)
    play.wait(500).expect(Noticed(Notice.SATURATED, 1, "member c1 dropped 3"))


def test_what_somebody_who_left_was_not_sent_counts_too() -> None:
    play = Playbook(lossy()).join("c1", "c2").produce(b"a")
    play.leave("c1").on(NotSent(MemberId("c1"), SessionId("s1"), [0, 1], play.now_ms))
    assert play.notices() == {Notice.UNDELIVERED: 2}
    assert play.core.stats().dropped == 2


@pytest.mark.parametrize(
    ("waiting", "at_once", "at_the_tick"), [(4, 6, 6), (5, 5, 5), (6, 0, 4), (9, 0, 1)]
)
def test_how_much_is_read_on(waiting: int, at_once: int, at_the_tick: int) -> None:
    """Half of the room must be free, or any at a tick; there is one read at a time."""
    play = Playbook(lossy(cap=10)).join("c1")
    play.on(RecordsRead(0, waiting, list(range(waiting)), [b"k"] * waiting, 1_000, 100))
    assert wished(play) == [(waiting, at_once)] * bool(at_once)
    assert wished(play.wait(500)) == [(waiting, at_the_tick)] * (not at_once)
    assert wished(play.wait(500)) == []


def test_a_slow_member_holds_nobody_up() -> None:
    play = Playbook(lossy(cap=10)).join("c1", "c2")
    key = play.keys_of("c1")[0]
    play.on(RecordsRead(0, 6, list(range(6)), [key] * 6, 1_000, 100))
    assert wished(play) == [(6, 10)], "c2 has nothing"


def test_the_backlog_ends_with_its_last_record() -> None:
    play = Playbook(lossy(cap=10)).join("c1").produce(*[b"k"] * 10)
    assert wished(play) == []
    assert wished(play.wait(500)) == [(10, 16_384)]


def test_well_formed_acknowledgements_are_taken() -> None:
    play = Playbook(lossy()).join("c1")
    assert play.acks("c1", [(0, 2, b"\1\1\1"), (5, 6, b"\1\2"), (7, 9, b"\1")]) == [None] * 3


def test_nothing_is_held() -> None:
    play = Playbook(lossy()).join("c1").produce(b"a")
    play.acquire("c1")
    assert play.core.held() == Held(0, 0, 0, 0)
