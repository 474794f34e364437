"""Hung members: they are there, hold records, and ask for nothing."""

from __future__ import annotations

import pytest

from dispatcher.core.events.ticking import NEVER, NEXT_TICK
from dispatcher.core.model import AckError, JoinPolicy, MemberId, PoisonPolicy, Policy, Ticked
from dispatcher.core.routing.silence import HEARD_MS, NOT_SILENT_MS, Attention, fall_silent
from dispatcher.core.steps import MembersReady, Notice, Noticed
from tests.rig.playbook import Playbook

LOCK_MS = 30_000
POLICY = Policy(lock_duration_ms=LOCK_MS, backoff_base_ms=1_000, deliveries_max=5)


def silent(play: Playbook) -> list[str]:
    return [str(member.member_id) for member in play.core.stats().members if member.silent]


def tick(play: Playbook, ms: int, *waiting: str) -> Playbook:
    """Time passes; the fetches of `waiting` wait for records."""
    play.now_ms += ms
    return play.on(Ticked(play.now_ms, frozenset(MemberId(name) for name in waiting)))


def test_a_member_whose_lock_ran_out_gives_all_its_keys_away() -> None:
    play = Playbook(POLICY).join("hung", "alive")
    one, other = play.keys_of("hung", 2)
    play.produce(one, one, other)
    assert play.acquire("hung", 1) == [0]
    tick(play, LOCK_MS, "alive").expect(Noticed(Notice.SILENT, 1, "member hung"))
    play.expect(MembersReady([MemberId("alive")]))
    assert silent(play) == ["hung"]
    assert play.acquire("alive") == [2], "0 backs off, and 1 is behind it"
    play.produce(other)
    play.wait(1_000)
    assert play.acquire("alive") == [0]
    assert play.delivered().attempts == [2]
    play.ack("alive", [0, 2])
    assert play.acquire("alive") == [1, 3]


def test_a_member_that_does_not_fetch_for_a_lock_gives_its_keys_away() -> None:
    play = Playbook(POLICY).join("hung", "alive")
    (key,) = play.keys_of("hung")
    tick(play, LOCK_MS + 5_000, "alive")
    assert silent(play) == [], "nothing waits for it"
    assert play.core.due_ms() == NEVER
    play.produce(key)
    assert play.core.due_ms() <= play.now_ms
    tick(play, 0, "alive")
    assert silent(play) == ["hung"]
    assert play.acquire("alive") == [0]


def test_it_has_a_whole_lock_s_duration_since_it_was_heard() -> None:
    play = Playbook(POLICY).join("hung", "alive")
    play.produce(*play.keys_of("hung", 2))
    play.wait(1_000)
    play.acquire("hung", 1)
    play.ack("hung", 0)
    assert play.core.due_ms() == play.now_ms + LOCK_MS
    tick(play, LOCK_MS - 1, "alive")
    assert silent(play) == []
    tick(play, 1, "alive")
    assert silent(play) == ["hung"]


def test_no_key_goes_from_one_hung_member_to_the_next() -> None:
    """Nothing waited for the second."""
    play = Playbook(POLICY).join("hung", "alive", "too")
    play.produce(*play.keys_of("hung", 20))
    tick(play, LOCK_MS, "alive")
    assert silent(play) == ["hung", "too"]
    assert len(play.acquire("alive")) == 20


def test_deliveries_count_across_members() -> None:
    policy = Policy(
        lock_duration_ms=LOCK_MS,
        backoff_base_ms=1_000,
        deliveries_max=2,
        exhausted=PoisonPolicy.BLOCK,
    )
    play = Playbook(policy).join("one", "two", "three")
    (key,) = play.keys_of("one")
    play.produce(key)
    assert play.acquire("one") == [0]
    tick(play, LOCK_MS, "two", "three")
    tick(play, 1_000, "two", "three")
    (second,) = [name for name in ("two", "three") if play.core.ready_for(MemberId(name), 0)]
    assert play.acquire(second) == [0]
    tick(play, LOCK_MS)
    assert play.notices()[Notice.PARKED] == 1, "the second member hung, too"


def test_a_key_in_flight_stays_until_its_lock_ends() -> None:
    """Of the two leases of the hung member, the first ends a second earlier."""
    play = Playbook(POLICY).join("hung", "alive")
    one, other = play.keys_of("hung", 2)
    play.produce(one)
    play.acquire("hung")
    tick(play, 1_000)
    play.produce(other, other)
    play.acquire("hung")
    tick(play, LOCK_MS - 1_000, "alive")
    assert silent(play) == ["hung"]
    assert play.acquire("alive") == [], "1 is still in flight, and 2 waits for it"
    assert play.core.draining == (1, 0)
    assert play.ack("hung", 1) == [None]
    tick(play, 1)
    assert silent(play) == [], "it is back, and so is its key"
    assert play.acquire("hung") == [2]


