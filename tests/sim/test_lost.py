"""What the outside knows of a log that has lost its tail, by its elections."""

from __future__ import annotations

import pytest

from dispatcher.core.epochs import NOT_KNOWN, Epochs
from dispatcher.core.model import JoinPolicy, Member, MemberId, Policy, Reason, RecordsRead
from dispatcher.core.steps import Snapshot
from keyway.commit_metadata.core.limits import OFFSET_MAX
from tests.sim.checkers import Checkers, CheckFailure
from tests.sim.due import withheld
from tests.sim.filed import settled_of
from tests.sim.lost import (
    NOTHING,
    cut_there,
    forget,
    found_out,
    in_doubt,
    judge_read,
    know_lost,
    lost_from,
    untold,
)
from tests.sim.unreliable import UnreliableChecker
from tests.sim.upstream import Log

FOUND_OUT = Snapshot(5, epochs=((1, 0),))
OF_BEFORE = Snapshot(6, epochs=((0, 0),))


def lost_twice() -> tuple[Log, Checkers]:
    """All records of epoch 0, which the window has found out, and the last ones of epoch 1."""
    log = Log()
    checkers = Checkers(Policy(), log)
    checkers.cursor = FOUND_OUT.cursor
    for end in (0, 7):
        for _ in range(10):
            log.append(b"key")
        log.elect(end)
        log.lost(end)
        if end == 0:
            assert found_out(log, checkers) == 0
    return log, checkers


def test_a_window_that_was_set_back_behind_a_loss_knows_the_log_of_before() -> None:
    log, checkers = lost_twice()
    know_lost(log, OF_BEFORE, None, regressed=True)
    assert log.lost_from == log.whole_to() == 0
    assert cut_there(log, checkers, 0)


def test_a_window_that_has_found_out_a_loss_keeps_the_records_behind_it() -> None:
    log, checkers = lost_twice()
    know_lost(log, FOUND_OUT, None, regressed=True)
    assert log.lost_from == log.whole_to() == 7
    assert cut_there(log, checkers, 7)
    assert not any(cut_there(log, checkers, end) for end in (0, 4, 6))


def test_a_window_that_comes_back_from_its_commit_knows_the_log_of_the_commit() -> None:
    log, checkers = lost_twice()
    know_lost(log, OF_BEFORE, None, regressed=True)
    know_lost(log, FOUND_OUT, None, regressed=True)
    assert log.whole_to() == FOUND_OUT.cursor
    assert not cut_there(log, checkers, 0)


def test_a_window_that_lost_nothing_of_its_store_is_not_believed_about_its_log() -> None:
    log, checkers = lost_twice()
    know_lost(log, OF_BEFORE, None, regressed=False)
    assert not cut_there(log, checkers, 0)


def test_who_joined_while_records_were_lost_has_a_limit_still_when_they_are_back() -> None:
    """The window was not loaded meanwhile, and where it took the last sent record is not known."""
    log = Log()
    checkers = Checkers(Policy(join_policy=JoinPolicy.LAST_SENT), log)
    for _ in range(4):
        log.append(None)
    checkers.members_changed((Member(MemberId("c1")),), Reason.MEMBER_LEFT, 0)
    checkers.read(RecordsRead(0, 4, [0, 1, 2, 3], [None] * 4, 0, 4, 0))
    log.elect(2)
    log.lost(2)
    both = (Member(MemberId("c1")), Member(MemberId("c2")))
    checkers.members_changed(both, Reason.MEMBER_LEFT, 0)
    log.elect_former()
    assert found_out(log, checkers) == 4
    assert withheld(checkers, "c1", 0) == 0
    assert withheld(checkers, "c2", 0) is None, "3 is its own, and behind its limit"


def test_a_file_lacks_what_a_window_has_forgotten_that_still_descends_its_epochs() -> None:
    """Two logs part at 4, which a window finds out in two steps, if it has epochs of both."""
    log = Log()
    checkers = Checkers(Policy(), log)
    for _ in range(10):
        log.append(b"key")
    checkers.settled = set(range(10))
    log.elect(4)
    log.lost(4)
    checkers.write_file()
    assert checkers.file.settled == set(range(10)), "it has forgotten nothing yet"
    log.cut(8)
    checkers.write_file()
    assert checkers.file.settled == set(range(8))


def test_what_a_position_without_epochs_says_of_a_later_epoch_may_be_forgotten() -> None:
    log = Log()
    checkers = Checkers(Policy(), log)
    taken = Snapshot(2, [(5, 6), (8, 9)])
    for _ in range(3):
        for _ in range(4):
            log.append(b"key")
        log.elect(log.end)
    checkers.settled = settled_of(taken)
    assert [end for end in range(12) if in_doubt(log, checkers, taken, end)] == list(range(4, 12))
    assert not in_doubt(log, checkers, Snapshot(6, [(8, 9)]), 4), "it is of the same epoch"
    checkers.settled.add(7)
    assert not in_doubt(log, checkers, taken, 4), "this one the group had from here"
    checkers.settled.remove(7)
    checkers.deliveries[4] = 1
    assert not in_doubt(log, checkers, taken, 4)
    assert in_doubt(log, checkers, taken, 5)


