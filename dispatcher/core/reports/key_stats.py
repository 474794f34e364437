"""One key of one window, and the keys with the most unsettled records, for operators."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from dispatcher.core.model import MemberId, Reason
from dispatcher.core.records.keys import NO_OFFSET, KeyQueue, MemberQueue
from dispatcher.core.records.retry import Retry
from dispatcher.core.records.state import WindowState
from dispatcher.core.reports.picture import HELD, OffsetState
from dispatcher.core.reports.stats import records_of
from dispatcher.core.routing.hashes import key_hash32


@dataclass(frozen=True, slots=True)
class KeyStats:
    """`state`: of its first unsettled record; SETTLED: it has none, and would go to `owner` (as the
    ring and the filters say; a bounded load may decide otherwise).
    """

    key: bytes
    state: OffsetState
    owner: MemberId | None  # None: no member takes it
    holder: MemberId | None = None  # of its records in flight
    records: int = 0  # unsettled
    in_flight: int = 0
    first_offset: int = NO_OFFSET
    deliveries: int = 0  # ended deliveries of the first record
    reason: Reason | None = None  # why that record came back the last time
    due_ms: int | None = None  # of its next delivery, while it backs off


def key_stats(state: WindowState, key: bytes) -> KeyStats:
    """O(its unsettled records)."""
    queue = state.by_key.get(key)
    if queue is None or queue.head < 0:
        index = state.owners.ring_owner(key, 0)
        owner = None if index < 0 else state.members[index].member_id
        return KeyStats(key, OffsetState.SETTLED, owner)
    return _busy(state, key, queue, records_of(state, queue))


def keys_with_hash(state: WindowState, key_hash: int) -> list[bytes]:
    """The keys of unsettled records that have this hash. O(keys)."""
    return [
        key
        for key, queue in state.by_key.items()
        if queue.head >= 0 and key_hash32(key) == key_hash
    ]


def hot_keys(state: WindowState, count: int) -> list[KeyStats]:
    """The `count` keys with the most unsettled records, the hottest first. O(span + keys aside)."""
    window = state.window
    queues = window.queues
    mask = window.mask
    records: dict[KeyQueue, int] = {}
    for offset, queue in window.aside.queues.items():
        if queue.head == offset and queue.key is not None and queue.backlog is not None:
            records[queue] = len(queue.backlog.offsets) - queue.backlog.at
    for offset in range(window.front, window.read_position):
        ahead = queues[offset & mask]
        if ahead is not None and ahead.key is not None:
            records[ahead] = records.get(ahead, 0) + 1
    # Of equally hot keys the one with the oldest record comes first: the answer does not jump.
    ranked = [(-many, queue.head, queue) for queue, many in records.items()]
    found: list[KeyStats] = []
    for many, _, queue in heapq.nsmallest(count, ranked):
        if queue.key is not None:
            found.append(_busy(state, queue.key, queue, -many))
    return found


def _busy(state: WindowState, key: bytes, queue: KeyQueue, records: int) -> KeyStats:
    retry = state.retries.by_offset.get(queue.head)
    first = _state_of(state, queue.head, retry)
    holder = queue.holder
    held = queue.in_flight > 0 and holder is not None
    return KeyStats(
        key=key,
        state=first,
        owner=_member_id(queue.owner),
        holder=holder.member.member_id if held and holder is not None else None,
        records=records,
        in_flight=queue.in_flight,
        first_offset=queue.head,
        deliveries=0 if retry is None else retry.deliveries,
        reason=None if retry is None else retry.reason,
        due_ms=retry.due_ms if retry is not None and first is OffsetState.BACKING_OFF else None,
    )


def _state_of(state: WindowState, offset: int, retry: Retry | None) -> OffsetState:
    if state.window.lease_at(offset) is not None:
        return OffsetState.IN_FLIGHT
    return OffsetState.READY if retry is None or not retry.held else HELD[retry.state]


def _member_id(member: MemberQueue | None) -> MemberId | None:
    return None if member is None else member.member_id