@pytest.mark.parametrize("back_by", ["fetch", "late acknowledgement", "waiting fetch"])
def test_a_member_that_is_heard_again_gets_its_keys_back(back_by: str) -> None:
    play = Playbook(POLICY).join("hung", "alive")
    one, other = play.keys_of("hung", 2)
    play.produce(one, other)
    assert play.acquire("hung", 1) == [0]
    tick(play, LOCK_MS, "alive")
    assert play.acquire("alive") == [1]
    play.wait(1_000)
    assert silent(play) == ["hung"]
    if back_by == "fetch":
        assert play.core.ready_for(MemberId("hung"), play.now_ms) > 0, "so that it does acquire"
        assert play.acquire("hung", session="s2") == [], "a pass over the window waits for a tick"
    elif back_by == "late acknowledgement":
        assert play.ack("hung", 0) == [AckError.INVALID_RECORD_STATE]
    assert (play.core.due_ms() == NEXT_TICK) == (back_by != "waiting fetch")
    tick(play, 0, *["hung"] * (back_by == "waiting fetch"))
    play.expect(Noticed(Notice.HEARD_AGAIN, 1, "member hung"))
    assert silent(play) == []
    play.expect(MembersReady([MemberId("hung")]))
    assert play.acquire("hung", session="s2") == [0]
    play.produce(other)
    assert play.acquire("hung", session="s2") == [], "the other member has the key in flight"
    play.ack("alive", 1)
    assert play.acquire("hung", session="s2") == [2]


def test_a_member_at_work_may_let_a_lock_run_out() -> None:
    play = Playbook(POLICY).join("slow", "other")
    one, other = play.keys_of("slow", 2)
    play.produce(one, other)
    play.acquire("slow", 1)
    play.wait(LOCK_MS - HEARD_MS + 1)
    assert play.acquire("slow", 1) == [1]
    play.wait(HEARD_MS - 1)
    assert play.notices()[Notice.TIMED_OUT] == 1
    assert silent(play) == []
    assert play.core.due_ms() == play.now_ms + 1, "it is silent then, if it is not heard"
    assert play.core.ready_for(MemberId("slow"), play.now_ms) == 0
    assert play.core.due_ms() > play.now_ms + 1, "it asked for records"


def test_a_fetch_that_waits_is_no_silence() -> None:
    """A client may let its fetch wait for a minute."""
    play = Playbook(POLICY).join("one", "two")
    (key,) = play.keys_of("one")
    play.produce(key, key)
    play.acquire("one")
    tick(play, LOCK_MS, "one", "two")
    assert play.notices() == {Notice.TIMED_OUT: 1}
    assert silent(play) == []


def test_a_silent_member_may_still_leave() -> None:
    play = Playbook(POLICY).join("hung", "alive")
    one, other = play.keys_of("hung", 2)
    play.produce(one, other)
    play.acquire("hung", 1)
    tick(play, LOCK_MS)
    play.leave("hung").leave("alive").join("new").read()
    assert silent(play) == []
    play.wait(1_000)
    assert play.acquire("new") == [0, 1]


def test_keys_that_only_a_silent_member_accepts_wait_for_it() -> None:
    play = Playbook(POLICY).join("hung", filters=(b"a*",)).join("alive", filters=(b"b*",))
    play.produce(b"a", b"b")
    tick(play, LOCK_MS, "alive")
    assert silent(play) == ["hung"]
    assert play.notices()[Notice.SILENT] == 1
    assert Notice.SKIPPED not in play.notices(), "somebody accepts the key"
    assert play.acquire("alive") == [1]
    assert play.acquire("hung") == [0]


def test_of_silent_members_the_first_to_speak_gets_everything() -> None:
    play = Playbook(POLICY).join("one", "two")
    play.produce(*[b"key-%d" % at for at in range(20)])
    tick(play, LOCK_MS)
    assert sorted(silent(play)) == ["one", "two"]
    assert play.core.due_ms() == NEVER
    own = len(play.acquire("two"))
    tick(play, 1)
    assert silent(play) == ["one"]
    assert own + len(play.acquire("two")) == 20


