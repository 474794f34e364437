"""The life of a window as playbooks: each thing that happens, and the commands it leads to."""

from __future__ import annotations

from itertools import product

import pytest

from dispatcher.core.life.commands import (
    NO_TICKET,
    Answer,
    Command,
    Failure,
    ForgetBelow,
    Load,
    Pause,
    Persist,
    Refuse,
    StopReading,
    Tell,
    TroubleBegan,
    TroubleOver,
)
from dispatcher.core.life.states import NEXT, LifeEvent, LifeState
from dispatcher.core.limits import RELOAD_MS_MAX
from dispatcher.core.model import (
    Acknowledge,
    AckType,
    Acquire,
    MemberId,
    MembersChanged,
    NotSent,
    PoisonPolicy,
    Policy,
    Ticked,
)
from dispatcher.core.steps import (
    AckResult,
    Delivered,
    MembersReady,
    Notice,
    Noticed,
    ReadOn,
    Snapshot,
    WriteDeadLetters,
)
from tests.rig.life_playbook import (
    M1,
    MEMBERS,
    NOW_MS,
    S1,
    SESSION_LOST,
    T1,
    T2,
    T3,
    T4,
    LifePlay,
    acknowledge,
    acquire,
    records,
    tickets,
)

# --------------------------------------------------------------------------------------- the table


@pytest.mark.parametrize(("state", "event"), list(product(LifeState, LifeEvent)), ids=str)
def test_every_transition(state: LifeState, event: LifeEvent) -> None:
    impossible = {
        (LifeState.LOADING, LifeEvent.PAUSE_OVER),
        (LifeState.UP, LifeEvent.LOADED),
        (LifeState.UP, LifeEvent.LOAD_FAILED),
        (LifeState.UP, LifeEvent.PAUSE_OVER),
        (LifeState.BROKEN, LifeEvent.LOADED),
        (LifeState.BROKEN, LifeEvent.LOAD_FAILED),
    }
    if (state, event) in impossible:
        assert (state, event) not in NEXT
        return
    follows = {
        LifeEvent.LOADED: LifeState.UP,
        LifeEvent.LOAD_FAILED: LifeState.BROKEN,
        LifeEvent.BROKE: LifeState.BROKEN if state is LifeState.UP else state,
        LifeEvent.PAUSE_OVER: LifeState.LOADING,
        LifeEvent.CLOSE: LifeState.CLOSED,
        LifeEvent.LOOK_AGAIN: LifeState.LOADING if state is LifeState.UP else state,
    }
    closed = state is LifeState.CLOSED
    assert NEXT[state, event] is (LifeState.CLOSED if closed else follows[event])


def test_news_that_cannot_be_are_a_bug() -> None:
    play = LifePlay().up()
    with pytest.raises(KeyError):
        play.life.load_failed(Failure("away"))
    with pytest.raises(KeyError):
        play.life.pause_over()
    with pytest.raises(KeyError):
        play.load()
    with pytest.raises(AssertionError):
        play.life.start()


# ------------------------------------------------------------------------------------------ loading


def test_a_loaded_window_is_told_its_members_and_reads() -> None:
    play = LifePlay()
    assert play.life.start() == [Load(None)]
    commands = play.life.loaded(Policy(), Snapshot(5), MEMBERS, NOW_MS, fence=7, origin=3)
    assert commands == [Tell(MembersChanged(MEMBERS, NOW_MS))]
    assert (play.life.state, play.life.fence, play.life.origin) == (LifeState.UP, 7, 3)
    core = play.life.core
    assert core is not None
    assert core.cursor == 5
    assert play.does(commands) == [ReadOn(5, 16_384)]


def test_loading_is_tried_again_after_ever_longer_pauses() -> None:
    life = LifePlay().life
    waits = []
    for _ in range(8):
        (pause,) = life.load_failed(Failure("away"))
        assert isinstance(pause, Pause)
        assert life.state is LifeState.BROKEN
        waits.append(pause.wait_ms)
        assert life.pause_over() == [Load(None)]
    assert waits == [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]


