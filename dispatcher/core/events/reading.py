"""Input from the log: records, holes, records that it has lost, and a log start that ran past the
cursor.

A record in flight stays in flight when the log loses it (retention, compaction): a member works on
it, and no later one of its key may go out before that ends. If it was not read again since a
restart, nobody knows its key, and all keys wait for it: a stray. If the log has lost its tail, the
records that take those offsets wait: nothing is read while a member works on a lost one.
"""

from __future__ import annotations

from bisect import bisect_left

from mypy_extensions import i64

from dispatcher.core.epochs import read_on
from dispatcher.core.events.joins import read_again
from dispatcher.core.events.room import room
from dispatcher.core.limits import KEY_BYTES_MAX
from dispatcher.core.model import Gone, Key, LogCut, LogTruncated, RecordsRead
from dispatcher.core.records.keys import NO_OFFSET, KeyQueue
from dispatcher.core.records.leases import Lease
from dispatcher.core.records.state import WindowState
from dispatcher.core.routing.kept_keys import kept, shortened
from dispatcher.core.steps import EpochsMoved, Notice


def records_read(state: WindowState, event: RecordsRead) -> None:
    """Takes the records from the read position on, as many as have room. Others are ignored: the
    next read starts at the new read position.
    """
    window = state.window
    state.reading = False
    start = window.read_position
    if not state.members or start not in range(event.start, event.end):
        return
    begun_at, known_end = start, max(start, window.known_end)
    strays = len(state.strays)
    offsets = event.offsets
    assert len(offsets) == len(event.keys), "columns of unequal length"
    if state.owners.loads is not None:
        state.drop_idle_keys()  # so that each is placed anew
        state.owners.loads.recount(state.attentive, list(state.by_key.values()))
    if start < window.front:
        _read_aside(state, event)
        start = window.read_position
    if window.front <= start < event.end:
        _read_ahead(state, start, event)
    if len(state.strays) > strays:
        state.relist()
    if event.epoch >= 0:  # a batch that is given up has none
        epochs = read_on(state.epochs, event.epoch, begun_at, window.read_position, known_end)
        if epochs is not state.epochs:
            state.epochs = epochs
            state.changes.append(EpochsMoved(epochs))
    if state.provisional:
        read_again(state)


def _read_ahead(state: WindowState, start: int, event: RecordsRead) -> None:
    """Takes in records from the front of the rings on."""
    window = state.window
    offsets = event.offsets
    if window.front == start and start >= window.known_end:
        # Nothing is unsettled: a hole in front, however long (a compacted log), is passed at once.
        first = bisect_left(offsets, start)
        start = offsets[first] if first < len(offsets) else event.end
        window.read_position = start
        window.move_front(start)
    left = room(state)
    if left <= 0:
        return  # There was room when they were asked for.
    end = min(event.end, start + left)
    window.reserve(end)
    _append(state, start, end, offsets, event.keys)
    window.read_position = end
    if window.unread:
        _reread(state, end)


def _read_aside(state: WindowState, event: RecordsRead) -> None:
    """Records aside are read again after a restart: each finds its key, or is gone from the log."""
    window = state.window
    aside = window.aside
    start = window.read_position
    end = min(event.end, window.front)
    for i in range(bisect_left(event.offsets, start), bisect_left(event.offsets, end)):
        offset = event.offsets[i]
        if not aside.contains(offset):
            continue
        for gone in aside.between(start, offset):
            _lost(state, gone)
        start = offset + 1
        window.unread.discard(offset)
        queue = _queue_for(state, event.keys[i], offset)
        aside.append(queue, offset, NO_OFFSET)
        lease = aside.leases.get(offset)
        if offset in state.retries.by_offset:
            queue.retried = True
            aside.queues[offset] = queue
        if lease is not None:
            aside.queues[offset] = queue
            queue.in_flight += 1
            queue.holder = lease.session
            state.draining_keys.look_at(queue)
        elif not queue.listed:
            state.offer(queue)
    for gone in aside.between(start, end):
        _lost(state, gone)
    window.read_position = window.first_aside_from(end)


def _queue_for(state: WindowState, key: Key, offset: int) -> KeyQueue:
    """The queue of a record that is the last one of its key so far."""
    key = kept(key)
    queue = None if key is None else state.by_key.get(key)
    if queue is None:
        queue = KeyQueue(key, state.owner_of(key, offset))
        if key is not None:
            state.by_key[key] = queue
        queue.head = offset
    elif queue.head < 0:
        state.idle_keys -= 1
        queue.head = offset
    queue.tail = offset
    return queue


def gone(state: WindowState, event: Gone) -> None:
    session = state.book.sessions.get((event.member_id, event.session_id))
    for offset in event.offsets:
        lease = state.window.lease_at(offset)
        if lease is not None and lease.session is session:  # It was not sent.
            queue = state.window.queue_at(offset)
            state.detach(offset)
            state.end_lost(offset)
            state.offer_key_of(queue)


