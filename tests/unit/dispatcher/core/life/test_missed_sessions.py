"""The sessions that a window hears of when it is up again."""

from __future__ import annotations

from dispatcher.core.life.missed_sessions import missed_ends, open_sessions
from dispatcher.core.model import (
    LeaseId,
    MemberId,
    SessionClosed,
    SessionId,
    SessionLost,
    SessionOpened,
)
from dispatcher.core.steps import LeaseState

M1, M2 = MemberId("m1"), MemberId("m2")
LOST, CLOSED = SessionId("lost"), SessionId("closed")
OPEN, UNKNOWN = SessionId("open"), SessionId("before the restart")
GOODBYE = SessionId("open, its member left")
NOW_MS = 5_000


def test_of_the_leases_only_those_of_sessions_known_to_have_ended_are_over() -> None:
    leases = [
        LeaseState(LeaseId(at), M1, session, 30_000, [at])
        for at, session in enumerate((LOST, CLOSED, OPEN, UNKNOWN, GOODBYE))
    ]
    ended, closed = {LOST, CLOSED}.__contains__, {CLOSED}.__contains__
    left = {CLOSED, GOODBYE}.__contains__
    assert missed_ends(leases, ended, closed, left, NOW_MS) == [
        SessionLost(M1, LOST, NOW_MS),
        SessionClosed(M1, CLOSED, NOW_MS),
        SessionLost(M1, GOODBYE, NOW_MS, left=True),
    ]


def test_open_sessions_are_alive_with_the_leader_alone() -> None:
    sessions = [(M2, UNKNOWN, 2), (M1, OPEN, 1)]
    assert open_sessions(sessions, 1, NOW_MS) == [
        SessionLost(M2, UNKNOWN, NOW_MS),
        SessionOpened(M1, OPEN, NOW_MS),
    ]
