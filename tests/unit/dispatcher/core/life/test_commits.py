"""The commits of one window: states that are due, offered and taken."""

from __future__ import annotations

from dispatcher.core.life.commands import CommitState
from dispatcher.core.life.commits import Capture, Commits

NOW_MS = 1_000_000


def state(cursor: int) -> CommitState:
    return CommitState(cursor, [], origin=1, settled_ms=0)


def test_a_state_is_due_until_kafka_has_it() -> None:
    commits = Commits()
    assert commits.due(1)
    commits.offer(Capture(state(5), 1))
    taken = commits.take()
    assert taken == state(5)
    assert commits.due(1), "it is on its way"
    commits.taken(taken, NOW_MS, alone=True)
    assert not commits.due(1)
    assert commits.due(2)
    assert commits.lacks(state(6))
    assert not commits.lacks(state(5))


def test_what_happens_while_a_state_is_on_its_way_is_due() -> None:
    commits = Commits()
    commits.offer(Capture(state(5), 1))
    first = commits.take()
    assert first is not None
    commits.offer(Capture(state(7), 3))
    commits.taken(first, NOW_MS, alone=True)
    assert commits.due(3)
    assert commits.take() == state(7)


def test_the_same_state_again_is_no_commit() -> None:
    commits = Commits()
    commits.offer(Capture(state(5), 1))
    commits.taken(commits.take() or state(0), NOW_MS, alone=True)
    commits.offer(Capture(state(5), 9))
    assert commits.take() is None
    assert not commits.due(9)
    assert commits.take() is None, "nothing was offered"


def test_the_same_state_is_committed_again_once_kafka_took_it_long_ago() -> None:
    commits = Commits()
    commits.offer(Capture(state(5), 1))
    commits.taken(commits.take() or state(0), NOW_MS, alone=True)
    commits.offer(Capture(state(5), 1))
    assert commits.take(NOW_MS) is None, "not before then"
    commits.offer(Capture(state(5), 1))
    again = commits.take(NOW_MS + 1)
    assert again == state(5)
    commits.failed()
    assert commits.due(1), "Kafka may forget it"
    commits.offer(Capture(state(5), 1))
    assert commits.take(NOW_MS + 1) == again
    commits.taken(again, NOW_MS + 9, alone=True)
    commits.offer(Capture(state(5), 1))
    assert commits.take(NOW_MS + 9) is None
    assert not commits.due(1)


def test_a_failed_commit_stays_due_and_is_not_alone() -> None:
    commits = Commits()
    commits.offer(Capture(state(5), 1))
    taken = commits.take()
    assert taken is not None
    commits.alone = True
    commits.failed()
    assert commits.due(1)
    assert not commits.alone
    commits.taken(taken, NOW_MS, alone=True)  # the answer to another one, from before
    assert commits.due(1)


def test_a_window_that_is_not_up_offers_nothing() -> None:
    commits = Commits()
    commits.wanted = True
    commits.offer(Capture(state(5), 1))
    assert commits.offers
    commits.forget()
    assert (commits.wanted, commits.offers, commits.take()) == (False, False, None)
