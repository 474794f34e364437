"""Figures of one window for operators, and the recount that tests compare them with."""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.core.draining_keys import Draining
from dispatcher.core.joins import individually_sent, last_sent
from dispatcher.core.keys import NO_OFFSET, MemberQueue
from dispatcher.core.limits import DRAINING_SHOWN_MAX
from dispatcher.core.model import Key, MemberId, Reason, RetryState
from dispatcher.core.state import WindowState


@dataclass(frozen=True, slots=True)
class MemberStats:
    member_id: MemberId
    ready_keys: int
    in_flight: int
    draining_keys: int  # held here, owned by another member since a join or a leave
    draining_in_flight: int  # records of those that it holds
    draining_blocked: int  # records that wait behind those
    draining_attempts: int = 0  # times that their owners asked meanwhile (draining_keys.py)
    draining_cleared: int = 0  # keys that have drained here since it joined
    # The last sent position when it joined others (joins.py); None: it was there first, or at once.
    last_sent_when_joining: int | None = None
    dropped: int = 0  # records it had no room for, since it joined (unreliable groups)
    silent: bool = False  # asks for nothing: its keys are with the others (silence.py)


@dataclass(frozen=True, slots=True)
class ParkedRecord:
    """While the record was not read again since a restart, `key` is None and `behind` 0."""

    offset: int
    key: Key
    deliveries: int
    reason: Reason
    member_id: MemberId
    since_ms: int  # when it was parked
    behind: int  # records of its key that were read and wait for it


@dataclass(frozen=True, slots=True)
class FullSpan:
    """The record that holds a span from which nothing more is read before it is settled, or, with
    `window_records`, before any is.
    """

    offset: int
    key: Key
    records: int  # unsettled ones of its key, itself included
    member_id: MemberId | None  # its holder; None: it waits, or no member takes its key now
    by_span: bool = True  # False: it is the limit of records that is reached


@dataclass(frozen=True, slots=True)
class DrainingKey:
    """A key whose next record goes to another member than the one that holds its last."""

    key: Key
    member_id: MemberId  # its holder
    in_flight: int
    blocked: int  # records that wait until those are settled
    attempts: int  # times that its owner asked for records while some waited


@dataclass(frozen=True, slots=True)
class WindowStats:
    cursor: int
    read_position: int
    unsettled: int  # records read and not settled
    keys: int  # distinct keys with unsettled records; records without a key count one each
    in_flight: int
    backing_off: int
    dead_lettering: int
    parked: list[ParkedRecord]
    members: list[MemberStats]
    span_max: int
    full_span: FullSpan | None  # None: there is room to read on
    draining: list[DrainingKey]  # the oldest DRAINING_SHOWN_MAX
    draining_cleared: int  # keys that have drained since the window was loaded
    last_sent: int  # all up to it were handed out once, or are not there (joins.py)
    individually_sent: list[tuple[int, int]]  # behind it; inclusive ranges
    dropped: int = 0  # records, since the window was loaded (unreliable groups)


@dataclass(frozen=True, slots=True)
class Held:
    """Records that are not free to go out, by their state."""

    in_flight: int
    backing_off: int
    dead_lettering: int
    parked: int


def held_records(state: WindowState) -> Held:
    """O(members + records with a retry): for scrapes."""
    states = [retry.state for retry in state.retries.by_offset.values()]
    return Held(
        in_flight=sum(member.in_flight for member in [*state.members, *state.absent.values()]),
        backing_off=states.count(RetryState.WAITING),
        dead_lettering=states.count(RetryState.DEAD_LETTER),
        parked=states.count(RetryState.PARKED),
    )


def unsettled_keys(state: WindowState) -> list[bytes]:
    """Distinct keys of unsettled records; records without a key have none. O(span)."""
    window = state.window
    keys: list[bytes] = []
    for offset in range(window.cursor, window.read_position):
        queue = window.queues[offset & window.mask]
        if queue is not None and queue.head == offset and queue.key is not None:
            keys.append(queue.key)
    return keys


