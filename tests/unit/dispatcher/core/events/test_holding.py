"""Records that wait for those of their key in another window (dispatcher/core/hold.py)."""

from __future__ import annotations

from dispatcher.core.hold import HELD_WHOLE, Hold, HoldMoved
from dispatcher.core.life.life import WindowLife
from dispatcher.core.model import Member, MemberId, Policy
from dispatcher.core.routing.hashes import key_hash32
from dispatcher.core.steps import MembersReady, Snapshot
from tests.rig.playbook import Playbook

C1 = MemberId("c1")


def held(play: Playbook, hold: Hold | None) -> Playbook:
    return play.on(HoldMoved(hold, play.now_ms))


def hashes(*keys: bytes) -> frozenset[int]:
    return frozenset(int(key_hash32(key)) for key in keys)


def test_a_window_that_is_held_whole_gives_out_records_without_key_alone() -> None:
    play = held(Playbook(), HELD_WHOLE).join("c1").produce(b"a", None, b"b")
    assert play.acquire("c1") == [1]
    held(play, None).expect(MembersReady([C1]))
    assert play.acquire("c1") == [0, 2]


def test_only_keys_with_earlier_records_elsewhere_wait() -> None:
    play = held(Playbook(), HELD_WHOLE).join("c1").produce(b"a", b"b", b"a", b"c")
    held(play, Hold(4, hashes(b"a")))
    assert play.acquire("c1") == [1, 3]
    held(play, Hold(4)).expect(MembersReady([C1]))
    assert play.acquire("c1") == [0]
    play.ack("c1", 0)
    assert play.acquire("c1") == [2], "one of a key at a time, as ever"


def test_records_that_came_later_wait_also_of_keys_that_are_free() -> None:
    play = held(Playbook(), Hold(2)).join("c1").produce(b"a", b"b", b"a")
    assert play.acquire("c1") == [0, 1]
    play.ack("c1", 0)
    assert play.acquire("c1") == []
    held(play, Hold(3))
    assert play.acquire("c1") == [2]


def test_a_run_of_one_key_ends_where_records_wait() -> None:
    play = Playbook(Policy(prefetch_per_key=8))
    held(play, Hold(2)).join("c1").produce(b"a", b"a", b"a", b"a")
    assert play.acquire("c1") == [0, 1]
    held(play, Hold(3))
    assert play.acquire("c1") == [2]


def test_a_key_that_was_free_waits_again_when_a_late_record_of_it_has_come() -> None:
    play = held(Playbook(), Hold(1)).join("c1").produce(b"a")
    held(play, Hold(1, hashes(b"a")))
    assert play.acquire("c1") == []


def test_a_held_window_passes_to_a_member_that_joins() -> None:
    play = held(Playbook(), Hold(0)).join("c1").produce(b"a", b"b").join("c2")
    assert play.acquire("c1") + play.acquire("c2") == []
    held(play, None)
    assert sorted(play.acquire("c1") + play.acquire("c2")) == [0, 1]


def test_records_that_are_out_stay_out() -> None:
    play = Playbook().join("c1").produce(b"a", b"a")
    assert play.acquire("c1") == [0]
    held(play, HELD_WHOLE)
    assert play.ack("c1", 0) == [None]
    assert play.acquire("c1") == []


def test_the_keys_of_unsettled_records_are_known_once_they_are_read_again() -> None:
    play = Playbook().join("c1").produce(b"a", b"b", b"a")
    assert play.core.keys_known_to == 3
    assert play.core.first_unsettled() == [(b"a", 0), (b"b", 1)]
    assert play.acquire("c1") == [0, 1]
    play.restart()
    assert play.core.keys_known_to == 0
    play.join("c1").read()
    assert play.core.keys_known_to == 3


def test_a_life_is_held_from_its_first_member_on() -> None:
    life = WindowLife()
    life.start()
    members = (Member(C1),)
    commands = life.loaded(
        Policy(), Snapshot(0), members, 1_000, fence=1, origin=1, hold=HELD_WHOLE
    )
    events = [getattr(command, "event", None) for command in commands]
    assert events[0] == HoldMoved(HELD_WHOLE, 1_000)
    assert len(events) == 2


def test_an_unreliable_group_is_not_held() -> None:
    play = held(Playbook(Policy(reliable=False)), HELD_WHOLE).join("c1").produce(b"a")
    assert play.acquire("c1") == [0]