def test_one_that_breaks_as_soon_as_it_is_up_waits_longer_and_one_that_was_up_does_not() -> None:
    play = LifePlay().up()
    assert play.breaks(NOW_MS) == [StopReading(), Pause(100)]
    play.life.pause_over()
    play.load(now_ms=2_000)
    assert play.breaks(2_000 + RELOAD_MS_MAX - 1) == [StopReading(), Pause(200)]
    play.life.pause_over()
    play.load(now_ms=9_000)
    assert play.breaks(9_000 + RELOAD_MS_MAX) == [StopReading(), Pause(100)]
    play.life.pause_over()
    play.load(now_ms=20_000)
    assert play.breaks(20_000) == [StopReading(), Pause(200)]


def test_trouble_is_said_once_for_each_reason_and_its_end() -> None:
    play = LifePlay().up()
    first, second = Failure("x", "Away: x"), Failure("y", "Away: y")
    assert play.breaks(failure=first) == [TroubleBegan("Away: x"), StopReading(), Pause(100)]
    play.life.pause_over()
    assert play.life.load_failed(first) == [Pause(200)]
    assert play.life.trouble == "Away: x"
    play.life.pause_over()
    assert play.life.load_failed(second) == [TroubleBegan("Away: y"), Pause(400)]
    play.life.pause_over()
    assert play.load()[0] == TroubleOver("Away: y")
    assert play.life.trouble == ""


def test_trouble_that_somebody_else_has_logged_is_shown_and_not_said() -> None:
    life = LifePlay().life
    assert life.load_failed(Failure("x", "Store: x", logged=True)) == [Pause(100)]
    assert life.trouble == "Store: x"


def test_a_failure_that_is_no_trouble_says_nothing() -> None:
    play = LifePlay().up()
    assert play.breaks(failure=Failure("reset")) == [StopReading(), Pause(100)]
    assert play.life.trouble == ""
    play.life.pause_over()
    assert TroubleOver("") not in play.load()


# ----------------------------------------------------------------------------- persist, then answer


def test_an_event_is_answered_when_its_changes_are_in_the_store() -> None:
    play = LifePlay().up()
    handled = play.life.handle(acquire(2), T1)
    assert handled.commands == [Persist()]
    assert handled.step is not None
    (delivered,) = [effect for effect in handled.step.effects if isinstance(effect, Delivered)]
    assert delivered.offsets == [0, 1]
    batch = play.take()
    assert (batch.fence, batch.changes, batch.capture) == (7, handled.step.changes, None)
    assert play.does(play.life.persisted(batch)) == [Answer(T1, handled.step.effects)]
    assert not play.life.busy


def test_an_event_without_changes_is_answered_at_once() -> None:
    play = LifePlay().up()
    answer, late = play.ask(acknowledge(9), T1)
    assert late == Noticed(Notice.LATE_ACK, 1)
    assert isinstance(answer, Answer)
    (result,) = [effect for effect in answer.effects if isinstance(effect, AckResult)]
    assert result.errors != [None]
    assert play.life.take_batch() is None
    assert play.ask(Ticked(NOW_MS), NO_TICKET) == []


def test_an_event_without_changes_waits_for_those_before_it() -> None:
    play = LifePlay().up()
    assert play.ask(acquire(1), T1) == [Persist()]
    assert play.ask(acknowledge(9), T2) == [Persist()], "its turn comes with the next batch"
    batch = play.take()
    assert play.ask(acknowledge(9), T3) == [], "also behind one that is on its way"
    commands = play.does(play.life.persisted(batch))
    assert tickets(commands) == [(Answer, T1), (Answer, T2), (Answer, T3)]
    assert not play.life.busy, "the store is asked for nothing more"


