"""Joins by last sent position (PIP-282), the alternative to the rule of membership.py.

Every record up to the last sent position has been handed out once. The individually sent ranges
are the records handed out beyond it. Both follow from the window: an offset was sent if it is
settled or a hole, if a member holds it, or if it came back. So nothing is kept or stored for them,
and a restart changes neither.

Under `join_policy: last_sent` a member that joins others gets only records up to the last sent
position of that moment: records that others had and gave back. The limit ends when the cursor has
passed it, or when the member is alone. Members that a window finds when it is loaded have no limit:
no member was there before them. Parked records hold the cursor, so they hold such members back.

Holes of the log are not stored. After a restart an offset that the snapshot does not name is a hole
or was never sent; only reading tells. Until then the position stands before the first such offset.
The position of members that joined meanwhile moves with reading, up to the end of the snapshot.
Nothing beyond the read position is handed out or settled in between, so reading finds the state of
their join.

Limits are checked when records are handed out, not when keys are listed: the loops of other groups
do not pay for them.
"""

from __future__ import annotations

from dispatcher.core.limits import SENT_RANGES_MAX, STRETCH_OFFSETS
from dispatcher.core.model import JoinPolicy
from dispatcher.core.records.keys import MemberQueue
from dispatcher.core.records.offset_bits import lowest
from dispatcher.core.records.state import WindowState


def last_sent(state: WindowState) -> int:
    """The last sent position, as far as is read; the offset before the cursor if that was not sent.
    O(span + stretches aside).
    """
    for stretch, bits in _unsent_aside(state, state.window.cursor):
        return stretch * STRETCH_OFFSETS + lowest(bits) - 1
    offset = state.window.front
    end = max(state.window.read_position, state.window.known_end)
    while offset < end and was_sent(state, offset):
        offset += 1
    return offset - 1


def individually_sent(state: WindowState, position: int) -> list[tuple[int, int]]:
    """Offsets sent beyond `position`, the last sent one: ascending, disjoint, non-adjacent
    inclusive ranges, the first SENT_RANGES_MAX. O(span + stretches aside + that).
    """
    window = state.window
    sent: list[tuple[int, int]] = []
    start = position + 1  # behind the last offset that was not sent
    for stretch, bits in _unsent_aside(state, start):
        base = stretch * STRETCH_OFFSETS
        while bits:
            low = lowest(bits)
            behind = low + lowest(~(bits >> low))  # all of these were not sent
            _add(sent, start, base + low)
            if len(sent) == SENT_RANGES_MAX:
                return sent
            start = base + behind
            bits = bits >> behind << behind
    end = max(window.read_position, window.known_end)
    for offset in range(max(start, window.front), end):
        if not was_sent(state, offset):
            _add(sent, start, offset)
            start = offset + 1
    _add(sent, start, end)
    return sent


def _add(ranges: list[tuple[int, int]], start: int, end: int) -> None:
    if start < end:
        ranges.append((start, end - 1))


def _unsent_aside(state: WindowState, first: int) -> list[tuple[int, int]]:
    """The records aside from `first` on that were never sent: neither in flight nor given back. By
    stretch, ascending, as bits. O(stretches aside + records in flight there).
    """
    aside, returned = state.window.aside, state.retries.offsets
    leased: dict[int, int] = {}
    for offset in aside.leases:
        number = offset // STRETCH_OFFSETS
        leased[number] = leased.get(number, 0) | (1 << (offset % STRETCH_OFFSETS))
    found: list[tuple[int, int]] = []
    for number, bits in aside.bits_from(first):
        unsent = bits & ~(returned.of(number) | leased.get(number, 0))
        if unsent:
            found.append((number, unsent))
    return found


def was_sent(state: WindowState, offset: int) -> bool:
    """Whether an offset at or behind the cursor was sent."""
    window = state.window
    if window.lease_at(offset) is not None or offset in state.retries.by_offset:
        return True
    if offset < window.front:
        return not window.aside.contains(offset)
    if offset < window.read_position:
        return window.queues[offset & window.mask] is None
    return window.is_settled(offset)


def joined(state: WindowState, newcomers: list[MemberQueue]) -> None:
    """Members have come to others that are, or were until now, there."""
    state.provisional += newcomers
    read_again(state)


def read_again(state: WindowState) -> None:
    """More records of the snapshot are read, or gone: moves positions that waited. O(span +
    stretches aside).
    """
    position = last_sent(state)
    for member in state.provisional:
        _join_behind(state, member, position)
    if not state.window.read_position <= position + 1 < state.window.known_end:
        state.provisional = []


def _join_behind(state: WindowState, member: MemberQueue, position: int) -> None:
    member.joined_behind = position
    if state.policy.join_policy is JoinPolicy.LAST_SENT and position >= state.window.cursor:
        member.limit = position
        state.limited = True
