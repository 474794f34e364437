"""The share sessions that ended or opened while a window was not up, as events for the window. The
node and the simulation share this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dispatcher.core.model import (
    Event,
    LeaseState,
    MemberId,
    SessionId,
    SessionLost,
    SessionOpened,
)

Sessions = Iterable[tuple[MemberId, SessionId]]


def missed_ends(
    leases: Iterable[LeaseState], ended: Callable[[SessionId], bool], now_ms: int
) -> list[Event]:
    """For each lease whose session has ended. Sessions of before a restart of the node have not
    (`ended` does not know them): their members may still be on their way back.
    """
    return [
        SessionLost(it.member_id, it.session_id, now_ms) for it in leases if ended(it.session_id)
    ]


def open_sessions(with_leader: Sessions, with_others: Sessions, now_ms: int) -> list[Event]:
    """The sessions that are open: those with the leader of the window's partition, in which its
    records are alive, and those with other brokers, in which they no longer are.
    """
    events: list[Event] = [SessionOpened(member, it, now_ms) for member, it in with_leader]
    events += [SessionLost(member, it, now_ms) for member, it in with_others]
    return events
