"""Figures of one window for operators, and the recount that tests compare them with."""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.core.events.joins import individually_sent, last_sent
from dispatcher.core.events.room import has_many_slow_keys, holder, may_go_aside, room
from dispatcher.core.limits import DRAINING_SHOWN_MAX, PARKED_SHOWN_MAX
from dispatcher.core.model import Key, MemberId, Reason
from dispatcher.core.records.draining_keys import Draining
from dispatcher.core.records.keys import NO_OFFSET, KeyQueue, MemberQueue
from dispatcher.core.records.state import WindowState
from dispatcher.core.steps import RetryState


@dataclass(frozen=True, slots=True)
class MemberStats:
    member_id: MemberId
    ready_keys: int
    in_flight: int
    draining_keys: int  # held here, owned by another member since a join or a leave
    draining_in_flight: int  # records of these keys that it holds
    draining_blocked: int  # records that wait behind them
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
    """The first record of a span from which nothing more is read before it is settled, or, with
    `window_records`, before any is: nothing may go aside any more (room.py).
    """

    offset: int
    key: Key
    records: int  # unsettled ones of its key, itself included
    member_id: MemberId | None  # its holder; None: it waits, or no member takes its key now
    by_span: bool = True  # False: it is the limit of records that is reached
    by_aside: bool = True  # False: there is room aside, but not for more slow keys


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
    parked: list[ParkedRecord]  # the first PARKED_SHOWN_MAX
    members: list[MemberStats]
    span_max: int
    full_span: FullSpan | None  # None: there is room to read on, or will be
    draining: list[DrainingKey]  # the oldest DRAINING_SHOWN_MAX
    draining_cleared: int  # keys that have drained since the window was loaded
    last_sent: int  # all up to it were handed out once, or are not there (joins.py)
    individually_sent: list[tuple[int, int]]  # behind it; inclusive ranges
    dropped: int = 0  # records, since the window was loaded (unreliable groups)
    aside: int = 0  # unsettled records that the others have passed (aside.py)
    held_max: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """Records that are not free to go out, by their state."""

    in_flight: int
    backing_off: int
    dead_lettering: int
    parked: int
    aside: int = 0  # of any state: the others have passed them (aside.py)
    aside_part: float = 0.0  # of the records that may go aside; 1: no more may


def held_records(state: WindowState) -> Held:
    """O(members): for scrapes."""
    return Held(
        in_flight=sum(member.in_flight for member in [*state.members, *state.absent.values()]),
        backing_off=state.retries.waiting,
        dead_lettering=state.retries.dead_lettering,
        parked=state.retries.parked.count,
        aside=state.window.aside.count,
        aside_part=state.window.aside.part_of(state.policy.held_max),
    )


def unsettled_keys(state: WindowState) -> list[bytes]:
    """Distinct keys of unsettled records; records without a key have none. O(span)."""
    return [queue.key for queue in _queues(state) if queue.key is not None]


def first_unsettled(state: WindowState) -> list[tuple[bytes, int]]:
    """The keys with the offsets of their first unsettled records. O(span)."""
    return [(queue.key, queue.head) for queue in _queues(state) if queue.key is not None]


def _queues(state: WindowState) -> list[KeyQueue]:
    """The queues with unsettled records, in the order of their first ones."""
    return sorted(_begun_aside(state), key=_head) + _begun_in_the_rings(state)


def _begun_aside(state: WindowState) -> list[KeyQueue]:
    """The queues whose first record is aside, in any order. O(keys aside)."""
    return [queue for at, queue in state.window.aside.queues.items() if queue.head == at]


def _begun_in_the_rings(state: WindowState) -> list[KeyQueue]:
    """The others, in the order of their first records. O(span)."""
    window = state.window
    found: list[KeyQueue] = []
    for offset in range(window.front, window.read_position):
        queue = window.queues[offset & window.mask]
        if queue is not None and queue.head == offset:
            found.append(queue)
    return found


def _head(queue: KeyQueue) -> int:
    return queue.head


