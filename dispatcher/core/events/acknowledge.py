"""Acknowledgements, fenced by member, session and attempt: each batch is checked whole, then
applied whole.

A late one (the record was given back, and perhaps delivered again) is refused and changes nothing,
unlike Danube's dispatcher, where the old consumer's acknowledgement completes the new delivery.
"""

from __future__ import annotations

from mypy_extensions import i64, u8

from dispatcher.core.events.membership import heard
from dispatcher.core.model import AckError, Acknowledge, AckType, Reason
from dispatcher.core.records.keys import NO_OFFSET, LeaseHolder
from dispatcher.core.records.leases import Lease
from dispatcher.core.records.state import WindowState
from dispatcher.core.steps import AckResult, LeaseExtended, LeaseTaken, Notice, Noticed

_GAP = int(AckType.GAP)
_ACCEPT = int(AckType.ACCEPT)
_RELEASE = int(AckType.RELEASE)
_REJECT = int(AckType.REJECT)
_RENEW = int(AckType.RENEW)


def acknowledge(state: WindowState, event: Acknowledge) -> None:
    member = state.by_member.get(event.member_id)
    if member is not None:
        heard(state, member, event.now_ms)
    session = state.book.sessions.get((event.member_id, event.session_id))
    errors: list[AckError | None] = []
    refused = 0
    accepting: list[tuple[int, int]] = []  # checked, ascending and disjoint; not applied yet
    for first, last, types in event.batches:
        if accepting and first <= accepting[-1][1]:
            accept(state, accepting)
            accepting = []
        error = _check(state, session, event, first, last, types)
        errors.append(error)
        if error is not None:
            refused += error is AckError.INVALID_RECORD_STATE
        elif len(types) == 1 and types[0] == _ACCEPT:
            accepting.append((first, last))
        else:
            _apply(state, first, last, types, event.now_ms)
    accept(state, accepting)
    if refused:
        state.count(Notice.LATE_ACK, refused)
    state.effects.append(AckResult(errors=errors))


def _check(
    state: WindowState,
    session: LeaseHolder | None,
    by: Acknowledge,
    first: int,
    last: int,
    types: bytes,
) -> AckError | None:
    count = last - first + 1
    if first < 0 or count < 1:
        return AckError.INVALID_REQUEST
    if len(types) == 1:
        if types[0] > by.type_max:
            return AckError.INVALID_REQUEST
    elif len(types) != count or max(types) > by.type_max:
        return AckError.INVALID_REQUEST
    window = state.window
    if first < window.front or last >= window.front + window.capacity:
        return _check_outside(state, session, by, first, last, types)
    leases = window.leases
    mask = window.mask
    before: Lease | None = None  # found to be theirs
    for offset in range(first, last + 1):
        lease = leases[offset & mask]
        if lease is not None and lease is before:
            continue
        before = lease
        if lease is None or not _is_theirs(lease, session, by):
            kind = types[0] if len(types) == 1 else types[offset - first]
            if kind != _GAP or lease is not None or not _nothing_there(state, offset):
                return AckError.INVALID_RECORD_STATE
    return None


def _is_theirs(lease: Lease, session: LeaseHolder | None, by: Acknowledge) -> bool:
    return lease.session is session or _left_behind(lease.session, by)


def _left_behind(session: LeaseHolder, by: Acknowledge) -> bool:
    """A lost session of the same member: during its grace, the member's newest session may
    acknowledge its records. An earlier session may not: its acknowledgement would be that of an
    earlier attempt.
    """
    return session.successor == by.session_id and session.member.member_id == by.member_id


def _check_outside(
    state: WindowState,
    session: LeaseHolder | None,
    by: Acknowledge,
    first: int,
    last: int,
    types: bytes,
) -> AckError | None:
    """A batch that leaves the rings: below their front there are records aside, and for the rest
    only gaps are harmless; behind the rings nothing is.
    """
    window = state.window
    if last >= window.front + window.capacity:
        return AckError.INVALID_RECORD_STATE
    below = window.front - first
    outside, inside = (types, types) if len(types) == 1 else (types[:below], types[below:])
    if not _are_aside(state, session, by, first, min(last + 1, window.front), outside):
        return AckError.INVALID_RECORD_STATE
    if last < window.front:
        return None
    return _check(state, session, by, window.front, last, inside)


def _are_aside(
    state: WindowState,
    session: LeaseHolder | None,
    by: Acknowledge,
    first: int,
    end: int,
    types: bytes,
) -> bool:
    """Whether these offsets below the front are leased to the session, or are gaps and settled. The
    range may be as long as its sender likes: it is left at the first offset that is neither, and a
    range of gaps is walked from one record aside to the next.
    """
    aside = state.window.aside
    only_gaps = types == bytes([_GAP])
    offset = aside.first_from(first) if only_gaps else first
    while NO_OFFSET < offset < end:
        lease = aside.leases.get(offset)
        if lease is None or not _is_theirs(lease, session, by):
            kind = types[0] if len(types) == 1 else types[offset - first]
            if kind != _GAP or lease is not None or aside.contains(offset):
                return False
        offset = aside.first_from(offset + 1) if only_gaps else offset + 1
    return True