def test_a_restart_forgets_silence() -> None:
    play = Playbook(POLICY).join("hung", "alive").produce(*play_keys("hung"))
    play.acquire("hung", 1)
    tick(play, LOCK_MS, "alive")
    assert silent(play) == ["hung"]
    play.restart().join("hung", "alive").read()
    assert silent(play) == []
    tick(play, LOCK_MS, "alive")
    assert silent(play) == ["hung"]


def play_keys(name: str) -> list[bytes]:
    return Playbook().join("hung", "alive").keys_of(name, 3)


def test_last_sent_holds_a_member_that_is_heard_again_as_one_that_joins() -> None:
    policy = Policy(lock_duration_ms=LOCK_MS, join_policy=JoinPolicy.LAST_SENT)
    play = Playbook(policy).join("hung", "alive")
    mine, others = play_keys("hung")[0], play_keys("alive")[0]
    play.produce(mine)
    tick(play, LOCK_MS, "alive")
    assert play.acquire("alive") == [0], "alone, it has no limit"
    play.produce(mine, others, mine)
    assert play.acquire("hung") == []
    tick(play, 1)
    stats = {member.member_id: member for member in play.core.stats().members}
    assert stats[MemberId("hung")].last_sent_when_joining == 0
    play.ack("alive", 0)
    assert play.acquire("hung") == [1]


def test_bounded_loads_do_not_count_silent_members() -> None:
    play = Playbook(Policy(lock_duration_ms=LOCK_MS, bounded_load=1.0)).join("hung", "a", "b")
    play.produce(*[b"key-%d" % at for at in range(30)])
    tick(play, LOCK_MS, "a", "b")
    assert silent(play) == ["hung"]
    assert (len(play.acquire("a")), len(play.acquire("b"))) == (15, 15)


def test_an_unreliable_group_gives_the_records_of_a_silent_member_to_the_others() -> None:
    play = Playbook(Policy(lock_duration_ms=LOCK_MS, reliable=False)).join("hung", "alive")
    mine = play_keys("hung")[0]
    play.produce(mine, mine)
    tick(play, LOCK_MS - 1, "alive")
    assert play.acquire("alive") == []
    tick(play, 1, "alive").expect(Noticed(Notice.SILENT, 1, "member hung"))
    play.expect(MembersReady([MemberId("alive")]))
    assert silent(play) == ["hung"]
    assert play.acquire("alive") == [0, 1]
    play.produce(mine)
    assert play.core.ready_for(MemberId("hung"), play.now_ms) > 0, "so that it does acquire"
    play.acquire("hung")
    tick(play, 1)
    assert silent(play) == []
    assert play.acquire("hung") == [2]


@pytest.mark.parametrize("back_by", ["acknowledgement", "waiting fetch", "early question"])
def test_a_member_of_an_unreliable_group_is_heard(back_by: str) -> None:
    play = Playbook(Policy(lock_duration_ms=LOCK_MS, reliable=False)).join("c1", "alive")
    play.produce(play_keys("hung")[0], *[b"key-%d" % at for at in range(9)])
    if back_by == "early question":
        play.now_ms += LOCK_MS - 1
        assert play.core.ready_for(MemberId("c1"), play.now_ms) > 0
        assert play.core.ready_for(MemberId("alive"), play.now_ms) > 0
        tick(play, 1)
        assert silent(play) == []
        return
    tick(play, LOCK_MS, "alive")
    assert silent(play) == ["c1"]
    if back_by == "acknowledgement":
        play.ack("c1", 0)
    tick(play, 1, *["c1"] * (back_by == "waiting fetch"))
    play.expect(Noticed(Notice.HEARD_AGAIN, 1, "member c1"))
    assert silent(play) == []


def test_attention() -> None:
    attention = Attention(1_000)
    assert attention.silent_ms(500, records_wait=False) == NOT_SILENT_MS
    assert attention.silent_ms(500, records_wait=True) == 1_500
    attention.lock_ran_out = True
    assert attention.silent_ms(500, records_wait=False) == 1_000 + HEARD_MS
    attention.heard(2_000)
    assert attention.silent_ms(500, records_wait=False) == NOT_SILENT_MS
    assert fall_silent([attention], [True], 500, 2_499) == []
    assert fall_silent([attention], [False], 500, 2_500) == []
    assert fall_silent([attention, Attention(2_001)], [True, True], 500, 2_500) == [0]
    assert attention.silent
    assert attention.silent_ms(500, records_wait=True) == NOT_SILENT_MS, "it is already"
    assert fall_silent([attention], [True], 500, 3_000) == []