def records_of(state: WindowState, queue: KeyQueue) -> int:
    """The unsettled records of a key. O(those in the span)."""
    window = state.window
    backlog = queue.backlog
    records = 0 if backlog is None else len(backlog.offsets) - backlog.at
    offset = queue.head if backlog is None else backlog.after
    while offset >= 0:
        offset = window.nexts[offset & window.mask]
        records += 1
    return records


def window_stats(state: WindowState) -> WindowStats:
    """O(span + stretches aside): for operators, not for every step or scrape."""
    window = state.window
    draining = [
        DrainingCount(state, queue, drain) for queue, drain in state.draining_keys.by_key.items()
    ]
    draining.sort(key=_first_offset)
    position = last_sent(state)
    members: list[MemberQueue] = [*state.members, *state.absent.values()]
    held = held_records(state)
    return WindowStats(
        cursor=window.cursor,
        read_position=window.read_position,
        unsettled=window.unsettled(),
        keys=window.aside.keys + len(_begun_in_the_rings(state)),
        in_flight=held.in_flight,
        backing_off=held.backing_off,
        dead_lettering=held.dead_lettering,
        parked=parked_records(state, state.retries.parked.first(PARKED_SHOWN_MAX)),
        members=[_member(member, draining) for member in members],
        span_max=state.policy.span_max,
        full_span=_full_span(state),
        draining=[key.stats() for key in draining[:DRAINING_SHOWN_MAX]],
        draining_cleared=state.draining_keys.cleared,
        last_sent=position,
        individually_sent=individually_sent(state, position),
        aside=window.aside.count,
        held_max=state.policy.held_max,
    )


class DrainingCount:
    def __init__(self, state: WindowState, queue: KeyQueue, drain: Draining) -> None:
        self.key = queue.key
        self.first = queue.head
        self.member_id = drain.holder.member_id
        self.attempts = drain.attempts
        self.in_flight = queue.in_flight
        self.blocked = records_of(state, queue) - queue.in_flight

    def stats(self) -> DrainingKey:
        return DrainingKey(self.key, self.member_id, self.in_flight, self.blocked, self.attempts)


def _first_offset(draining: DrainingCount) -> int:
    return draining.first


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
    full = room(state) <= 0 and not may_go_aside(state)
    if window.read_position <= window.front or not (full or holder(state) >= 0):
        return None
    queue = window.queues[window.front & window.mask]
    lease = window.leases[window.front & window.mask]
    assert queue is not None, "a full span without a record at its front"
    return FullSpan(
        offset=window.front,
        key=queue.key,
        records=records_of(state, queue),
        member_id=None if lease is None else lease.session.member.member_id,
        by_span=window.read_position - window.front >= state.policy.span_max,
        by_aside=not has_many_slow_keys(state),
    )


def parked_offsets(state: WindowState) -> list[int]:
    """All of them, ascending. O(their number)."""
    return state.retries.parked.first(state.retries.parked.count)


def parked_records(state: WindowState, offsets: list[int]) -> list[ParkedRecord]:
    """Those of the offsets that are parked."""
    parked: list[ParkedRecord] = []
    for offset in offsets:
        retry = state.retries.by_offset.get(offset)
        if retry is not None and retry.state is RetryState.PARKED:
            queue = state.window.queue_at(offset)
            parked.append(
                ParkedRecord(
                    offset=offset,
                    key=None if queue is None else queue.key,
                    deliveries=retry.deliveries,
                    reason=retry.reason,
                    member_id=retry.member_id,
                    since_ms=retry.due_ms,
                    behind=0 if queue is None else _behind(state, queue, offset),
                )
            )
    return parked


def _behind(state: WindowState, queue: KeyQueue, offset: int) -> int:
    """O(records of the key in the span)."""
    earlier = 0  # with prefetch
    before = queue.head
    while before != offset:
        earlier += 1
        before = state.window.after(queue, before)
    return records_of(state, queue) - earlier - 1