def _lost(state: WindowState, offset: int) -> None:
    """The log does not have it any more, and it was not settled."""
    lease = state.window.lease_at(offset)
    if lease is None:
        state.end_lost(offset)
    elif state.window.queue_at(offset) is None:
        _stray(state, offset, lease)


def _stray(state: WindowState, offset: int, lease: Lease) -> None:
    """Becomes an order unit of its own, as a record without a key."""
    window = state.window
    queue = KeyQueue(None, state.owner_of(None, offset))
    queue.head = queue.tail = offset
    queue.in_flight = 1
    queue.holder = lease.session
    queue.retried = offset in state.retries.by_offset
    window.unread.discard(offset)
    if offset < window.front:
        window.aside.append(queue, offset, NO_OFFSET)
    else:
        at = offset & window.mask
        window.unmark_hole(offset)
        window.queues[at] = queue
        window.nexts[at] = NO_OFFSET
        window.live += 1
    state.draining_keys.look_at(queue)
    state.strays.add(offset)


def strays_ended(state: WindowState) -> None:
    """Lets the keys go on if none of them is in flight any more."""
    window = state.window
    state.strays = {offset for offset in state.strays if window.lease_at(offset) is not None}
    if not state.strays:
        state.relist()


def _append(  # noqa: C901, PLR0915 - the hot loop, kept in one piece
    state: WindowState, start: int, end: int, offsets: list[int], keys: list[Key]
) -> None:
    """Appends the part of the columns in [start, end)."""
    window = state.window
    by_key = state.by_key
    queues = window.queues
    nexts = window.nexts
    leases = window.leases
    bits = window.bits
    mask: i64 = window.mask
    bits_mask: i64 = window.bits_mask
    front: i64 = window.front
    last_retry: i64 = state.retries.last
    appended: i64 = 0
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
            if len(key) > KEY_BYTES_MAX:
                key = shortened(key)
            queue = by_key.get(key)
        if queue is None:
            queue = KeyQueue(key, state.owner_of(key, offset))
            if key is not None:
                by_key[key] = queue
            queue.head = offset
        elif queue.head < 0:
            state.idle_keys -= 1
            queue.head = offset
        elif queue.tail >= front:
            nexts[i64(queue.tail) & mask] = offset
        else:
            window.aside.followed(queue, offset)
        queue.tail = offset
        appended += 1
        nexts[at] = NO_OFFSET
        queues[at] = queue
        if offset <= last_retry and offset in state.retries.by_offset:
            queue.retried = True
        lease = leases[at]
        if lease is not None:  # In flight since before the restart.
            queue.in_flight += 1
            queue.holder = lease.session
            state.draining_keys.look_at(queue)
        elif not queue.listed:
            state.offer(queue)
    window.live += appended
    window.mark_hole(expected, end)


def _reread(state: WindowState, end: int) -> None:
    """Ends the wait for records of the snapshot, leased or retried: by now each has its key, or is
    gone from the log and settled.
    """
    window = state.window
    for offset in sorted([offset for offset in window.unread if offset < end]):
        window.unread.discard(offset)
        if offset >= window.front and window.queue_at(offset) is None:
            _lost(state, offset)


def log_cut(state: WindowState, event: LogCut) -> None:
    state.lost_from = event.end
    state.reading = False
    state.relist()


def log_truncated(state: WindowState, event: LogTruncated) -> None:
    window = state.window
    log_start = event.log_start
    if log_start <= max(window.cursor, state.log_start):
        return
    state.log_start = log_start
    known = max(window.read_position, window.known_end, window.front)
    first = window.cursor
    below = window.aside.between(window.cursor, min(log_start, window.front))
    for offset in below:
        _lost(state, offset)
    for offset in below:
        queue = window.queue_at(offset)
        if queue is not None and queue.head == offset:
            window.aside.leave_out(queue)
    lost = _end_span(state, min(log_start, known))
    lost += max(log_start - known, 0)  # never read: holes of the log count, nobody can tell
    if log_start > window.read_position:
        window.read_position = max(log_start, window.first_aside_from(log_start))
        state.reading = False
    if log_start > window.front:
        window.move_front(log_start)
    state.relist()
    if state.provisional:
        read_again(state)
    if lost:
        state.count(Notice.TRUNCATED, lost)
        state.example(Notice.TRUNCATED, first)


def _end_span(state: WindowState, end: int) -> int:
    """The log lacks all below `end`. Returns how many of them were not settled; what is in flight
    goes aside.
    """
    window = state.window
    lost = 0
    for offset in range(window.front, end):
        at = offset & window.mask
        lease = window.leases[at]
        if lease is not None and window.queues[at] is None:
            _stray(state, offset, lease)
        queue = window.queues[at]
        if lease is not None and queue is not None:
            window.put_aside(queue, offset, asked_for=True)
        elif queue is not None or offset in window.unread:
            state.settle(offset)
            lost += 1
        elif offset >= window.read_position and not window.is_settled(offset):
            lost += 1
    return lost
