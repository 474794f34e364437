"""Members and sessions: joins, leaves, evictions, sessions that close or are lost.

By default joins follow PIP-379's rule, exact per key: a key with a record in flight stays where
that record is until it is settled or given back; every other key goes to its new owner at once.
Nothing needs to be remembered for that: the holder of a key is the session of its lease, the owner
is the router's answer, and `WindowState.offer` looks at both. The other rule is in joins.py.
"""

from __future__ import annotations

from dispatcher.core.events.joins import joined
from dispatcher.core.model import (
    MemberId,
    MembersChanged,
    Reason,
    SessionClosed,
    SessionLost,
    SessionOpened,
    Ticked,
    present,
)
from dispatcher.core.records.keys import NO_OFFSET, LeaseHolder, MemberQueue
from dispatcher.core.records.leases import Lease
from dispatcher.core.records.state import WindowState
from dispatcher.core.routing.ring import Router, shared_router
from dispatcher.core.routing.silence import NOT_SILENT_MS, Attention, fall_silent
from dispatcher.core.steps import Notice, Noticed


def members_changed(state: WindowState, event: MembersChanged) -> None:
    members = state.owners.router.members
    there = present(event.members)
    awaited = event.members[len(there) :]
    if len(there) == len(members) and there == members and awaited == state.awaited:
        return
    state.awaited = awaited
    before = {member.member_id: member for member in state.members}
    newcomers: list[MemberQueue] = []
    others = len(state.members) > 0
    state.members = [
        before.pop(member.member_id)
        if member.member_id in before
        else _newcomer(state, member.member_id, newcomers, event.now_ms)
        for member in there
    ]
    state.by_member = {member.member_id: member for member in state.members}
    state.provisional = [one for one in state.provisional if one.member_id not in before]
    if others and newcomers:
        joined(state, newcomers)
    _choose_takers(state, shared_router(there))
    if not state.members:
        state.reading = False
    state.relist()
    for member in before.values():  # Members that are gone.
        member.leave()
        if event.reason is Reason.MEMBER_LEFT:
            _left(state, member, event.now_ms)
        else:
            give_back_member(state, member, event.reason, event.now_ms)


def _newcomer(
    state: WindowState, member_id: MemberId, newcomers: list[MemberQueue], now_ms: int
) -> MemberQueue:
    """A new member, or one whose leases outlived a restart."""
    member = state.absent.pop(member_id, None)
    if member is None:
        member = MemberQueue(member_id)
    member.joined = True
    member.attention = Attention(now_ms)
    newcomers.append(member)
    return member


def _left(state: WindowState, member: MemberQueue, now_ms: int) -> None:
    """A client says on one connection that it leaves, and acknowledges its last records on others
    at the same time. So it keeps what it holds until it closes its sessions, for the grace at most.
    """
    for session in state.book.sessions.values():
        if session.member is member:
            session.left_at_ms = now_ms
            state.absent[member.member_id] = member


def give_back_member(state: WindowState, member: MemberQueue, reason: Reason, now_ms: int) -> None:
    for lease in state.book.of_member(member):
        state.give_back(lease, reason, now_ms)


def _choose_takers(state: WindowState, router: Router) -> None:
    """Chooses the router's members that keys are given to."""
    state.owners.choose(router, [member.attention for member in state.members])
    state.attentive = [member for member in state.members if not member.attention.silent]
    if len(state.attentive) == 1:
        state.provisional = []  # Alone: no record is kept from it, read or not.


