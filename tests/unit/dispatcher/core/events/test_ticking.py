"""The rest of a window: when its next tick has something to do."""

from __future__ import annotations

import pytest

from dispatcher.core.events.ticking import NEVER, NEXT_TICK
from dispatcher.core.model import (
    AckType,
    DeadLettered,
    Member,
    MemberId,
    MembersChanged,
    PoisonPolicy,
    Policy,
    SessionId,
    SessionOpened,
    Ticked,
)
from dispatcher.core.steps import Notice
from tests.rig.playbook import Playbook

POLICY = Policy(
    lock_duration_ms=30_000,
    backoff_base_ms=1_000,
    disconnect_grace_ms=3_000,
    span_max=8,
    held_max=0,
)


def rested(play: Playbook) -> int:
    """Its time, after enough ticks for the consequences of the last event."""
    for _ in range(3):
        play.wait(1)
    assert play.step.effects == []
    return play.core.due_ms()


def test_a_window_in_which_nothing_happens_is_never_due() -> None:
    assert rested(Playbook(POLICY)) == NEVER
    play = Playbook(POLICY).join("c1")
    assert rested(play) == NEVER, "no records wait"
    assert rested(play.produce(b"a", b"b")) == 31_000, "c1 is silent then"
    play.wait(30_000)
    assert rested(play) == NEVER


def test_a_lock_is_due_at_its_end() -> None:
    play = Playbook(POLICY).join("c1").produce(b"a", b"b")
    play.acquire("c1", 1)
    first_ms = play.now_ms + 30_000
    play.wait(500)
    play.acquire("c1", 1)
    assert rested(play) == first_ms
    play.ack("c1", 0)
    assert rested(play) == first_ms + 500
    play.now_ms = first_ms + 500
    play.wait(0)
    assert play.notices()[Notice.TIMED_OUT] == 1, "in the tick that was due"


def test_a_renewed_lock_is_due_later() -> None:
    play = Playbook(POLICY).join("c1").produce(b"a")
    play.acquire("c1")
    play.wait(20_000)
    play.ack("c1", 0, AckType.RENEW)
    assert rested(play) == 51_000


def test_a_retry_is_due_when_its_back_off_is_over() -> None:
    play = Playbook(POLICY).join("c1").produce(b"a")
    play.acquire("c1")
    play.ack("c1", 0, AckType.RELEASE)
    due_ms = play.now_ms + 1_000
    assert rested(play) == due_ms
    play.now_ms = due_ms
    play.wait(0)
    assert play.acquire("c1") == [0]


def test_dead_letters_that_were_not_taken_are_due_again() -> None:
    policy = Policy(rejected=PoisonPolicy.DEAD_LETTER, backoff_base_ms=1_000)
    play = Playbook(policy).join("c1").produce(b"a")
    play.acquire("c1")
    play.ack("c1", 0, AckType.REJECT)
    assert rested(play) == NEVER, "until the DLQ answers"
    play.on(DeadLettered([0], durable=False, now_ms=play.now_ms))
    due_ms = play.now_ms + 1_000
    assert rested(play) == due_ms
    play.now_ms = due_ms
    assert play.wait(0).letters() == [0]


def test_a_lost_session_is_due_after_its_grace_unless_it_comes_back() -> None:
    play = Playbook(POLICY).join("c1", "c2").produce(b"a", b"b", b"c")
    play.acquire("c1")
    play.lose("c1")
    due_ms = play.now_ms + 3_000
    assert rested(play) == due_ms
    play.on(SessionOpened(MemberId("c1"), SessionId("s1"), play.now_ms))
    assert rested(play) > due_ms, "its lock"


def test_who_held_records_before_a_restart_has_the_grace_to_show_up() -> None:
    play = Playbook(POLICY).join("c1").produce(b"a")
    play.acquire("c1")
    play.restart()
    play.on(MembersChanged((), play.now_ms))
    assert rested(play) == play.core._state.restored_at_ms + 3_000  # type: ignore[operator]
    play.on(MembersChanged((Member(MemberId("c1")),), play.now_ms))
    assert rested(play) == 31_000, "its lock"


def test_a_full_span_is_looked_at_until_it_is_reported() -> None:
    play = Playbook(POLICY).join("c1").produce(*[b"a"] * 8)
    play.on(Ticked(play.now_ms))
    assert (play.step.effects, play.core.due_ms()) == ([], NEXT_TICK)
    play.on(Ticked(play.now_ms + 500))
    assert play.notices() == {Notice.SPAN_FULL: 1}
    assert rested(play) == 31_000, "c1 is silent then"
    play.acquire("c1")
    play.ack("c1", 0)
    play.produce(b"a")
    play.on(Ticked(play.now_ms))
    assert play.core.due_ms() == NEXT_TICK, "of another cursor"


@pytest.mark.parametrize("members", [0, 1])
def test_an_unreliable_group_reads_on_at_ticks_when_no_read_is_out(members: int) -> None:
    play = Playbook(Policy(reliable=False, in_flight_per_member_max=2))
    if not members:
        assert rested(play) == NEVER
        return
    play.join("c1")
    assert rested(play) == NEVER, "a read is out"
    play.produce(b"a", b"b", b"c")
    play.wait(500)
    silent_ms = 31_000
    assert play.core.due_ms() in (NEXT_TICK, silent_ms)
    assert (play.core.due_ms() == silent_ms) == play.core._reading  # type: ignore[attr-defined]
