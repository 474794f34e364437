"""A window rebuilt from the store, or from Kafka's commit metadata alone."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from dispatcher.core import dispatcher
from dispatcher.core.dispatcher import Dispatcher
from dispatcher.core.events.room import room
from dispatcher.core.model import (
    AckError,
    Acknowledge,
    AckType,
    Key,
    LeaseId,
    LogTruncated,
    Member,
    MemberId,
    MembersChanged,
    Policy,
    Reason,
    RecordsRead,
    SessionId,
)
from dispatcher.core.steps import LeaseEnded, LeaseState, ReadOn, RetryNoted, RetryState, Snapshot
from dispatcher.core.stored.snapshot import StoredWindow, apply_changes
from tests.rig.playbook import Playbook

WAITING = RetryState.WAITING


def crashed() -> Playbook:
    play = Playbook().join("c1").produce(b"a", b"b", b"a", b"b", b"c")
    assert play.acquire("c1") == [0, 1, 4]
    play.ack("c1", 4)
    return play.restart()


def test_acknowledgements_are_taken_before_the_records_are_read_again() -> None:
    play = crashed()
    assert play.ack("c1", 1) == [None]
    assert play.ack("c1", 1) == [AckError.INVALID_RECORD_STATE]
    assert play.core.settled_ranges() == [(1, 1), (4, 4)]
    play.join("c1").read()
    assert play.acquire("c1") == [3], "0 is still held, 1 and 4 are settled"


def test_the_cursor_overtakes_a_read_under_way_and_another_is_asked_for() -> None:
    play = Playbook().join("c1").produce(b"a", b"b", b"c")
    play.acquire("c1")
    play.ack("c1", [1, 2])
    play.restart().join("c1").expect(ReadOn(0, 16_384))
    play.ack("c1", 0)
    play.expect(ReadOn(3, 16_384))


def test_a_release_before_the_record_is_read_again() -> None:
    play = crashed()
    play.ack("c1", 0, AckType.RELEASE)
    play.join("c1").read()
    assert play.acquire("c1") == []
    assert play.wait(1_000).acquire("c1") == [0]
    assert play.delivered().attempts == [2]


def test_live_leases_hold_their_keys_against_other_members() -> None:
    play = crashed().join("c2").read()
    assert play.acquire("c2") == []
    assert play.wait(2_999).acquire("c2") == []
    assert play.wait(1).acquire("c2") == [0, 1], "c1 did not show up within the grace"


def test_a_holder_that_shows_up_keeps_its_leases() -> None:
    play = crashed().join("c1").read()
    play.wait(29_000)
    assert play.ack("c1", [0, 1]) == [None, None]


def test_leases_of_one_that_came_back_and_left() -> None:
    play = crashed().join("c1", "c2").read().leave("c1")
    assert play.acquire("c2") == [0, 1]


def test_attempts_survive() -> None:
    play = Playbook(Policy(deliveries_max=5, backoff_base_ms=1)).join("c1").produce(b"k")
    for _ in range(3):
        play.acquire("c1")
        play.ack("c1", 0, AckType.RELEASE)
        play.wait(100)
    play.restart().join("c1").read()
    sends = 0
    while play.acquire("c1"):
        sends += 1
        play.ack("c1", 0, AckType.RELEASE)
        play.wait(100)
    assert sends == 2
    assert play.core.stats().parked[0].deliveries == 5


def test_lease_ids_are_not_reused_and_stale_leases_end() -> None:
    snapshot = Snapshot(
        cursor=5,
        settled=[(7, 7)],
        leases=[
            LeaseState(LeaseId(3), MemberId("c1"), SessionId("s1"), 9_000, [4, 7]),
            LeaseState(LeaseId(6), MemberId("c1"), SessionId("s1"), 9_000, [5, 6]),
            LeaseState(LeaseId(8), MemberId("c1"), SessionId("s1"), 9_900, [6]),
        ],
    )
    play = Playbook(snapshot=apply_changes(snapshot, []))
    assert [lease.offsets for lease in play.core.snapshot().leases] == [[5], [6]]
    play.wait(0).persists(LeaseEnded(LeaseId(3)))
    play.log = dict.fromkeys(range(5, 10), None)
    play.log_end = 10
    play.join("c1").read()
    assert play.acquire("c1") == [8, 9]
    assert play.stored.leases[-1].lease_id == 9


def test_a_retry_in_flight_without_a_lease_goes_out_again() -> None:
    noted = RetryNoted(0, 2, 500, RetryState.IN_FLIGHT, Reason.RELEASED, MemberId("c1"))
    play = Playbook(snapshot=Snapshot(cursor=0, retries=[noted]))
    play.join("c1").produce(b"k")
    assert play.acquire("c1") == [0]
    assert play.delivered().attempts == [3]


def test_from_commit_metadata_alone() -> None:
    play = Playbook(snapshot=Snapshot(cursor=10, settled=[(10, 10), (12, 13), (400, 450)]))
    assert play.core.cursor == 11
    play.join("c1").produce()
    play.log = {offset: b"%d" % offset for offset in range(10, 452)}
    play.log_end = 452
    play.read()
    assert play.acquire("c1") == [11, *range(14, 400), 451]


@pytest.mark.parametrize(
    "snapshot",
    [
        Snapshot(5, settled=[(6, 6)]),
        Snapshot(5, leases=[LeaseState(LeaseId(1), MemberId("c1"), SessionId("s1"), 9_000, [6])]),
        Snapshot(5, retries=[RetryNoted(6, 1, 0, WAITING, Reason.RELEASED, MemberId("c1"))]),
    ],
)
def test_a_long_hole_behind_all_that_was_known_is_passed_at_once(snapshot: Snapshot) -> None:
    play = Playbook(Policy(span_max=16), snapshot).on(LogTruncated(7, 1_000)).join("c1")
    play.on(RecordsRead(7, 10_000_001, [10_000_000], [b"a"], 1_000))
    assert (play.core.front, play.core.read_position) == (10_000_000, 10_000_001)


def test_snapshot_of_a_fresh_window() -> None:
    assert Dispatcher(Policy(), Snapshot(cursor=3)).snapshot() == Snapshot(cursor=3)


@pytest.mark.parametrize("prefetch", [1, 2])
@pytest.mark.parametrize("span_max", [1, 4, 64])
def test_a_span_of_another_size_reads_again_what_keys_wait_for(
    prefetch: int, span_max: int
) -> None:
    """With prefetch no key goes on before: records in flight, and failed ones, lie behind the end
    of a smaller span.
    """
    play = Playbook(Policy(span_max=32, prefetch_per_key=prefetch)).join("c1", "c2")
    play.produce(*play.keys_of("c1", 20), *play.keys_of("c2", 12))
    play.acquire("c2")
    play.ack("c2", 25, AckType.RELEASE)
    play.policy = Policy(span_max=span_max, prefetch_per_key=prefetch)
    play.restart().join("c1", "c2")
    for _ in range(200):
        while play.core._state.reading and play.core.read_position < play.log_end:
            start = play.core.read_position
            play.read_part(start, min(start + room(play.core._state), play.log_end))
        for name in ("c1", "c2"):
            if offsets := play.acquire(name, session="s2"):
                play.acks(name, [(o, o, b"\1") for o in offsets], session="s2")
        play.wait(500)
    assert play.core.cursor == 32


@pytest.mark.skipif(dispatcher.__file__.endswith(".so"), reason="compiled calls are not seen")
def test_a_window_with_many_records_aside_is_put_together_by_stretches() -> None:
    """It is loaded in one step, and may have a million of them."""
    stored = StoredWindow(0, 512 * 40)
    stored.aside = dict.fromkeys(range(40), b"U" * 64)
    calls = 0

    def called(_frame: FrameType, what: str, _argument: object) -> None:
        nonlocal calls
        calls += what == "call"

    sys.setprofile(called)
    try:
        core = Dispatcher(Policy(), stored.snapshot())
    finally:
        sys.setprofile(None)
    assert core.stats().aside == 256 * 40
    assert calls < 256 * 40 // 10


def test_a_read_that_has_no_room_any_more_does_not_set_the_position_back() -> None:
    """With prefetch all that is leased is read again, beyond the span. The rest of it is
    acknowledged while a read is on its way. Records that were read twice went out twice.
    """
    lease = LeaseState(LeaseId(1), MemberId("c1"), SessionId("s1"), 9_000, [0, 9])
    core = Dispatcher(Policy(span_max=4, prefetch_per_key=2), Snapshot(0, leases=[lease]))
    keys: list[Key] = [b"key-%d" % at for at in range(10)]
    core.handle(MembersChanged((Member(MemberId("c1")),), 1))
    core.handle(RecordsRead(0, 8, [*range(8)], keys[:8], 1))
    core.handle(Acknowledge(MemberId("c1"), SessionId("s1"), [(9, 9, b"\1")], 1))
    core.handle(RecordsRead(8, 10, [8, 9], keys[8:], 1))
    core.check_invariants()
    assert core.read_position == 8