def watch_silence(state: WindowState, event: Ticked) -> None:
    """Silent members give their keys away, as if they had left. Those that were heard again come
    back as if they had joined.
    """
    members = state.members
    for member in members if event.waiting else ():
        if member.member_id in event.waiting:
            member.attention.heard(event.now_ms)
    back = [member for member in members if member.attention.comes_back()]
    for member in back:
        _tell(state, Notice.HEARD_AGAIN, member)
    if back and state.attentive:
        joined(state, back)
    attentions = [member.attention for member in members]
    wait = [not member.idle for member in members]
    fallen = fall_silent(attentions, wait, state.policy.lock_duration_ms, event.now_ms)
    for at in fallen:
        members[at].limit = NO_OFFSET
        _tell(state, Notice.SILENT, members[at])
    if fallen:
        state.provisional = [one for one in state.provisional if not one.attention.silent]
    if back or fallen:
        _choose_takers(state, state.owners.router)
        state.relist()


def silent_ms(state: WindowState) -> int:
    """When the next member becomes silent, if none is heard. O(members)."""
    lock_ms = state.policy.lock_duration_ms
    due_ms = NOT_SILENT_MS
    for member in state.members:
        due_ms = min(due_ms, member.attention.silent_ms(lock_ms, records_wait=not member.idle))
    return due_ms


def _tell(state: WindowState, notice: Notice, member: MemberQueue) -> None:
    detail = f"member {member.member_id}"
    state.effects.append(Noticed(notice=notice, count=1, detail=detail))


def session_closed(state: WindowState, event: SessionClosed) -> None:
    session = state.book.sessions.get((event.member_id, event.session_id))
    if session is not None:
        for lease in state.book.of_session(session):
            state.give_back(lease, Reason.SESSION_CLOSED, event.now_ms)


def session_lost(state: WindowState, event: SessionLost) -> None:
    session = state.book.sessions.get((event.member_id, event.session_id))
    if session is None:
        return
    if event.left and not session.member.joined:
        session.left_at_ms = event.now_ms
    if session.lost_at_ms is None:
        session.lost_at_ms = event.now_ms


def session_opened(state: WindowState, event: SessionOpened) -> None:
    for session in state.book.sessions.values():
        if session.member.member_id != event.member_id:
            continue
        if session.session_id == event.session_id:
            # It was taken for lost: a leader that moved away and came back.
            session.successor, session.lost_at_ms = None, None
            if session.member.joined:
                session.left_at_ms = None
        else:
            session.successor = event.session_id
            if session.lost_at_ms is None:
                session.lost_at_ms = event.now_ms


def lock_timeouts(state: WindowState, now_ms: int) -> None:
    for lease in state.book.overdue(now_ms):
        state.count(Notice.TIMED_OUT, lease.live)
        state.example(Notice.TIMED_OUT, _first_live(state, lease))
        if lease.session.member.joined:
            lease.session.member.attention.lock_ran_out = True
        state.give_back(lease, Reason.LOCK_TIMEOUT, now_ms)


def _first_live(state: WindowState, lease: Lease) -> int:
    """The first offset that the lease still holds; NO_OFFSET: none."""
    for offset in lease.offsets:
        if state.window.lease_at(offset) is lease:
            return offset
    return NO_OFFSET


def lost_since_ms(state: WindowState, session: LeaseHolder) -> int | None:
    """When the member's grace began; None: its connection is there."""
    if session.left_at_ms is not None:
        return session.left_at_ms
    return session.lost_at_ms if session.member.joined else state.restored_at_ms


def evict_lost(state: WindowState, now_ms: int) -> None:
    """Lost sessions, and holders from before a restart that never showed up. A member that has
    opened another session lives, so that a lost one says nothing about its records.
    """
    grace_ms = state.policy.disconnect_grace_ms
    for session in list(state.book.sessions.values()):
        since_ms = lost_since_ms(state, session)
        if since_ms is not None and now_ms >= since_ms + grace_ms:
            reason = Reason.MEMBER_EVICTED
            if session.left_at_ms is not None:
                reason = Reason.MEMBER_LEFT
            elif session.successor is not None and session.member.joined:
                reason = Reason.SESSION_CLOSED
            for lease in state.book.of_session(session):
                state.give_back(lease, reason, now_ms)
