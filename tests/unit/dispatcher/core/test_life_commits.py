"""The life of a window: what it reads of the log, and what it commits to Kafka."""

from __future__ import annotations

import pytest

from dispatcher.core.commands import (
    NO_TICKET,
    Answer,
    CommitState,
    Failure,
    ForgetBelow,
    Load,
    Pause,
    Persist,
    PositionReset,
    RetentionPassed,
    StopReading,
    Tell,
)
from dispatcher.core.life import LifeState
from dispatcher.core.model import (
    Delivered,
    LogTruncated,
    Policy,
)
from tests.rig.life_playbook import (
    NOW_MS,
    T1,
    T2,
    T3,
    UNRELIABLE,
    LifePlay,
    acknowledge,
    acquire,
    records,
    tickets,
)

# -------------------------------------------------------------------------------------------- reads


def test_records_that_do_not_start_at_the_read_position_are_dropped() -> None:
    play = LifePlay().up()
    assert play.life.records_read(records(0, 4), 0) == []
    assert play.life.records_read(records(5, 6), 0) == []
    stale = play.life.handle(records(0, 4), NO_TICKET)
    assert (stale.step, stale.commands) == (None, [])
    assert LifePlay().life.records_read(records(0, 4), 0) == [], "loading"


def test_retention_that_passed_the_cursor_is_told_before_the_records() -> None:
    play = LifePlay().up()
    read = records(4, 6)
    assert play.life.records_read(read, 1) == [Tell(LogTruncated(1, NOW_MS)), Tell(read)]
    assert play.life.records_read(read, 0) == [Tell(read)]


def test_a_log_that_starts_behind_the_read_position_is_followed() -> None:
    play = LifePlay().up()
    commands = play.life.out_of_range(4, 9, 20, NOW_MS, from_start=False)
    assert commands == [RetentionPassed(0, 9), Tell(LogTruncated(9, NOW_MS))]
    play.does(commands)
    play.write()
    core = play.life.core
    assert core is not None
    assert (core.cursor, play.life.state) == (9, LifeState.UP)


@pytest.mark.parametrize(("from_start", "reset_to"), [(True, 1), (False, 3)])
def test_a_log_that_ends_before_the_position_loads_the_window_elsewhere(
    *, from_start: bool, reset_to: int
) -> None:
    play = LifePlay().up()
    assert play.life.out_of_range(4, 1, 3, NOW_MS, from_start=from_start) == [
        PositionReset(4, 3, reset_to),
        StopReading(),
        Pause(100),
    ]
    assert play.life.trouble == ""
    assert play.life.pause_over() == [Load(reset_to)]
    play.life.load_failed(Failure("away"))
    assert play.life.pause_over() == [Load(reset_to)], "until it is loaded"
    play.load(reset_to)
    play.breaks()
    assert play.life.pause_over() == [Load(None)]


def test_a_log_that_starts_at_the_position_has_nothing_behind_it() -> None:
    play = LifePlay().up()
    (reset, *_) = play.life.out_of_range(4, 4, 4, NOW_MS, from_start=True)
    assert reset == PositionReset(4, 4, 4)


def test_a_read_that_failed_for_good_loads_the_window_again() -> None:
    play = LifePlay().up()
    assert play.life.read_failed(4, Failure("refused"), NOW_MS) == [StopReading(), Pause(100)]
    assert play.life.read_failed(4, Failure("refused"), NOW_MS) == []


def test_answers_to_earlier_reads_change_nothing() -> None:
    play = LifePlay().up()
    assert play.life.out_of_range(3, 9, 20, NOW_MS, from_start=True) == []
    assert play.life.read_failed(3, Failure("refused"), NOW_MS) == []
    life = LifePlay().life
    assert life.out_of_range(0, 9, 20, NOW_MS, from_start=True) == []
    assert life.read_failed(0, Failure("refused"), NOW_MS) == []


def test_a_window_that_stops_reading_asks_for_no_more() -> None:
    play = LifePlay()
    play.life.start()
    assert play.life.stop_reads() == [StopReading()]
    assert play.load() == []


# ------------------------------------------------------------------------------------------ commits


def test_a_state_may_be_committed_when_it_is_in_the_store() -> None:
    play = LifePlay().up()
    play.ask(acquire(3), T1)
    play.write()
    play.ask(acknowledge(0, 2), T2)
    assert play.life.want_commit() == [Persist()]
    assert play.life.busy
    batch = play.take()
    state = CommitState(1, [(2, 2)], 3)
    assert batch.capture == state
    assert play.life.take_committable() is None, "not yet"
    play.ask(acknowledge(1), T3)
    play.does(play.life.persisted(batch))
    assert play.life.take_committable() == state, "without what came later"
    assert play.life.take_committable() is None
    play.life.committed = state
    assert play.life.is_uncommitted(), "there is more by now"
    play.write()
    play.life.want_commit()
    play.write()
    later = play.life.take_committable()
    assert later == CommitState(3, [], 3)
    play.life.committed = later
    assert not play.life.is_uncommitted()
    assert play.life.want_commit() == [Persist()]
    play.write()
    assert play.life.take_committable() is None, "Kafka has it"


def test_a_commit_asks_the_store_although_nothing_has_changed() -> None:
    """It may be another store by now: an empty batch tells."""
    play = LifePlay().up()
    play.life.want_commit()
    batch = play.take()
    assert batch.changes == []
    assert play.life.want_commit() == [Persist()]
    assert play.does(play.life.persisted(batch))[-1] == Persist(), "asked for again meanwhile"


def test_nothing_of_a_broken_window_is_committed() -> None:
    play = LifePlay().up()
    play.life.want_commit()
    batch = play.take()
    play.life.persisted(batch)
    play.life.want_commit()
    play.breaks()
    assert play.life.take_committable() is None
    play.life.pause_over()
    play.load()
    assert play.life.take_batch() is None, "nor is it asked for any more"


def test_an_unreliable_group_has_its_state_in_kafka_alone() -> None:
    play = LifePlay(UNRELIABLE)
    play.life.start()
    play.load()
    play.does(play.life.records_read(records(0, 4), 0))
    assert tickets(play.ask(acquire(2), T1)) == [(Answer, T1)]
    assert play.life.want_commit() == [ForgetBelow(2)]
    assert play.life.take_batch() is None
    assert play.life.take_committable() == CommitState(2, [], 3)
    assert play.life.want_commit() == [], "forgotten already"


def test_settings_reach_a_window_that_is_up() -> None:
    play = LifePlay().up()
    play.life.retune(Policy(lock_duration_ms=5))
    step = play.life.handle(acquire(1), T1).step
    assert step is not None
    (delivered,) = [it for it in step.effects if isinstance(it, Delivered)]
    assert delivered.deadline_ms == NOW_MS + 5
