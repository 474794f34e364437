"""Events for a window that was just loaded: the share sessions that ended meanwhile, and those that
are open. The node and the simulation share this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dispatcher.core.model import (
    Event,
    MemberId,
    SessionClosed,
    SessionId,
    SessionLost,
    SessionOpened,
)
from dispatcher.core.steps import LeaseState


def missed_ends(
    leases: Iterable[LeaseState],
    ended: Callable[[SessionId], bool],
    closed: Callable[[SessionId], bool],
    left: Callable[[SessionId], bool],
    now_ms: int,
) -> list[Event]:
    """For each lease whose session has ended. Sessions from before a restart of the node do not
    count as ended: their members may still be on their way back. `closed`: of those that ended,
    whether they were closed, with nothing on its way any more. `left`: whether the member left the
    group while it had the session; no member that is not there was evicted then.
    """
    events: list[Event] = []
    for lease in leases:
        if closed(lease.session_id):
            events.append(SessionClosed(lease.member_id, lease.session_id, now_ms))
        elif (gone := left(lease.session_id)) or ended(lease.session_id):
            events.append(SessionLost(lease.member_id, lease.session_id, now_ms, gone))
    return events


def open_sessions(
    sessions: Iterable[tuple[MemberId, SessionId, int]], leader: int, now_ms: int
) -> list[Event]:
    """`sessions`: the open ones, each with its broker. Records are alive in those with the leader
    of the window's partition, and in no others.
    """
    events: list[Event] = []
    for member_id, session_id, broker in sessions:
        if broker == leader:
            events.append(SessionOpened(member_id, session_id, now_ms))
        else:
            events.append(SessionLost(member_id, session_id, now_ms))
    return events
