"""Who is there: joins, leaves, evictions, sessions that close or are lost.

By default joins follow PIP-379's rule, exact per key: a key with a record in flight stays where
that record is until it is settled or given back; every other key goes to its new owner at once.
Nothing needs to be remembered for that: the holder of a key is the session of its lease, the owner
is the router's answer, and `Flow.offer` looks at both. The other rule is in joins.py.
"""

from __future__ import annotations

from dispatcher.core.flow import Flow
from dispatcher.core.joins import joined
from dispatcher.core.keys import MemberQueue
from dispatcher.core.model import (
    MemberId,
    MembersChanged,
    Notice,
    Reason,
    SessionClosed,
    SessionLost,
    SessionOpened,
)
from dispatcher.core.ring import shared_router


def members_changed(flow: Flow, event: MembersChanged) -> None:
    members = flow.router.members
    if len(event.members) == len(members) and event.members == members:
        return
    before = {member.member_id: member for member in flow.members}
    newcomers: list[MemberQueue] = []
    others = len(flow.members) > 0
    flow.members = [
        before.pop(member.member_id)
        if member.member_id in before
        else _newcomer(flow, member.member_id, newcomers)
        for member in event.members
    ]
    flow.by_member = {member.member_id: member for member in flow.members}
    flow.provisional = [one for one in flow.provisional if one.member_id not in before]
    if others and newcomers:
        joined(flow, newcomers)
    if len(flow.members) == 1:
        flow.provisional = []  # Alone: nothing is kept from it, whatever is read yet.
    flow.router = shared_router(event.members)
    if not flow.members:
        flow.reading = False
    flow.relist()
    for member in before.values():  # Those that are gone.
        member.joined = False
        give_back_member(flow, member, event.reason, event.now_ms)


def _newcomer(flow: Flow, member_id: MemberId, newcomers: list[MemberQueue]) -> MemberQueue:
    """A new member, or one whose leases outlived a restart."""
    member = flow.absent.pop(member_id, None)
    if member is None:
        member = MemberQueue(member_id)
    member.joined = True
    newcomers.append(member)
    return member


def give_back_member(flow: Flow, member: MemberQueue, reason: Reason, now_ms: int) -> None:
    for lease in flow.book.of_member(member):
        flow.give_back(lease, reason, now_ms)


def session_closed(flow: Flow, event: SessionClosed) -> None:
    session = flow.book.sessions.get((event.member_id, event.session_id))
    if session is not None:
        for lease in flow.book.of_session(session):
            flow.give_back(lease, Reason.SESSION_CLOSED, event.now_ms)


def session_lost(flow: Flow, event: SessionLost) -> None:
    session = flow.book.sessions.get((event.member_id, event.session_id))
    if session is not None and session.lost_at_ms is None:
        session.lost_at_ms = event.now_ms


def session_opened(flow: Flow, event: SessionOpened) -> None:
    for session in flow.book.sessions.values():
        if session.member.member_id != event.member_id:
            continue
        if session.session_id == event.session_id:
            # It was taken for lost: a leader that moved away and came back.
            session.successor, session.lost_at_ms = None, None
        else:
            session.successor = event.session_id
            if session.lost_at_ms is None:
                session.lost_at_ms = event.now_ms


def lock_timeouts(flow: Flow, now_ms: int) -> None:
    for lease in flow.book.overdue(now_ms):
        flow.count(Notice.TIMED_OUT, lease.live)
        flow.give_back(lease, Reason.LOCK_TIMEOUT, now_ms)


def evict_lost(flow: Flow, now_ms: int) -> None:
    """Lost sessions, and holders from before a restart that never showed up."""
    grace_ms = flow.policy.disconnect_grace_ms
    for session in list(flow.book.sessions.values()):
        since_ms = session.lost_at_ms if session.member.joined else flow.restored_at_ms
        if since_ms is not None and now_ms >= since_ms + grace_ms:
            for lease in flow.book.of_session(session):
                flow.give_back(lease, Reason.MEMBER_EVICTED, now_ms)
