"""What comes from the log: records, holes, and a log start that ran past the cursor."""

from __future__ import annotations

from bisect import bisect_left

from mypy_extensions import i64

from dispatcher.core.flow import Flow
from dispatcher.core.joins import read_again
from dispatcher.core.keys import NO_OFFSET, KeyQueue
from dispatcher.core.model import Key, LogTruncated, Notice, RecordsRead


def records_read(flow: Flow, event: RecordsRead) -> None:
    """Takes what continues the window; what it has already or has no room for, or a gap to it, is
    read again.
    """
    window = flow.window
    flow.reading = False
    start = window.read_position
    if not flow.members or start not in range(event.start, event.end):
        return
    offsets = event.offsets
    assert len(offsets) == len(event.keys), "columns of unequal length"
    if window.cursor == start and start >= window.known_end:
        # Nothing is unsettled: a hole in front, however long (a compacted log), is passed at once.
        first = bisect_left(offsets, start)
        start = offsets[first] if first < len(offsets) else event.end
        window.read_position = start
        window.move_cursor(start)
    end = min(event.end, window.read_position + flow.room())
    window.reserve(end)
    if flow.loads is not None:
        flow.drop_idle_keys()  # so that each is placed anew
        flow.loads.recount(flow.members, list(flow.by_key.values()))
    _append(flow, start, end, offsets, event.keys)
    window.read_position = end
    if window.unread:
        _reread(flow, end)
    if flow.provisional:
        read_again(flow)


def _append(flow: Flow, start: int, end: int, offsets: list[int], keys: list[Key]) -> None:
    """What of the columns lies from `start` up to, not including, `end`."""
    window = flow.window
    by_key = flow.by_key
    queues = window.queues
    nexts = window.nexts
    leases = window.leases
    bits = window.bits
    mask: i64 = window.mask
    bits_mask: i64 = window.bits_mask
    expected: i64 = start
    first: i64 = bisect_left(offsets, start)
    behind: i64 = bisect_left(offsets, end)
    for i in range(first, behind):
        offset: i64 = offsets[i]
        if offset != expected:
            assert offset > expected, "offsets not ascending"
            window.mark_hole(expected, offset)
        expected = offset + 1
        if (i64(bits[(offset >> 3) & bits_mask]) >> (offset & 7)) & 1:
            continue  # Settled before the restart.
        key = keys[i]
        at = offset & mask
        if key is None:
            queue: KeyQueue | None = None
        else:
            queue = by_key.get(key)
        if queue is None:
            queue = KeyQueue(key, flow.owner_of(key, offset))
            if key is not None:
                by_key[key] = queue
            queue.head = offset
        elif queue.head < 0:
            flow.idle_keys -= 1
            queue.head = offset
        else:
            nexts[i64(queue.tail) & mask] = offset
        queue.tail = offset
        nexts[at] = NO_OFFSET
        queues[at] = queue
        lease = leases[at]
        if lease is not None:  # In flight since before the restart.
            queue.in_flight += 1
            queue.holder = lease.session
            flow.drains.look_at(queue)
        elif not queue.listed:
            flow.offer(queue)
    window.mark_hole(expected, end)


def _reread(flow: Flow, end: int) -> None:
    """What the snapshot knew as leased or as a retry is attached to its key by now, or is gone from
    the log.
    """
    window = flow.window
    for offset in sorted([offset for offset in window.unread if offset < end]):
        window.unread.discard(offset)
        at = offset & window.mask
        if window.queues[at] is None:
            if window.leases[at] is not None:
                flow.detach(offset)
            flow.settle(offset)


def log_truncated(flow: Flow, event: LogTruncated) -> None:
    window = flow.window
    log_start = event.log_start
    if log_start <= window.cursor:
        return
    known = max(window.read_position, window.known_end)
    lost = max(log_start - known, 0)  # never read: holes of the log count, nobody can tell
    end = min(log_start, known)
    for offset in range(window.cursor, end):
        at = offset & window.mask
        queue = window.queues[at]
        if window.leases[at] is not None:
            flow.detach(offset)
        if queue is not None or offset in window.unread:
            flow.settle(offset)
            lost += 1
        elif offset >= window.read_position and not window.is_settled(offset):
            lost += 1
    if log_start > window.read_position:
        window.read_position = log_start
        flow.reading = False
    window.move_cursor(log_start)
    flow.relist()
    if flow.provisional:
        read_again(flow)
    if lost:
        flow.count(Notice.TRUNCATED, lost)