def window_stats(state: WindowState) -> WindowStats:
    """O(span): for operators, not for every step or scrape."""
    window = state.window
    unsettled = 0
    keys = 0
    draining: dict[int, DrainingCount] = {}  # by the offset of the key's first record
    for offset in range(window.cursor, window.read_position):
        queue = window.queues[offset & window.mask]
        if queue is None:
            continue
        unsettled += 1
        if queue.head == offset:
            keys += 1
        drain = state.draining_keys.by_key.get(queue)
        if drain is not None:
            if queue.head == offset:
                draining[offset] = DrainingCount(queue.key, drain)
            if window.leases[offset & window.mask] is None:
                draining[queue.head].blocked += 1
            else:
                draining[queue.head].in_flight += 1
    members: list[MemberQueue] = [*state.members, *state.absent.values()]
    held = held_records(state)
    return WindowStats(
        cursor=window.cursor,
        read_position=window.read_position,
        unsettled=unsettled,
        keys=keys,
        in_flight=held.in_flight,
        backing_off=held.backing_off,
        dead_lettering=held.dead_lettering,
        parked=_parked(state),
        members=[_member(member, list(draining.values())) for member in members],
        span_max=state.policy.span_max,
        full_span=_full_span(state),
        draining=[key.stats() for key in list(draining.values())[:DRAINING_SHOWN_MAX]],
        draining_cleared=state.draining_keys.cleared,
        last_sent=last_sent(state),
        individually_sent=individually_sent(state),
    )


class DrainingCount:
    def __init__(self, key: Key, drain: Draining) -> None:
        self.key = key
        self.member_id = drain.holder.member_id
        self.attempts = drain.attempts
        self.in_flight = 0
        self.blocked = 0

    def stats(self) -> DrainingKey:
        return DrainingKey(self.key, self.member_id, self.in_flight, self.blocked, self.attempts)


def _member(member: MemberQueue, draining: list[DrainingCount]) -> MemberStats:
    mine = [count for count in draining if count.member_id == member.member_id]
    return MemberStats(
        member_id=member.member_id,
        ready_keys=member.ready_count(),
        in_flight=member.in_flight,
        draining_keys=len(mine),
        draining_in_flight=sum(count.in_flight for count in mine),
        draining_blocked=sum(count.blocked for count in mine),
        draining_attempts=sum(count.attempts for count in mine),
        draining_cleared=member.drained,
        last_sent_when_joining=None if member.joined_behind == NO_OFFSET else member.joined_behind,
        silent=member.joined and member.attention.silent,
    )


def _full_span(state: WindowState) -> FullSpan | None:
    window = state.window
    if state.room() > 0:
        return None
    queue = window.queues[window.cursor & window.mask]
    lease = window.leases[window.cursor & window.mask]
    assert queue is not None, "a full span without a record at its cursor"
    records = 0
    for offset in range(window.cursor, window.read_position):
        if window.queues[offset & window.mask] is queue:
            records += 1
    return FullSpan(
        offset=window.cursor,
        key=queue.key,
        records=records,
        member_id=None if lease is None else lease.session.member.member_id,
        by_span=window.read_position - window.cursor >= state.policy.span_max,
    )


def _parked(state: WindowState) -> list[ParkedRecord]:
    parked: list[ParkedRecord] = []
    for offset in sorted(state.retries.by_offset):
        retry = state.retries.by_offset[offset]
        if retry.state is RetryState.PARKED:
            queue = state.window.queues[offset & state.window.mask]
            parked.append(
                ParkedRecord(
                    offset=offset,
                    key=None if queue is None else queue.key,
                    deliveries=retry.deliveries,
                    reason=retry.reason,
                    member_id=retry.member_id,
                    since_ms=retry.due_ms,
                    behind=0 if queue is None else _behind(state, offset),
                )
            )
    return parked


def _behind(state: WindowState, offset: int) -> int:
    """O(records of the key)."""
    nexts, mask = state.window.nexts, state.window.mask
    count = 0
    behind = nexts[offset & mask]
    while behind != NO_OFFSET:
        count += 1
        behind = nexts[behind & mask]
    return count