def test_an_event_without_changes_waits_for_changes_that_came_while_a_batch_was_on_its_way() -> (
    None
):
    play = LifePlay().up()
    play.ask(acquire(1), T1)
    batch = play.take()
    assert play.ask(acknowledge(9), T2) == []
    assert play.ask(acquire(1), T3) == []
    assert play.ask(acknowledge(9), T4) == []
    commands = play.does(play.life.persisted(batch))
    assert tickets(commands) == [(Answer, T1), (Answer, T2)]
    assert commands[-1] == Persist(), "there is more"
    assert tickets(play.write()) == [(Answer, T3), (Answer, T4)]


def test_one_batch_is_on_its_way_at_a_time() -> None:
    play = LifePlay().up()
    play.ask(acquire(1), T1)
    batch = play.take()
    play.ask(acquire(1), T2)
    assert play.life.take_batch() is None
    assert play.life.busy
    play.life.persisted(batch)
    assert tickets(play.write()) == [(Answer, T2)]


def test_what_is_settled_is_forgotten_once() -> None:
    play = LifePlay().up()
    play.ask(acquire(1), T1)
    play.write()
    play.ask(acknowledge(0), T2)
    commands = play.write()
    assert isinstance(commands[0], Answer), "the answer comes first"
    assert commands[-1] == ForgetBelow(1)
    play.ask(acquire(1), T3)
    assert not any(isinstance(command, ForgetBelow) for command in play.write()), (
        "the cursor stayed"
    )


def test_effects_that_concern_nobody_who_waits_are_commands() -> None:
    play = LifePlay(Policy(rejected=PoisonPolicy.DEAD_LETTER))
    play.life.start()
    play.load()
    commands = play.does(play.life.records_read(records(0, 2), 0))
    assert MembersReady([M1]) in commands, "nothing of it is stored, so it is said at once"
    play.ask(acquire(1), T1)
    play.write()
    assert play.ask(acknowledge(0, kind=AckType.REJECT), T2) == [Persist()]
    answer, *others = play.write()
    assert isinstance(answer, Answer)
    assert {type(command) for command in others} == {WriteDeadLetters, Noticed}
    assert Noticed(Notice.REJECTED, 1) in others


def test_a_bug_of_the_dispatcher_leaves_nothing_of_its_event() -> None:
    play = LifePlay().up()
    bad = Acknowledge(M1, S1, [("no", "numbers", b"\1")], NOW_MS)  # type: ignore[list-item]
    with pytest.raises((AssertionError, TypeError)):
        play.life.handle(bad, T1)
    assert not play.life.busy
    assert play.breaks() == [StopReading(), Pause(100)], "its ticket is the caller's"


# ----------------------------------------------------------------------------------------- breaking


def test_a_window_that_is_not_up_refuses_who_waits_and_ignores_the_rest() -> None:
    life = LifePlay().life
    handled = life.handle(acquire(), T1)
    assert (handled.step, handled.commands) == (None, [Refuse(T1, "loading")])
    handled = life.handle(Ticked(NOW_MS), NO_TICKET)
    assert (handled.step, handled.commands) == (None, [])
    life.load_failed(Failure("x", "Away: x"))
    assert life.handle(acquire(), T1).commands == [Refuse(T1, "Away: x")]
    assert life.take_batch() is None
    assert life.want_commit() == []
    assert life.take_committable() is None
    assert not life.is_uncommitted()
    life.retune(Policy(lock_duration_ms=1))
    life.check_invariants()


def test_all_that_waits_is_refused_in_its_order() -> None:
    play = LifePlay().up()
    play.ask(acquire(1), T1)
    batch = play.take()
    play.does(play.life.handle(SESSION_LOST, NO_TICKET).commands)
    play.ask(acquire(1), T2)
    commands = play.does(play.life.not_persisted(batch, Failure("fenced"), NOW_MS))
    assert commands == [StopReading(), Refuse(T1, "fenced"), Refuse(T2, "fenced"), Pause(100)]
    assert play.life.state is LifeState.BROKEN
    assert play.breaks() == [], "it is broken already"


