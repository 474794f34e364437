"""Handing records out: the ready records of one member, oldest first, by default one of a key at a
time.
"""

from __future__ import annotations

from librt.vecs import append, vec
from mypy_extensions import i64

from dispatcher.core.model import Acquire, MemberId, NotSent, Reason
from dispatcher.core.records.keys import KeyQueue, LeaseHolder, MemberQueue
from dispatcher.core.records.leases import Lease
from dispatcher.core.records.state import WindowState
from dispatcher.core.steps import Delivered, LeaseTaken, Notice, RetryState


def acquire(state: WindowState, event: Acquire) -> None:
    deadline_ms = event.now_ms + state.policy.lock_duration_ms
    member = state.by_member.get(event.member_id)
    offsets: list[int] = []
    attempts: list[int] = []
    if member is not None:
        member.attention.heard(event.now_ms)
        state.touch(member)
        room = state.policy.in_flight_per_member_max - member.in_flight
        wanted = min(event.records_max, room)
        if wanted > 0 and member.ready_count() > 0:
            session = state.book.session(member, event.session_id)
            lease = state.book.open(session, deadline_ms, offsets)
            retried = True
            if member.limit >= 0:
                _take_limited(state, member, session, lease, wanted)
            elif state.prefetch == 1:
                retried = _take(state, member, session, lease, wanted)
            else:
                _take_runs(state, member, session, lease, wanted)
            lease.live = len(offsets)
            if offsets:
                member.in_flight += len(offsets)
                state.changes.append(
                    LeaseTaken(
                        lease_id=lease.lease_id,
                        member_id=event.member_id,
                        session_id=event.session_id,
                        deadline_ms=deadline_ms,
                        offsets=offsets,
                    )
                )
                attempts = _attempts(state, offsets) if retried else [1] * len(offsets)
            else:
                state.book.close(lease)
    state.effects.append(
        Delivered(
            member_id=event.member_id,
            session_id=event.session_id,
            offsets=offsets,
            attempts=attempts,
            deadline_ms=deadline_ms,
        )
    )


def ready_for(state: WindowState, member_id: MemberId, now_ms: int) -> int:
    member = state.by_member.get(member_id)
    if member is None:
        return 0
    room = state.policy.in_flight_per_member_max - member.in_flight
    if member.attention.silent:
        return max(1, room)  # An Acquire is heard: its keys come back with the next tick.
    member.attention.heard(now_ms)
    if state.draining_keys.by_key:
        state.draining_keys.asked_by(member, state.window)
    ready = member.ready_count() if member.limit < 0 else state.may_have_of(member)
    ready *= state.prefetch  # at most: listed records begin runs, and runs are not counted
    if state.retries.is_due(now_ms):
        ready += len(state.retries.timers)
    return max(0, min(ready, room))


def not_sent(state: WindowState, event: NotSent) -> None:
    session = state.book.sessions.get((event.member_id, event.session_id))
    for offset in event.offsets:
        lease = state.window.lease_at(offset)
        if lease is not None and lease.session is session:
            state.take_back(offset, Reason.NOT_SENT, event.now_ms)


def _take(
    state: WindowState, member: MemberQueue, session: LeaseHolder, lease: Lease, wanted: int
) -> bool:
    """Fills `lease.offsets` with up to `wanted` records, ascending, one of a key. Whether some of
    them may have a retry.
    """
    leases = state.window.leases
    queues = state.window.queues
    mask: i64 = state.window.mask
    front: i64 = state.window.front
    ready = member.sort_ready(wanted)
    first: i64 = member.ready_at
    end: i64 = len(ready)
    at = first
    passed: i64 = 0
    retried = False
    while at < end and at - first - passed < wanted:
        offset: i64 = ready[at]
        at += 1
        queue = queues[offset & mask] if offset >= front else state.window.queue_at(offset)
        assert queue is not None, f"{offset} is listed and settled"
        queue.listed = False
        if queue.in_flight > 0:  # a later one of its key, since before a restart with prefetch
            passed += 1
            continue
        queue.in_flight = 1
        queue.holder = session
        if queue.retried:
            retried = True
        if offset >= front:
            leases[offset & mask] = lease
        else:
            state.window.lease_to(queue, offset, lease)
    member.ready_at = at
    taken: list[int] = list(ready[first:at])
    if passed:
        taken = [offset for offset in taken if state.window.lease_at(offset) is lease]
    lease.offsets += taken
    if len(taken) < wanted and member.fresh:  # instead of those that were passed
        retried |= _take(state, member, session, lease, wanted - len(taken))
        lease.offsets.sort()
    return retried


def _take_runs(
    state: WindowState, member: MemberQueue, session: LeaseHolder, lease: Lease, wanted: int
) -> None:
    """As `_take`, as many records of a key as prefetch permits."""
    ready = member.sort_ready()
    while wanted and member.ready_at < len(ready):
        queue = state.window.queue_at(ready[member.ready_at])
        member.ready_at += 1
        assert queue is not None, "a listed record is settled"
        queue.listed = False
        wanted -= _take_run(state, queue, session, lease, wanted)
    lease.offsets.sort()


def _take_limited(
    state: WindowState, member: MemberQueue, session: LeaseHolder, lease: Lease, wanted: int
) -> None:
    """As `_take`, one record of a key and none behind the member's limit; those keys stay listed
    where they are.
    """
    kept = vec[i64]()
    for offset in member.sort_ready():  # The whole list: one with a limit is not cut off.
        queue = state.window.queue_at(offset)
        assert queue is not None, f"{offset} is listed and settled"
        if queue.in_flight > 0 and queue.holder is not session:
            queue.listed = False  # The key is offered again when that ends.
            continue
        if len(lease.offsets) == wanted or not state.may_have(queue, member):
            kept = append(kept, offset)
            continue
        first = state.first_of(queue)  # With prefetch an earlier one may have come back.
        queue.listed = False
        queue.in_flight += 1
        queue.holder = session
        state.window.lease_to(queue, first, lease)
        lease.offsets.append(first)
    lease.offsets.sort()
    member.ready = kept


def _take_run(
    state: WindowState, queue: KeyQueue, session: LeaseHolder, lease: Lease, wanted: int
) -> int:
    """Takes as many records of one key as prefetch permits: none if an earlier session of this
    member holds the key, or if a record failed since the key was listed.
    """
    taken = 0
    if queue.in_flight > 0 and (queue.holder is not session or session.restored):
        return 0  # The key is offered again when that ends.
    while taken < wanted and queue.in_flight < state.prefetch:
        offset = state.next_of(queue)
        if offset < 0:
            break
        state.window.lease_to(queue, offset, lease)
        queue.in_flight += 1
        queue.holder = session
        lease.offsets.append(offset)
        taken += 1
    state.offer(queue)  # More of the key, if there is, for the next acquire.
    return taken


def _attempts(state: WindowState, offsets: list[int]) -> list[int]:
    """The attempt of each record. Notes for the store that redelivered records wait no more."""
    retries = state.retries
    if not retries.by_offset:
        return [1] * len(offsets)
    attempts: list[int] = []
    again = 0
    for offset in offsets:
        retry = retries.by_offset.get(offset)
        if retry is None:
            attempts.append(1)
            continue
        retries.turn(retry, RetryState.IN_FLIGHT)
        state.changes.append(retry.noted())
        attempts.append(retry.deliveries + 1)
        again += retry.reason is not Reason.NOT_SENT  # else this delivery was counted before
    if again:
        state.count(Notice.REDELIVERED, again)
    return attempts