@pytest.mark.parametrize(
    ("epochs", "of"),
    [
        ((), range(OFFSET_MAX)),
        (((3, NOT_KNOWN),), range(7)),  # a commit of an earlier version, up to its cursor
        (((3, 2),), range(2, 10)),  # it has read on behind the position
        (((3, 1), (4, 2)), range(0)),  # it knew the log before
    ],
)
def test_of_what_a_window_takes_for_settled_no_epoch_tells(epochs: Epochs, of: range) -> None:
    taken = Snapshot(2, [(5, 6), (8, 9)])
    assert untold(Snapshot(7, epochs=epochs), taken) == of


@pytest.mark.parametrize(
    ("there", "known", "read_on"),
    [
        ([10], {7, 9}, True),
        ([8, 10], {7, 9}, False),  # it takes 8 for what it knows there, and should have found out
        ([10], {9, 10}, False),  # it takes 10 for another record
    ],
)
def test_a_window_reads_on_behind_holes_where_records_are_lost(
    there: list[int], known: set[int], *, read_on: bool
) -> None:
    log = Log()
    checkers = Checkers(Policy(), log)
    for _ in range(10):
        log.append(b"key")
    log.elect(7)
    log.lost(7)
    for offset in there:
        log.append_hole(offset - log.end)
        log.append(b"key")
    checkers.settled = set(range(7)) | known
    judge_read(checkers, RecordsRead(6, 7, [6], [b"key"], 0, log.end, 0))
    judge_read(checkers, RecordsRead(9, 11, [10], [b"key"], 0, log.end, 1))
    assert (log.lost_from is None) == read_on
    assert (10 in log.records) == read_on
    assert checkers.settled == set(range(7)) | (set() if read_on else known)


def test_a_window_that_forgets_lost_records_may_know_as_settled_what_retention_took() -> None:
    """The leader knows its epochs from the log's start on: there, it says, the log parts."""
    log = Log()
    checkers = Checkers(Policy(), log)
    for _ in range(2):
        for _ in range(10):
            log.append(b"key")
        log.elect(0)
        log.lost(0)
    for _ in range(10):
        log.append(b"key")
    log.truncate(3)
    assert found_out(log, checkers) == 0
    forget(checkers, 0, Snapshot(3, epochs=((0, 0),)), NOTHING)
    with pytest.raises(CheckFailure, match="3 of"):
        forget(checkers, 0, Snapshot(4, epochs=((0, 0),)), NOTHING)


@pytest.mark.parametrize(
    ("known", "lost"), [(9, 5), (6, 5), (5, None)]
)  # it knows records up to there, some of them of epoch 0 behind 5
def test_a_window_that_descends_its_epochs_has_lost_what_the_last_one_left_lacks(
    known: int, lost: int | None
) -> None:
    log = Log()
    for end in (5, 20):
        for _ in range(10):
            log.append(b"key")
        log.elect(end)
    log.epochs = [(0, 0), (1, 5), (3, 20)]
    assert lost_from(log, Snapshot(known, epochs=((0, 0), (2, 8)))) == lost
    assert lost_from(log, Snapshot(known, epochs=((0, 0),))) == lost


@pytest.mark.parametrize(("epoch", "same"), [(0, True), (1, False)])
def test_a_former_leader_brings_the_holes_back_that_a_window_knows(
    epoch: int, *, same: bool
) -> None:
    """The window was set back to before it had found out that they were lost."""
    log = Log()
    checkers = Checkers(Policy(), log)
    log.append(b"key")
    log.append_hole(3)
    log.append(b"key")
    log.elect(1)
    log.lost(1)
    log.elect_former()
    assert found_out(log, checkers) == 5
    loaded = Snapshot(1, [(2, 3)], epochs=((epoch, 0),))
    if same:
        forget(checkers, 1, loaded, NOTHING)
    else:
        with pytest.raises(CheckFailure, match="2 of"):
            forget(checkers, 1, loaded, NOTHING)


def test_an_unreliable_window_has_come_where_it_has_handed_all_out() -> None:
    log = Log()
    for _ in range(5):
        log.append(b"key")
    checker = UnreliableChecker(Policy(reliable=False), log)
    checker.rebuilt(Snapshot(1))
    checker.sent = {1, 2, 4}
    assert [offset for offset in range(1, 6) if checker.may_be_cursor(offset)] == [3]
    checker.counted = 1
    assert [offset for offset in range(1, 6) if checker.may_be_cursor(offset)] == [3, 5]
