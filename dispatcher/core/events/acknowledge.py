"""Acknowledgements, fenced by member, session and attempt. All batches are checked before any is
applied, as in Kafka's SharePartition: who is told of an error knows that nothing has changed.

A late one (the record was given back, and perhaps delivered again) is refused and changes nothing,
unlike Danube's dispatcher, where the old consumer's acknowledgement completes the new delivery.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append
from mypy_extensions import i64, u8

from dispatcher.core.model import AckError, Acknowledge, AckType, Reason, malformed
from dispatcher.core.records.keys import NO_OFFSET, LeaseHolder
from dispatcher.core.records.leases import Lease
from dispatcher.core.records.state import WindowState
from dispatcher.core.steps import AckResult, LeaseExtended, LeaseTaken, Notice, Noticed

_GAP: Final = int(AckType.GAP)
_ACCEPT: Final = int(AckType.ACCEPT)
_RELEASE: Final = int(AckType.RELEASE)
_REJECT: Final = int(AckType.REJECT)
_RENEW: Final = int(AckType.RENEW)
_ONLY_RENEW: Final = bytes([_RENEW])


def acknowledge(state: WindowState, event: Acknowledge) -> None:
    member = state.by_member.get(event.member_id)
    if member is not None:
        member.attention.heard(event.now_ms)
    session = state.book.sessions.get((event.member_id, event.session_id))
    batches = event.batches
    if not _ascending(batches):
        errors: list[AckError | None] = [AckError.INVALID_REQUEST] * len(batches)
        state.effects.append(AckResult(errors=errors))
        return
    of: list[int] | None = None
    if event.again or (batches and batches[0][0] < state.log_start):
        batches, of = _left_to_do(state, session, event)
    errors = _check_all(state, session, event, batches)
    wrong = [error for error in errors if error is not None]
    if not wrong:
        _apply_all(state, event, batches)
    elif refused := wrong.count(AckError.INVALID_RECORD_STATE):
        state.count(Notice.LATE_ACK, refused)
    if of is not None:
        by_batch: list[AckError | None] = [None] * len(event.batches)
        for at, error in zip(of, errors, strict=True):
            by_batch[at] = by_batch[at] or error
        errors = by_batch
    state.effects.append(AckResult(errors=errors))


def _check_all(
    state: WindowState,
    session: LeaseHolder | None,
    by: Acknowledge,
    batches: list[tuple[int, int, bytes]],
) -> list[AckError | None]:
    errors: list[AckError | None] = []
    for first, last, types in batches:
        error = _check(state, session, by, first, last, types)
        if error is None and _RENEW in types and not _may_renew(state, session, first, last, types):
            error = AckError.INVALID_RECORD_STATE
        errors.append(error)
    return errors


def _apply_all(state: WindowState, by: Acknowledge, batches: list[tuple[int, int, bytes]]) -> None:
    accepting: list[tuple[int, int]] = []
    for first, last, types in batches:
        if len(types) == 1 and types[0] == _ACCEPT:
            accepting.append((first, last))
        else:
            _apply(state, by, first, last, types)
    accept(state, accepting)


def _kind(types: bytes, at: int) -> int:
    """Of the offset at this place of a batch."""
    return types[0] if len(types) == 1 else types[at]


def _ascending(batches: list[tuple[int, int, bytes]]) -> bool:
    """As Kafka wants them, and none twice: a batch ends its deliveries. So the work of a request is
    at most that of its bytes and of the records that the window holds.
    """
    behind = NO_OFFSET
    for first, last, _ in batches:
        if first <= behind:
            return False
        behind = last
    return True


def _left_to_do(
    state: WindowState, session: LeaseHolder | None, by: Acknowledge
) -> tuple[list[tuple[int, int, bytes]], list[int]]:
    """The batches without the offsets that are no longer in the log, unless they hold them: as at
    Kafka, nothing is wrong with them. And if they were asked before, without an answer: without
    what was applied then. With the numbers of the batches that they are from.
    """
    left: list[tuple[int, int, bytes]] = []
    of: list[int] = []
    for at, (first, last, types) in enumerate(by.batches):
        parts = _left_of(state, session, by, first, last, types)
        left += parts
        of += [at] * len(parts)
    return left, of


def _left_of(
    state: WindowState,
    session: LeaseHolder | None,
    by: Acknowledge,
    first: int,
    last: int,
    types: bytes,
) -> list[tuple[int, int, bytes]]:
    if malformed(first, last, types, by.type_max) is not None:
        return [(first, last, types)]  # to be refused
    start = max(first, state.log_start)
    left: list[tuple[int, int, bytes]] = []
    if first < start:
        aside = state.window.aside
        left = [
            (offset, offset, bytes([_kind(types, offset - first)]))
            for offset in aside.between(first, min(last + 1, start))
            if offset in aside.leases and _is_theirs(aside.leases[offset], session, by)
        ]
    if start > last:
        return left
    if len(types) > 1:
        types = types[start - first :]
    outside = last >= state.window.front + state.window.capacity  # to be refused
    if not by.again or outside or types == _ONLY_RENEW:
        return [*left, (start, last, types)]
    for offset in _perhaps_left(state, start, last, types):
        kind = _kind(types, offset - start)
        if not _was_applied(state, session, by, offset, kind):
            left.append((offset, offset, bytes([kind])))
    return left


def _perhaps_left(state: WindowState, first: int, last: int, types: bytes) -> list[int]:
    """The offsets in which an acknowledgement of before may not have been applied: of a range below
    the front, which may be long, those of the records aside.
    """
    return list(range(first, last + 1)) if len(types) > 1 else _known(state, first, last)


def _known(state: WindowState, first: int, last: int) -> list[int]:
    """The offsets of a range that are aside or not below the front. O(their number)."""
    window = state.window
    aside = window.aside.between(first, min(last + 1, window.front))
    return aside + list(range(max(first, window.front), last + 1))


def _was_applied(
    state: WindowState, session: LeaseHolder | None, by: Acknowledge, offset: int, kind: int
) -> bool:
    window = state.window
    if kind == _ACCEPT:
        if offset < window.front:
            return not window.aside.contains(offset)
        return window.holds(offset) and window.is_settled(offset)
    lease = window.lease_at(offset)
    # Given back is given back, whoever has it now.
    return kind in (_RELEASE, _REJECT) and (lease is None or not _is_theirs(lease, session, by))


def _check(
    state: WindowState,
    session: LeaseHolder | None,
    by: Acknowledge,
    first: int,
    last: int,
    types: bytes,
) -> AckError | None:
    if (error := malformed(first, last, types, by.type_max)) is not None:
        return error
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
            kind = _kind(types, offset - first)
            if kind != _GAP or lease is not None or not _nothing_there(state, offset):
                return AckError.INVALID_RECORD_STATE
    return None


def _may_renew(
    state: WindowState, session: LeaseHolder | None, first: int, last: int, types: bytes
) -> bool:
    """What a lost session left behind goes over to the renewing one. A key is with one session: if
    more of its records are in flight, or a record's key is not known yet after a reload, they stay
    with the lost one until its grace is over.
    """
    window = state.window
    for offset in range(first, last + 1):
        kind = _kind(types, offset - first)
        lease = window.lease_at(offset)
        if kind == _RENEW and lease is not None and lease.session is not session:
            queue = window.queue_at(offset)
            alone = state.prefetch == 1 if queue is None else queue.in_flight == 1
            if not alone:
                return False
    return True


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
            kind = _kind(types, offset - first)
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
    bits = window.bits
    mask: i64 = window.mask
    bits_mask: i64 = window.bits_mask
    front: i64 = window.front
    marked: i64 = NO_OFFSET  # the byte that was noted as dirty last
    plain = state.all_may_go_out()
    drains = len(state.draining_keys.by_key) > 0
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
                window.dirty.append(byte)
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
                if drains and queue.in_flight == 0:
                    state.draining_keys.released.append(queue)
                if queue.retried:
                    state.forget(offset)
                if queue.head != offset:
                    window.unlink(queue, offset)
                else:
                    queues[at] = None
                    ended += 1
                    queue.head = window.nexts[at]
                if queue.head >= 0:
                    owner = queue.owner
                    if plain and owner is not None and not queue.listed and not queue.retried:
                        queue.listed = True
                        owner.fresh = append(owner.fresh, queue.head)
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


def _apply(state: WindowState, by: Acknowledge, first: int, last: int, types: bytes) -> None:
    """Everything but a plain accept of a range."""
    window = state.window
    now_ms = by.now_ms
    renewed: list[int] = []
    for offset in _applied(state, first, last, types):
        kind = _kind(types, offset - first)
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
        _renew(state, by, renewed)


def _applied(state: WindowState, first: int, last: int, types: bytes) -> list[int]:
    """The offsets of a checked batch that may mean something: of a range of gaps below the front,
    which may be long, the records aside alone.
    """
    window = state.window
    if first >= window.front or len(types) > 1 or types[0] != _GAP:
        return list(range(max(first, window.cursor), last + 1))
    return _known(state, first, last)


def _renew(state: WindowState, by: Acknowledge, offsets: list[int]) -> None:
    window = state.window
    deadline_ms = by.now_ms + state.policy.lock_duration_ms
    by_lease: dict[int, list[int]] = {}
    for offset in offsets:
        lease = window.lease_at(offset)
        assert lease is not None
        by_lease.setdefault(lease.lease_id, []).append(offset)
    for lease_id, renewed in by_lease.items():
        lease = state.book.leases[lease_id]
        if len(renewed) == lease.live and lease.session.session_id == by.session_id:
            lease.deadline_ms = deadline_ms
            state.changes.append(LeaseExtended(lease_id=lease.lease_id, deadline_ms=deadline_ms))
        else:
            session = state.book.session(lease.session.member, by.session_id)
            _split(state, lease, session, renewed, deadline_ms)


def _split(
    state: WindowState, lease: Lease, session: LeaseHolder, offsets: list[int], deadline_ms: int
) -> None:
    """Part of a lease lives longer than the rest, or a lease longer than the session that is lost:
    it becomes a lease of its own, whose higher id wins on restoring.
    """
    part = state.book.open(session, deadline_ms, offsets)
    for offset in offsets:
        state.window.lease_again(offset, part)
        queue = state.window.queue_at(offset)
        if queue is not None:
            queue.holder = session
    lease.live -= len(offsets)
    if lease.live == 0:
        state.ended.append(lease)
    state.changes.append(
        LeaseTaken(
            lease_id=part.lease_id,
            member_id=session.member.member_id,
            session_id=session.session_id,
            deadline_ms=deadline_ms,
            offsets=offsets,
        )
    )
