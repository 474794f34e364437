"""The outside knowledge of a delivery that was never sent: whether it must, may or must not end."""

from __future__ import annotations

import pytest

from dispatcher.core.model import (
    Acknowledge,
    Event,
    Gone,
    Member,
    MemberId,
    MembersChanged,
    NotSent,
    SessionClosed,
    SessionId,
    Ticked,
)
from tests.sim.holds import Hold, Holds

M1, S1 = MemberId("m1"), SessionId("s1")


def held(*, session: str = "s1", leased: bool = True) -> Holds:
    holds = Holds()
    holds.put(Hold(3, b"key", "m1", session, until_ms=100, life=1, leased=leased))
    return holds


@pytest.mark.parametrize(
    ("holds", "returned", "kept"),
    [
        (held(), [], [3]),  # must be returned: keeping it is wrong
        (held(leased=False), [], []),  # its lock may have run out
        (held(session="s0"), [3], []),  # must stay: returning it is wrong
        (Holds(), [3], []),  # nobody holds it
    ],
)
def test_wrongly_returned_and_wrongly_kept(
    holds: Holds, returned: list[int], kept: list[int]
) -> None:
    event = NotSent(M1, S1, [3], now_ms=1)
    assert holds.wrongly_returned(event, {3}) == returned
    assert holds.wrongly_returned(event, set()) == kept


def at(hold: Hold, now_ms: int) -> tuple[bool, bool]:
    """Whether its time runs out, and whether it is leased for certain after that."""
    return hold.runs_out(now_ms, grace_ms=10), hold.leased


def test_a_hold_is_certain_until_its_lock_or_its_session_ends() -> None:
    (hold,) = held()
    assert at(hold, 99) == (False, True)
    assert at(hold, 100) == (True, False)
    (hold,) = held()
    hold.expired = True  # lost on the way: nobody relied on it
    assert at(hold, 99) == (False, True)
    assert at(hold, 100) == (False, False)
    (hold,) = held()
    hold.lose(50)
    assert at(hold, 59) == (False, False)
    assert at(hold, 60) == (True, False)


def test_a_window_does_not_forget_lost_records_while_somebody_works_on_them() -> None:
    held().nobody_works_on(4, 99)
    with pytest.raises(AssertionError, match="forgotten"):
        held().nobody_works_on(3, 99)
    held().nobody_works_on(3, 100)
    held(leased=False).nobody_works_on(3, 99)


@pytest.mark.parametrize(
    ("event", "done"),
    [
        (Acknowledge(M1, S1, [(2, 3, b"\1")], 1), True),
        (Acknowledge(M1, S1, [(2, 3, b"\1\4")], 1), False),  # it renews
        (Acknowledge(MemberId("m2"), S1, [(3, 3, b"\1")], 1), False),
        (SessionClosed(M1, S1, 1), True),
        (SessionClosed(M1, SessionId("s2"), 1), False),
        (NotSent(M1, S1, [3], 1), True),
        (Gone(M1, S1, [4], 1), False),
        (MembersChanged((), 1), True),
        (MembersChanged((Member(M1),), 1), False),
        (Ticked(1), False),
    ],
)
def test_who_was_refused_by_a_window_that_broke_works_no_more(event: Event, *, done: bool) -> None:
    holds = held()
    holds.refused(event)
    (hold,) = holds
    assert hold.done == done