def _nothing_there(state: WindowState, offset: int) -> bool:
    window = state.window
    return offset < window.read_position and window.queues[offset & window.mask] is None


def accept(  # noqa: C901, PLR0915 - the hot loop, kept in one piece
    state: WindowState, ranges: list[tuple[int, int]]
) -> None:
    """Settles records in flight. The hot path: state.py's leaf operations in one loop."""
    window = state.window
    leases = window.leases
    queues = window.queues
    nexts = window.nexts
    bits = window.bits
    mask: i64 = window.mask
    bits_mask: i64 = window.bits_mask
    front: i64 = window.front
    dirty = window.dirty
    marked: i64 = NO_OFFSET  # the byte that was noted as dirty last
    plain = state.prefetch == 1 and state.hold is None
    ended: i64 = 0  # offsets of the ranges that are in the rings
    for first, last in ranges:
        offset: i64 = first
        end: i64 = last + 1
        while offset < end:
            if offset < front:
                state.accept_aside(offset)
                offset += 1
                continue
            at = offset & mask
            byte = offset >> 3
            bits[byte & bits_mask] |= u8(1 << (offset & 7))
            if byte != marked:
                marked = byte
                dirty.append(byte)
            lease = leases[at]
            assert lease is not None
            leases[at] = None
            member = lease.session.member
            member.in_flight -= 1
            if not member.touched:
                state.touch(member)
            lease.live -= 1
            if lease.live == 0:
                state.ended.append(lease)
            queue = queues[at]
            if queue is None:  # Restored, and not read again yet.
                window.unread.discard(offset)
                state.forget(offset)
            else:
                queue.in_flight -= 1
                if queue.retried:
                    state.forget(offset)
                if queue.head != offset:
                    window.unlink(queue, offset)
                else:
                    queues[at] = None
                    ended += 1
                    queue.head = nexts[at]
                if queue.head >= 0:
                    owner = queue.owner
                    if plain and owner is not None and not queue.listed and not queue.retried:
                        queue.listed = True
                        owner.fresh.append(queue.head)
                        if not owner.touched:
                            state.touch(owner)
                    else:
                        state.offer(queue)
                else:
                    queue.retried = False
                    state.idle_keys += queue.key is not None
            offset += 1
    window.live -= ended
    if ranges:
        state.count(Notice.ACCEPTED, sum([last + 1 - first for first, last in ranges]))


def _apply(state: WindowState, first: int, last: int, types: bytes, now_ms: int) -> None:
    """Everything but a plain accept of a range."""
    window = state.window
    renewed: list[int] = []
    for offset in _applied(state, first, last, types):
        kind = types[0] if len(types) == 1 else types[offset - first]
        if kind == _ACCEPT:
            accept(state, [(offset, offset)])
        elif kind == _RELEASE:
            state.count(Notice.RELEASED, 1)
            state.take_back(offset, Reason.RELEASED, now_ms)
        elif kind == _REJECT:
            state.count(Notice.REJECTED, 1)
            state.take_back(offset, Reason.REJECTED, now_ms)
        elif kind == _RENEW:
            renewed.append(offset)
        elif window.lease_at(offset) is not None:
            # A GAP for a record that exists: the client did not see it. An alarm, not an archive.
            state.effects.append(Noticed(notice=Notice.GAP_ACK, count=1, detail=f"offset {offset}"))
            state.take_back(offset, Reason.GAP_ACK, now_ms)
    if renewed:
        _renew(state, renewed, now_ms + state.policy.lock_duration_ms)


def _applied(state: WindowState, first: int, last: int, types: bytes) -> list[int]:
    """The offsets of a checked batch that may mean something: of a range of gaps below the front,
    which may be long, the records aside alone.
    """
    window = state.window
    if first >= window.front or len(types) > 1 or types[0] != _GAP:
        return list(range(max(first, window.cursor), last + 1))
    aside = window.aside.between(first, min(last + 1, window.front))
    return aside + list(range(window.front, last + 1))


def _renew(state: WindowState, offsets: list[int], deadline_ms: int) -> None:
    window = state.window
    by_lease: dict[int, list[int]] = {}
    for offset in offsets:
        lease = window.lease_at(offset)
        assert lease is not None
        by_lease.setdefault(lease.lease_id, []).append(offset)
    for lease_id, renewed in by_lease.items():
        lease = state.book.leases[lease_id]
        if len(renewed) == lease.live:
            lease.deadline_ms = deadline_ms
            state.changes.append(LeaseExtended(lease_id=lease.lease_id, deadline_ms=deadline_ms))
        else:
            _split(state, lease, renewed, deadline_ms)


def _split(state: WindowState, lease: Lease, offsets: list[int], deadline_ms: int) -> None:
    """Part of a lease lives longer than the rest: it becomes a lease of its own, whose higher id
    wins on restoring.
    """
    session = lease.session
    part = state.book.open(session, deadline_ms, offsets)
    for offset in offsets:
        state.window.lease_again(offset, part)
    lease.live -= len(offsets)
    state.changes.append(
        LeaseTaken(
            lease_id=part.lease_id,
            member_id=session.member.member_id,
            session_id=session.session_id,
            deadline_ms=deadline_ms,
            offsets=offsets,
        )
    )
