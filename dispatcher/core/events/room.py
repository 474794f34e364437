"""How far a window may read: the room in its span, and the records that go aside to make some.

The span begins at the front of the rings, the oldest record that has not gone aside. A record goes
aside (aside.py) when the span is nearly full and
- the key of the record is held (parked, waiting for a retry, on its way to the dead letters), or
- most of the span is settled, so that few records, in flight for long, hold up the others, or
- at a tick: the front is slow, and a member that is not silent has nothing to do. What it could
  have may be behind the backlog of a slow key, however long that is. Slow keys cost more than
  their backlogs: as many of them go aside as FORCED_SPANS spans have records.
A span that is full of records which the members can have is none of these: nobody is held up, and
more would only be read twice.

Where nothing may go aside any more the window reads no further than its span, and says so for as
long as there is no room worth a read.
"""

from __future__ import annotations

from typing import Final

from dispatcher.core.limits import READ_ROOM_DIVISOR, REREAD_GAP_OFFSETS
from dispatcher.core.records.keys import NO_OFFSET
from dispatcher.core.records.state import WindowState
from dispatcher.core.routing.hashes import key_hash32
from dispatcher.core.steps import Effect, Notice, Noticed, ReadOn, TailDone

FORCED_DIVISOR: Final = 4  # of the span is free after a tick that made room
# A front is slow that passes less of the span from one tick to the next: all of it takes longer
# than half a minute. Members of a window that works off a backlog faster do not wait for long.
SLOW_DIVISOR: Final = 64
# Keys, with the default span some 30 MB: each is routed anew when a member joins or leaves.
FORCED_SPANS: Final = 4


def room(state: WindowState) -> int:
    """Offsets that may be read on, within the span and within the limit of records. Restored
    offsets are read again even beyond `window_records`, and where keys wait for that, beyond a span
    that was larger before the restart.
    """
    window = state.window
    if window.read_position < window.front:
        return _room_behind(state)
    known = window.known_end - window.read_position
    left = state.policy.span_max - (window.read_position - window.front)
    records_max = state.policy.window_records
    if records_max is not None:
        left = min(left, max(records_max - window.live, known, 0))
    return max(left, known) if state.waiting_for_reread else left


def _room_behind(state: WindowState) -> int:
    """How many offsets there are from one record aside, not read again since a restart, to the last
    of its neighbours.
    """
    window = state.window
    start = window.read_position
    end = start + 1
    while end < window.front and end - start < state.policy.span_max:
        after = window.first_aside_from(end)
        if after == window.front or after - end > REREAD_GAP_OFFSETS:
            break
        end = after + 1
    return min(end - start, state.policy.span_max)


def read_on(state: WindowState, effects: list[Effect]) -> None:
    if state.reading or not state.members:
        return
    if state.lost_from != NO_OFFSET:
        if not _works_on_lost(state):
            effects.append(TailDone())
        return
    left = room(state)
    if left <= 0:
        return
    behind = state.window.read_position < state.window.front
    if behind or left * READ_ROOM_DIVISOR >= state.read_ahead or state.idle_members > 0:
        state.reading = True
        effects.append(ReadOn(position=state.window.read_position, offsets_max=left))


def _works_on_lost(state: WindowState) -> bool:
    """Whether records are in flight that the log has lost with its tail. O(records in flight)."""
    lost_from = state.lost_from
    for lease in state.book.leases.values():
        for offset in lease.offsets:
            if offset >= lost_from and state.window.lease_at(offset) is lease:
                return True
    return False


def make_room(state: WindowState) -> None:
    """Called at the end of a step: the front passes records that would hold it for long."""
    window = state.window
    if window.read_position <= window.front or room(state) * READ_ROOM_DIVISOR >= state.read_ahead:
        return
    few = window.live * 2 <= state.read_ahead
    while window.read_position > window.front and room(state) * 2 <= state.read_ahead:
        queue = window.queues[window.front & window.mask]
        assert queue is not None, "the front is settled"
        if not (few or state.retries.held(queue.head)) or not _put_front_aside(state):
            break


def force_room(state: WindowState) -> None:
    """Passes a part of the span, whatever is in it."""
    window = state.window
    wanted = max(state.read_ahead // FORCED_DIVISOR, 1)
    while window.read_position > window.front and room(state) < wanted:
        if not _put_front_aside(state):
            break


def _put_front_aside(state: WindowState) -> bool:
    """And passes the settled offsets behind it. False: there is no room aside."""
    window = state.window
    if not may_go_aside(state):
        return False
    offset = window.front
    queue = window.queues[offset & window.mask]
    assert queue is not None, "the front is settled"
    # With prefetch it may be the one that is listed, behind others in flight.
    listed = queue.listed and state.prefetch > 1
    window.put_aside(queue, offset, asked_for=listed or offset in state.retries.by_offset)
    window.advance()
    return True


def watch_span(state: WindowState) -> None:
    """Called at a tick: makes room if the front of a full span was slow since the last one, or
    reports, once until there is room again or the front is slow no more, that it holds the span.
    A full span whose front moves is no news: reading ahead fills it.
    """
    window = state.window
    front, before = window.front, state.full_at
    state.full_at = NO_OFFSET
    if window.read_position <= front or not state.members or not _nearly_full(state):
        state.stuck_at = NO_OFFSET
        return
    blocker = window.queues[front & window.mask]
    if blocker is None:  # The front moves on in this very step.
        return
    if before == NO_OFFSET or front - before >= max(state.read_ahead // SLOW_DIVISOR, 1):
        state.stuck_at = NO_OFFSET
    elif _may_be_forced(state):
        if _hungry(state):
            force_room(state)
    elif state.stuck_at == NO_OFFSET and _is_held_up(state):
        state.stuck_at = front
        key_hash = int(key_hash32(blocker.key or b""))
        detail = f"offset {front} key hash {key_hash:08x}"
        state.effects.append(Noticed(notice=Notice.SPAN_FULL, count=1, detail=detail))
    state.full_at = window.front


def _nearly_full(state: WindowState) -> bool:
    """Whether there is no room that is worth a read."""
    return room(state) * READ_ROOM_DIVISOR < max(state.read_ahead, 1)


def _hungry(state: WindowState) -> bool:
    """Whether a member has nothing to do, and would take something."""
    if state.idle_members == 0:
        return False
    return any(member.idle and not member.attention.silent for member in state.members)


def holder(state: WindowState) -> int:
    """The front of a span that a tick reported, until there is room worth a read."""
    if state.stuck_at == NO_OFFSET or state.window.read_position <= state.window.front:
        return NO_OFFSET
    return state.window.front if _nearly_full(state) else NO_OFFSET


def is_looked_at_again(state: WindowState) -> bool:
    """The last tick found a full span: the next one makes room, or reports it, if it is stuck."""
    if state.full_at == NO_OFFSET:
        return False
    if _may_be_forced(state):
        return _hungry(state)
    return state.stuck_at == NO_OFFSET and _is_held_up(state)


def _is_held_up(state: WindowState) -> bool:
    """Nothing makes room, and somebody waits for it, or will."""
    return room(state) <= 0 and (_hungry(state) or not may_go_aside(state))


def _may_be_forced(state: WindowState) -> bool:
    return may_go_aside(state) and not has_many_slow_keys(state)


def has_many_slow_keys(state: WindowState) -> bool:
    """So many keys have records aside that none is put there for want of room alone."""
    return len(state.window.aside.queues) >= FORCED_SPANS * state.policy.span_max


def may_go_aside(state: WindowState) -> bool:
    """Whether one more record may."""
    return state.window.aside.has_room(state.policy.held_max)
