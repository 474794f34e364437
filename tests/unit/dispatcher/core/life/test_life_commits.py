"""The life of a window: its reads of the log, and its commits to Kafka."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.epochs import NOT_KNOWN, last_epoch
from dispatcher.core.life.commands import (
    NO_TICKET,
    Answer,
    CommitState,
    Failure,
    ForgetBelow,
    Load,
    Pause,
    Persist,
    Refuse,
    RetentionPassed,
    StopReading,
    TailLost,
    Tell,
)
from dispatcher.core.life.states import LifeState
from dispatcher.core.model import (
    Acknowledge,
    AckType,
    Acquire,
    LogTruncated,
    MembersChanged,
    Policy,
    Ticked,
)
from dispatcher.core.steps import Delivered, Snapshot, TailDone
from dispatcher.core.stored.cut import Cut, cut_at
from tests.rig.life_playbook import (
    M1,
    MEMBERS,
    NOW_MS,
    S1,
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
    commands = play.life.out_of_range(4, 9, 20, NOW_MS)
    assert commands == [RetentionPassed(0, 9), Tell(LogTruncated(9, NOW_MS))]
    play.does(commands)
    play.write()
    core = play.life.core
    assert core is not None
    assert (core.cursor, play.life.state) == (9, LifeState.UP)


def test_a_log_that_has_lost_its_tail_loads_the_window_without_it() -> None:
    play = LifePlay().up()
    assert play.life.out_of_range(4, 1, 3, NOW_MS) == [
        TailLost(4, 3),
        StopReading(),
        Pause(100),
    ]
    assert play.life.trouble == ""
    assert play.life.pause_over() == [Load(Cut(3, -1, 3))]
    play.life.load_failed(Failure("away"))
    assert play.life.pause_over() == [Load(Cut(3, -1, 3))], "until it is loaded"
    play.load(3)
    play.breaks()
    assert play.life.pause_over() == [Load(None)]


def at_epoch(play: LifePlay, start: int, end: int, epoch: int) -> None:
    play.does(play.life.records_read(replace(records(start, end), epoch=epoch), 0))
    play.write()


def test_a_later_epoch_at_the_end_is_another_leader() -> None:
    play = LifePlay()
    play.life.start()
    play.load()
    at_epoch(play, 0, 4, 0)
    at_epoch(play, 4, 6, 3)
    core = play.life.core
    assert core is not None
    assert (core.read_position, last_epoch(core.epochs)) == (6, 3)
    play.life.want_commit()
    play.write()
    state = play.life.take_committable()
    assert state is not None
    assert state.epochs == ((0, 0), (3, 4))


def test_a_later_epoch_before_the_end_is_of_other_records() -> None:
    """The window was loaded, and reads again what it knows."""
    play = LifePlay()
    life = play.life
    life.start()
    known = Snapshot(2, [(5, 7)], epochs=((3, -1),))
    play.does(life.loaded(Policy(), known, MEMBERS, NOW_MS, fence=7, origin=3))
    at_epoch(play, 2, 4, 0)
    assert life.records_read(replace(records(4, 6), epoch=4), 0) == [
        TailLost(8, 4),
        StopReading(),
        Pause(100),
    ]
    assert life.pause_over() == [Load(Cut(4, 3, 3))]


def test_a_hole_where_a_record_aside_was_has_the_epoch_of_the_batch_behind_it() -> None:
    """All that the window knows behind it is settled, some of it of that very epoch."""
    play = LifePlay()
    life = play.life
    life.start()
    known = Snapshot(105, [(106, 20_000)], epochs=((3, 90), (5, 150)))
    play.does(life.loaded(Policy(), known, MEMBERS, NOW_MS, fence=7, origin=3))
    core = life.core
    assert core is not None
    assert core.read_position == 105, "it is read again by itself"
    play.does(life.records_read(replace(records(105, 106), offsets=[], keys=[], epoch=5), 0))
    play.write()
    assert (life.state, core.cursor) == (LifeState.UP, 20_001)


def set_without_epochs(policy: Policy, known: Snapshot) -> LifePlay:
    """As an operator sets a position, or a group that comes from another cluster."""
    play = LifePlay()
    play.life.start()
    assert not known.epochs
    play.does(play.life.loaded(policy, known, MEMBERS, NOW_MS, fence=7, origin=3))
    return play


@pytest.mark.parametrize("policy", [Policy(), UNRELIABLE])
def test_the_first_read_behind_a_position_without_an_epoch_begins_the_epochs(
    policy: Policy,
) -> None:
    """Else a leader whose log has other records could not say so, and those at the offsets of
    settled ones would never be delivered.
    """
    play = set_without_epochs(policy, Snapshot(2, [(4, 5), (8, 9)]))
    at_epoch(play, 2, 4, 3)
    core = play.life.core
    assert core is not None
    assert core.epochs == ((3, 2),), "the next fetch names it"
    at_epoch(play, 4, 6, 3)
    assert core.epochs == ((3, 2),)
    assert play.life.records_read(replace(records(6, 10), epoch=4), 0) == [
        TailLost(10, 6),
        StopReading(),
        Pause(100),
    ]
    cut = Cut(6, 3, 3)
    assert play.life.pause_over() == [Load(cut)]
    assert cut_at(core.snapshot(), cut).settled == [(4, 5)]


def test_a_later_epoch_behind_what_compaction_has_taken_is_another_leader() -> None:
    """A hole has the epoch of the batch behind it."""
    play = LifePlay()
    play.life.start()
    known = Snapshot(2, [(5, 7)], epochs=((3, -1),))
    play.does(play.life.loaded(Policy(), known, MEMBERS, NOW_MS, fence=7, origin=3))
    read = replace(records(8, 10), start=2, epoch=5)
    play.does(play.life.records_read(read, 0))
    core = play.life.core
    assert core is not None
    assert (core.read_position, last_epoch(core.epochs)) == (10, 5)


def test_a_leader_that_has_another_log_says_where_they_part() -> None:
    play = LifePlay().up()
    assert play.life.diverged(3, Cut(2, 0), NOW_MS) == [], "an answer to an earlier read"
    assert play.life.diverged(4, Cut(2, 0), NOW_MS)[0] == TailLost(4, 2)
    assert play.life.pause_over() == [Load(Cut(2, 0, 3))]


def test_a_window_is_loaded_without_a_lost_tail_when_nobody_works_on_that() -> None:
    """Else a later record of the same key could go out beside one at work, and a late
    acknowledgement could settle the record that took its offset.
    """
    play = LifePlay().up()
    play.ask(acquire(4), T1)
    play.write()
    assert play.does(play.life.diverged(4, Cut(2, 0), NOW_MS)) == [TailLost(4, 2, in_flight=2)]
    play.ask(acknowledge(3), T2)
    assert TailDone() not in play.write()
    play.ask(acknowledge(2, kind=AckType.RELEASE), T3)
    assert TailDone() in play.write()
    assert play.life.tail_done(NOW_MS) == [StopReading(), Pause(100)]
    assert play.life.pause_over() == [Load(Cut(2, 0, 3))]
    assert play.life.tail_done(NOW_MS) == [], "it is on its way"


def test_a_window_that_breaks_while_members_work_on_a_lost_tail_keeps_it() -> None:
    """They work on it still, and its next read finds the loss again."""
    play = LifePlay().up()
    play.ask(acquire(4), T1)
    play.write()
    play.does(play.life.diverged(4, Cut(2, 0), NOW_MS))
    play.breaks()
    assert play.life.pause_over() == [Load(None)]


def test_a_log_that_parted_twice_is_loaded_up_to_where_it_first_parted() -> None:
    """Also from a commit that names the last epoch alone: its cursor is behind other records."""
    play = LifePlay()
    life = play.life
    life.start()
    play.load()
    at_epoch(play, 0, 4, 0)
    at_epoch(play, 4, 6, 1)
    assert life.diverged(6, Cut(5, 0), NOW_MS)[0] == TailLost(6, 4)
    cut = Cut(4, 0, 3)
    assert life.pause_over() == [Load(cut)]
    assert cut_at(Snapshot(5, epochs=((1, NOT_KNOWN),)), cut) == Snapshot(
        4, epochs=((0, NOT_KNOWN),)
    )


def test_a_leader_that_lacks_an_epoch_and_no_record_is_asked_with_another_one() -> None:
    play = LifePlay().up()
    assert play.life.diverged(4, Cut(4, 0), NOW_MS) == [StopReading(), Pause(100)]
    assert play.life.pause_over() == [Load(Cut(4, 0, 3))]


def test_a_log_that_starts_at_the_position_has_nothing_behind_it() -> None:
    play = LifePlay().up()
    assert play.life.out_of_range(4, 4, 4, NOW_MS) == [StopReading(), Pause(100)]


def test_a_read_that_failed_for_good_loads_the_window_again() -> None:
    play = LifePlay().up()
    assert play.life.read_failed(4, Failure("refused"), NOW_MS) == [StopReading(), Pause(100)]
    assert play.life.read_failed(4, Failure("refused"), NOW_MS) == []


def test_answers_to_earlier_reads_change_nothing() -> None:
    play = LifePlay().up()
    assert play.life.out_of_range(3, 9, 20, NOW_MS) == []
    assert play.life.read_failed(3, Failure("refused"), NOW_MS) == []
    life = LifePlay().life
    assert life.out_of_range(0, 9, 20, NOW_MS) == []
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
    assert batch.capture is not None
    assert batch.capture.state == state
    assert play.life.take_committable() is None, "not yet"
    play.ask(acknowledge(1), T3)
    play.does(play.life.persisted(batch))
    assert play.life.take_committable() == state, "without the later ones"
    assert play.life.take_committable() is None
    play.life.commit_taken(state, NOW_MS)
    assert play.life.is_uncommitted(), "there is more by now"
    play.write()
    play.life.want_commit()
    play.write()
    later = play.life.take_committable()
    assert later == CommitState(3, [], 3)
    play.life.commit_taken(later, NOW_MS)
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
    (delivered,) = [effect for effect in step.effects if isinstance(effect, Delivered)]
    assert delivered.deadline_ms == NOW_MS + 5


# ------------------------------------------------------------- positions that were set elsewhere


def committable(play: LifePlay) -> CommitState:
    play.life.want_commit()
    play.write()
    state = play.life.take_committable()
    assert state is not None
    return state


def test_a_window_looks_first_until_kafka_has_taken_a_commit_of_its_members() -> None:
    play = LifePlay().up()
    assert play.life.looks_first(), "just loaded"
    play.ask(acquire(3), T1)
    play.ask(acknowledge(0), T2)
    play.life.commit_taken(committable(play), NOW_MS)
    assert not play.life.looks_first()
    play.life.commit_failed()
    assert play.life.looks_first(), "Kafka's commit is unknown"
    play.ask(acknowledge(1), T3)
    play.life.commit_taken(committable(play), NOW_MS)
    play.does(play.life.handle(MembersChanged((), NOW_MS), NO_TICKET).commands)
    assert play.life.looks_first(), "others may move a group without members"
    play.life.commit_taken(CommitState(2, [], 3), NOW_MS)
    assert play.life.looks_first(), "as long as there are none"


def test_a_window_that_looks_again_is_loaded_at_once_and_refuses_what_waits() -> None:
    play = LifePlay().up()
    play.ask(acquire(3), T1)
    play.write()
    play.ask(acknowledge(0), T2)
    commands = play.does(play.life.look_again())
    assert tickets(commands) == [(Refuse, T2)]
    assert [command for command in commands if not isinstance(command, Refuse)] == [
        StopReading(),
        Load(None),
    ]
    assert play.life.state is LifeState.LOADING
    assert play.life.look_again() == [], "it is on its way"
    play.load(2)
    core = play.life.core
    assert core is not None
    assert core.cursor == 2


def test_a_broken_or_closed_window_has_nothing_to_look_for() -> None:
    play = LifePlay().up()
    play.breaks()
    assert play.life.look_again() == []
    assert play.life.pause_over() == [Load(None)]
    play.life.close()
    assert play.life.look_again() == []


def test_a_commit_tells_when_the_last_record_was_settled() -> None:
    play = LifePlay()
    play.life.start()
    play.does(
        play.life.loaded(
            Policy(), Snapshot(0), MEMBERS, NOW_MS, fence=7, origin=3, settled_ms=NOW_MS - 500
        )
    )
    play.does(play.life.records_read(records(0, 4), 0))
    assert committable(play).settled_ms == NOW_MS - 500, "as loaded"
    play.ask(acquire(3), T1)
    assert committable(play).settled_ms == NOW_MS - 500, "a delivery settles nothing"
    play.ask(Acknowledge(M1, S1, [(1, 1, bytes([AckType.ACCEPT]))], NOW_MS + 70), T2)
    state = committable(play)
    assert state.settled_ms == NOW_MS + 70
    play.ask(Ticked(NOW_MS + 60_000), T3)
    assert committable(play).settled_ms == NOW_MS + 70, "nor does the end of a lock"
    assert state == CommitState(0, [(1, 1)], 3, settled_ms=0), "the time makes no other state"


def test_records_of_an_unreliable_group_are_settled_when_they_are_sent() -> None:
    play = LifePlay(UNRELIABLE)
    play.life.start()
    play.load()
    play.does(play.life.records_read(records(0, 4), 0))
    play.ask(Acquire(M1, S1, 2, NOW_MS + 70), T1)
    play.life.want_commit()
    state = play.life.take_committable()
    assert state is not None
    assert (state.cursor, state.settled_ms) == (2, NOW_MS + 70)
    play.ask(acquire(2), T2)
    play.ask(Acquire(M1, S1, 2, NOW_MS + 900), T3)
    assert play.life.settled_ms == NOW_MS, "nothing was left to send"


def test_an_idle_window_may_leave_once_store_and_kafka_have_all_of_it() -> None:
    assert LifePlay().life.may_leave(), "it is not up"
    play = LifePlay().up()
    play.ask(acquire(3), T1)
    assert not play.life.may_leave(), "a step is not persisted"
    play.write()
    play.ask(acknowledge(0), T2)
    play.write()
    assert not play.life.may_leave(), "Kafka has not its cursor"
    play.life.want_commit()
    play.write()
    state = play.life.take_committable()
    assert state is not None
    assert not play.life.may_leave(), "the commit is on its way"
    play.life.commit_taken(state, NOW_MS)
    assert play.life.may_leave()