def test_an_answer_of_the_store_to_a_dispatcher_that_is_gone_means_nothing() -> None:
    play = LifePlay().up()
    play.ask(acquire(1), T1)
    batch = play.take()
    play.breaks()
    assert play.life.persisted(batch) == []
    assert play.life.not_persisted(batch, Failure("late"), NOW_MS) == []
    play.life.pause_over()
    play.load()
    play.does(play.life.records_read(records(0, 4), 0))
    play.write()
    play.ask(acquire(1), T2)
    assert play.life.persisted(batch) == [], "nor while another is up"
    assert play.life.not_persisted(batch, Failure("late"), NOW_MS) == []
    assert tickets(play.write()) == [(Answer, T2)]


def test_deliveries_that_may_be_in_the_store_are_taken_back() -> None:
    """Those of the batch on its way; records in no batch are in no store."""
    play = LifePlay().up()
    play.ask(acquire(2), T1)
    batch = play.take()
    play.ask(acquire(2), T2)
    play.does(play.life.not_persisted(batch, Failure("no answer"), NOW_MS))
    play.life.pause_over()
    commands = play.life.loaded(Policy(), Snapshot(0), MEMBERS, 2_000, fence=8, origin=3)
    told = [command.event for command in commands if isinstance(command, Tell)]
    assert told == [MembersChanged(MEMBERS, 2_000), NotSent(M1, S1, [0, 1], 2_000)]
    play.does(commands)
    play.breaks()
    play.life.pause_over()
    assert [
        type(command.event)
        for command in play.life.loaded(Policy(), Snapshot(0), MEMBERS, 3_000, fence=9, origin=3)
        if isinstance(command, Tell)
    ] == [MembersChanged], "they are told once"


def test_an_acquire_that_got_nothing_is_not_taken_back() -> None:
    play = LifePlay().up()
    play.ask(acquire(1), T1)
    play.ask(Acquire(MemberId("stranger"), S1, 1, NOW_MS), T2)
    batch = play.take()
    play.does(play.life.not_persisted(batch, Failure("no answer"), NOW_MS))
    play.life.pause_over()
    commands = play.life.loaded(Policy(), Snapshot(0), MEMBERS, 2_000, fence=8, origin=3)
    assert sum(isinstance(command, Tell) for command in commands) == 2


@pytest.mark.parametrize("state", list(LifeState), ids=str)
def test_closing(state: LifeState) -> None:
    play = LifePlay()
    life = play.life
    life.start()
    expected: list[Command] = [StopReading()]
    if state is LifeState.BROKEN:
        life.load_failed(Failure("away"))
    elif state is LifeState.CLOSED:
        life.close()
    elif state is LifeState.UP:
        play.load()
        play.does(life.records_read(records(0, 4), 0))
        play.write()
        play.ask(acquire(1), T1)
        expected.append(Refuse(T1, "closed"))
    assert play.does(life.close()) == expected
    assert life.state is LifeState.CLOSED
    assert life.handle(acquire(), T2).commands == [Refuse(T2, life.trouble or "closed")]
    assert life.loaded(Policy(), Snapshot(0), MEMBERS, NOW_MS, fence=1, origin=1) == []
    assert life.load_failed(Failure("away")) == []
    assert life.pause_over() == []
    assert life.start() == []
    assert play.breaks() == []
    life.check_invariants()


# ------------------------------------------------------------------------------------------- checks


def test_the_checks_see_what_contradicts_the_state() -> None:
    for damage in ("core", "trouble", "unconfirmed", "pause"):
        play = LifePlay().up()
        life = play.life
        if damage == "core":
            life.core = None
        elif damage == "trouble":
            life.trouble = "in trouble"
        elif damage == "unconfirmed":
            life._unconfirmed.append(Delivered(M1, S1, [1], [1], NOW_MS))
        else:
            life._pause_ms = 0
        with pytest.raises(AssertionError):
            life.check_invariants()
    life = LifePlay().life
    life._commits.wanted = True
    with pytest.raises(AssertionError):
        life.check_invariants()
    assert repr(LifePlay().life) == "<loading None pending=0>"
