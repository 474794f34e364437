"""Batches read from upstream and kept for windows: the covered stretches, their columns and slices.

A piece covers a stretch of a log. Its batch holds all records there that consumers may see; a piece
without a batch covers invisible ones (aborted, control). So "no records here" and "not read" are
never mixed up. Pieces of one source are disjoint and in offset order; they grow old in the order of
their arrival, those of all sources together.

A batch of hundreds of thousands of tiny records takes more memory than the whole cache. It is kept
in portions, and of it only the beginning: as a whole it would be dropped as soon as it came, and be
read and scanned again for every fetch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.core.cluster.topology import TopicPartition
from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.wire.long_bytes import LongBytes, together
from gateway.core.wire.records import Batch, portions, select_long, timestamp_at


class RecordsGone(Exception):
    """These offsets are no longer in the log: retention, compaction or DeleteRecords took them."""

    def __init__(self, offsets: list[int]) -> None:
        super().__init__(
            f"{len(offsets)} records are no longer in the log, the first at {offsets[0]}"
        )
        self.offsets = offsets


class RecordsLarge(Exception):
    """These records take more bytes than were asked for; the first `fitting` of them do not, as far
    as is known.
    """

    def __init__(self, fitting: int) -> None:
        super().__init__(f"only the first {fitting} records fit")
        self.fitting = fitting


class RecordsReplaced(Exception):
    """The log has lost these records, and has others at their offsets. `durable`: which of the dead
    letters that were to be written are.
    """

    def __init__(self, durable: Sequence[bool | None] = ()) -> None:
        super().__init__("the log has lost some of its records")
        self.durable = durable


class Source(NamedTuple):
    """A partition as seen under an isolation level (0 read_uncommitted, 1 read_committed)."""

    tp: TopicPartition
    isolation: int


@dataclass(slots=True)
class Columns:
    """The visible records of [start, end): equally long columns, offsets ascending. `epoch`: of the
    leader that wrote them; -1 = not known.
    """

    start: int
    end: int
    offsets: list[int]
    keys: list[bytes | None]
    epoch: int


@dataclass(slots=True, eq=False)
class Piece:
    """Covers [start, end). `epoch`: of the leader that wrote its last record; -1 = not known."""

    source: Source
    start: int
    end: int
    batch: Batch | None
    epoch: int

    @property
    def size(self) -> int:
        return PIECE_BYTES if self.batch is None else PIECE_BYTES + self.batch.size


PORTIONS_OF_A_CACHE = 32  # of 3 MiB: each is copied, in a turn of its own
EPOCH_MAX = 2**31  # takes records of any leader epoch
PIECE_BYTES = 300  # a piece, its places in two lists and the queue, and a batch object


def epoch_max_of(epoch: int) -> int:
    """The latest leader epoch of the records of a reader that has read up to `epoch` (-1: any)."""
    return epoch if epoch >= 0 else EPOCH_MAX


@dataclass(slots=True)
class _Shelf:
    """The pieces of one source. `starts` repeats their starts, for bisection."""

    starts: list[int] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)

    def covering(self, offset: int) -> int:
        """Index of the piece that covers `offset`; -1 = none."""
        at = bisect_right(self.starts, offset) - 1
        return at if at >= 0 and offset < self.pieces[at].end else -1


class BatchCache:
    """`bytes_max` bounds the bytes held after each `shrink`."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self._shelves: dict[Source, _Shelf] = {}
        # Oldest first. A plain dict would look for its first key over all that were deleted.
        self._queue: OrderedDict[Piece, None] = OrderedDict()

    def add(
        self, source: Source, start: int, batches: list[Batch], end: int, epoch: int = -1
    ) -> None:
        """`batches` are all that consumers may see of [start, end); the first may begin before
        `start`. `epoch`: of the last record there, seen or not. A batch of more than half of the
        cache is left out: it is read again.
        """
        for _ in self.adding(source, start, batches, end, epoch):
            pass

    def adding(
        self, source: Source, start: int, batches: list[Batch], end: int, epoch: int = -1
    ) -> Iterator[None]:
        """The same in steps: one for each portion of a batch that is kept in portions."""
        at = start
        room = max(1, self.bytes_max // 2)  # the first portion has room: else nobody gets on
        for batch in batches:
            begins = min(at, batch.base_offset)
            for portion in portions(batch, self._records_of_a_portion(batch)):
                if portion.last_offset >= start:
                    if room <= 0:
                        return
                    behind = portion.last_offset + 1
                    self._put(Piece(source, begins, behind, portion, batch.leader_epoch))
                    room -= portion.size
                begins = portion.last_offset + 1
                if portion is not batch:
                    yield
            at = begins
        if at < end:
            self._put(Piece(source, at, end, None, epoch))

    def _records_of_a_portion(self, batch: Batch) -> int:
        """All records of the batch, unless it takes more than a portion of the cache."""
        bytes_max = self.bytes_max // PORTIONS_OF_A_CACHE
        return (
            batch.count
            if batch.size <= bytes_max
            else max(1, batch.count * bytes_max // batch.size)
        )

    def _put(self, piece: Piece) -> None:
        shelf = self._shelves.setdefault(piece.source, _Shelf())
        self._drop_replaced(shelf, piece)
        at = bisect_left(shelf.starts, piece.start)
        before = shelf.pieces[at - 1] if at else None
        if before is not None and before.end > piece.start:
            if before.end >= piece.end:
                return
            piece.start = before.end
        behind = at
        while behind < len(shelf.pieces) and shelf.pieces[behind].end <= piece.end:
            behind += 1
        if behind < len(shelf.pieces) and shelf.pieces[behind].start < piece.end:
            # It begins inside ours and ends behind it. Only pieces without a batch have such ends.
            piece.end = shelf.pieces[behind].start
            if piece.end <= piece.start:
                return
        for old in shelf.pieces[at:behind]:
            self._forget(old)
        shelf.pieces[at:behind] = [piece]
        shelf.starts[at:behind] = [piece.start]
        self._queue[piece] = None
        self.bytes += piece.size

    def _drop_replaced(self, shelf: _Shelf, piece: Piece) -> None:
        """Epochs ascend along a log: what is behind the start of `piece` and of an earlier epoch,
        the log has lost.
        """
        pieces = shelf.pieces
        first = bisect_left(shelf.starts, piece.start)
        if first and pieces[first - 1].end > piece.start:
            first -= 1
        stop = first
        while stop < len(pieces) and pieces[stop].epoch < piece.epoch:
            stop += 1
        for old in shelf.pieces[first:stop]:
            self._forget(old)
        del shelf.pieces[first:stop]
        del shelf.starts[first:stop]

    def _forget(self, piece: Piece) -> None:
        del self._queue[piece]
        self.bytes -= piece.size
        piece.batch = None

    def columns(self, source: Source, position: int, offsets_max: int) -> Columns | None:
        """The unbroken stretch of one epoch from `position` on, at most `offsets_max` offsets; None
        if there is none.
        """
        shelf = self._shelves.get(source)
        at = -1 if shelf is None else shelf.covering(position)
        if shelf is None or at < 0:
            return None
        limit = position + offsets_max
        columns = Columns(position, position, [], [], shelf.pieces[at].epoch)
        while at < len(shelf.pieces) and columns.end < limit:
            piece = shelf.pieces[at]
            if piece.start > columns.end or piece.epoch != columns.epoch:
                break
            if piece.batch is not None:
                _take(columns, piece.batch, limit)
            columns.end = min(piece.end, limit)
            at += 1
        return columns

    def piece(self, source: Source, offset: int) -> Piece | None:
        """The piece that covers `offset`; None = it has to be read."""
        shelf = self._shelves.get(source)
        at = -1 if shelf is None else shelf.covering(offset)
        return None if shelf is None or at < 0 else shelf.pieces[at]

    def oldest_from(self, source: Source, position: int) -> tuple[int, int] | None:
        """Offset and timestamp (ms since the epoch, -1: none) of the first record at `position` or
        behind it. None: there is none in the unbroken stretch that is held.
        """
        shelf = self._shelves.get(source)
        at = -1 if shelf is None else shelf.covering(position)
        while shelf is not None and 0 <= at < len(shelf.pieces):
            piece = shelf.pieces[at]
            if piece.start > position:
                return None
            if piece.batch is not None:
                found = oldest_of(piece.batch, position)
                if found is not None:
                    return found
            position = piece.end
            at += 1
        return None

    def is_long(self, source: Source, offsets: list[int]) -> bool:
        """Slices of these offsets (ascending) may be more bytes than one step should copy."""
        shelf = self._shelves.get(source)
        if shelf is None or not offsets:
            return False
        first, last = shelf.covering(offsets[0]), shelf.covering(offsets[-1])
        if first == last:  # nearly always
            return first >= 0 and shelf.pieces[first].size > LONG_STEP_BYTES
        pieces = shelf.pieces[max(first, 0) : last + 1]
        return sum(piece.size for piece in pieces) > LONG_STEP_BYTES

    def slices(
        self,
        source: Source,
        offsets: list[int],
        records_max: int,
        bytes_max: int,
        epoch_max: int = EPOCH_MAX,
    ) -> bytes | LongBytes | None:
        """The records at `offsets` (ascending) as batches; None = some have to be read. Records of
        a later epoch than `epoch_max` are not those that are meant. Raises RecordsGone,
        RecordsLarge, RecordsReplaced.
        """
        shelf = self._shelves.get(source)
        if shelf is None:
            return None
        pieces: list[Piece] = []
        at = 0
        while at < len(offsets):
            index = shelf.covering(offsets[at])
            if index < 0:
                return None
            piece = shelf.pieces[index]
            pieces.append(piece)
            at = bisect_left(offsets, piece.end, at)
        out = Cut(offsets, records_max, bytes_max, epoch_max)
        for piece in pieces:
            out.add(piece.end, piece.batch)
        return out.done()

    def forget_below(self, source: Source, offset: int) -> None:
        """Nobody needs anything below `offset` again."""
        shelf = self._shelves.get(source)
        if shelf is None:
            return
        count = bisect_right(shelf.starts, offset)
        if count and shelf.pieces[count - 1].end > offset:
            count -= 1
        self._remove(source, shelf, 0, count)

    def forget_from(self, source: Source, offset: int) -> None:
        """The log has lost what it had from `offset` on."""
        shelf = self._shelves.get(source)
        if shelf is not None:
            first = bisect_right(shelf.starts, offset)
            if first and shelf.pieces[first - 1].end > offset:
                first -= 1
            self._remove(source, shelf, first, len(shelf.pieces))

    def forget(self, source: Source) -> None:
        shelf = self._shelves.get(source)
        if shelf is not None:
            self._remove(source, shelf, 0, len(shelf.pieces))

    def _remove(self, source: Source, shelf: _Shelf, first: int, stop: int) -> None:
        for piece in shelf.pieces[first:stop]:
            self._forget(piece)
        del shelf.pieces[first:stop]
        del shelf.starts[first:stop]
        if not shelf.pieces:
            del self._shelves[source]

    def shrink(self) -> int:
        """Drops the oldest pieces until the bound holds; returns how many were dropped for that."""
        count = 0
        while self._queue and self.bytes > self.bytes_max:
            piece = next(iter(self._queue))
            shelf = self._shelves[piece.source]
            at = bisect_left(shelf.starts, piece.start)
            self._remove(piece.source, shelf, at, at + 1)
            count += 1
        return count

    def check_invariants(self) -> None:
        """Recounts the figures that are kept for speed. For tests."""
        held = [piece for shelf in self._shelves.values() for piece in shelf.pieces]
        assert self.bytes == sum(piece.size for piece in held)
        assert set(held) == self._queue.keys()
        for shelf in self._shelves.values():
            assert shelf.pieces
            assert shelf.starts == [piece.start for piece in shelf.pieces]
            for piece, following in zip(shelf.pieces, shelf.pieces[1:], strict=False):
                assert piece.start < piece.end <= following.start


def oldest_of(batch: Batch, position: int) -> tuple[int, int] | None:
    """Offset and timestamp of the batch's first record at `position` or behind it."""
    at = bisect_left(batch.offsets, position)
    return None if at == batch.count else (batch.offsets[at], timestamp_at(batch, at))


def _take(columns: Columns, batch: Batch, limit: int) -> None:
    """Appends the records of `batch` in [columns.end, limit)."""
    first = 0
    if batch.base_offset < columns.end:
        first = bisect_left(batch.offsets, columns.end)
    stop = batch.count
    if batch.last_offset >= limit:
        stop = bisect_left(batch.offsets, limit)
    if first == 0 and stop == batch.count:
        columns.offsets += batch.offsets
        columns.keys += batch.keys
    else:
        columns.offsets += batch.offsets[first:stop]
        columns.keys += batch.keys[first:stop]


class Cut:
    """Slices of pieces that hold exactly `offsets` (ascending), at most `bytes_max` of them; a
    piece at a time, so that the batches of records that lie far apart need not be held at once.
    """

    def __init__(
        self, offsets: list[int], records_max: int, bytes_max: int, epoch_max: int = EPOCH_MAX
    ) -> None:
        self._epoch_max = epoch_max
        self._offsets = offsets
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._at = 0
        self._parts: list[bytes | memoryview] = []
        self._size = 0
        self._gone: list[int] = []

    def next(self) -> int | None:
        """The offset that the next piece has to cover; None = all is cut."""
        return self._offsets[self._at] if self._at < len(self._offsets) else None

    def add(self, end: int, batch: Batch | None) -> None:
        """The piece that covers `next` and ends at `end`. Raises RecordsLarge,
        RecordsReplaced.
        """
        offsets, first = self._offsets, self._at
        stop = self._at = bisect_left(offsets, end, first)
        wanted = offsets if stop - first == len(offsets) else offsets[first:stop]
        if batch is None:
            self._gone += wanted
            return
        if batch.leader_epoch > self._epoch_max:
            if not set(batch.offsets).isdisjoint(wanted):
                raise RecordsReplaced
            self._gone += wanted  # by compaction: a piece begins with the hole before its batch
            return
        try:
            part = select_long(batch, wanted, records_max=self._records_max)
        except ValueError:
            held = set(batch.offsets)
            self._gone += [offset for offset in wanted if offset not in held]
            return
        left = self._bytes_max - self._size
        if len(part) > left:
            # Of this batch's own records as many as their share of the bytes.
            raise RecordsLarge(first + len(wanted) * max(left, 0) // len(part))
        self._size += len(part)
        if isinstance(part, LongBytes):
            self._parts += part.parts
        else:
            self._parts.append(part)

    def done(self) -> bytes | LongBytes:
        """Raises RecordsGone."""
        if self._gone:
            raise RecordsGone(self._gone)
        return together(self._parts)
