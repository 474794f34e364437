"""Changes as the commands of window.lua's steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from dispatcher.core.epochs import NOT_KNOWN, Epochs
from dispatcher.core.limits import CHUNK_OFFSETS
from dispatcher.core.steps import (
    AsideSet,
    BitsSet,
    Change,
    CursorMoved,
    EpochsMoved,
    LeaseEnded,
    LeaseExtended,
    LeaseTaken,
    RetriesForgotten,
    RetryNoted,
)
from dispatcher.core.stored.packing import pack_deadline, pack_lease, pack_retry

Argument = bytes | int

WORDS_MAX = 2_000  # behind the key of one command: Lua's stack takes 8,000
_BITS = b":bits:%d"


class Kept:
    """The state of a window in Redis, but for the numbers of its steps and sends."""

    def __init__(
        self, cursor: int, front: int, chunk: int, high: int, aside: int, epochs: Epochs
    ) -> None:
        self.cursor = cursor
        self.front = front
        self.chunk = chunk  # the front's
        self.high = high  # the highest chunk that was written, perhaps below that
        self.aside = aside
        self.epochs = epochs

    def words(self) -> bytes:
        return b"%d %d %d %d %d %b" % (
            self.cursor,
            self.front,
            self.chunk,
            self.high,
            self.aside,
            _epoch_words(self.epochs),
        )


def kept_of(words: Sequence[bytes]) -> Kept:
    """Reads the words that `Kept.words` has written, also a node that knew no epoch, or one epoch
    and not where it began. Raises ValueError.
    """
    cursor, front, chunk, high, aside, *rest = [int(word) for word in words]
    return Kept(cursor, front, chunk, high, aside, _epochs_of(rest))


def _epoch_words(epochs: Epochs) -> bytes:
    """The last epoch first: a node that knows of one reads that. Behind each is where it begins."""
    if not epochs:
        return b"%d" % NOT_KNOWN
    return b" ".join([b"%d %d" % one for one in reversed(epochs)])


def _epochs_of(words: list[int]) -> Epochs:
    if not words or words[0] < 0:
        return ()
    starts = words[1::2] or [NOT_KNOWN]
    return tuple(reversed(list(zip(words[::2], starts, strict=True))))


def new_kept() -> Kept:
    """The state of a window of which nothing is written."""
    return Kept(0, 0, 0, -1, 0, ())


def operations(  # noqa: C901 - one case per change
    changes: Sequence[Change], before: Kept
) -> tuple[list[Argument], Kept]:
    """The commands, in the order of `changes`, and the state after them. Neighbours of a kind share
    one command, up to WORDS_MAX.
    """
    out = _Commands()
    kept = Kept(before.cursor, before.front, before.chunk, before.high, before.aside, before.epochs)
    for change in changes:
        match change:
            case LeaseEnded():
                out.add(b"HDEL", b":leases", change.lease_id)
            case LeaseTaken():
                out.add_pair(b":leases", change.lease_id, pack_lease(change))
            case BitsSet():
                # Below the front's chunk they say nothing any more, and nothing would delete them.
                if change.chunk >= kept.chunk:
                    out.close()
                    name = _BITS % change.chunk
                    out.words += (4, b"SETRANGE", name, change.byte_at, change.data)
                    kept.high = max(kept.high, change.chunk)
            case CursorMoved():
                out.close()
                chunk = change.front // CHUNK_OFFSETS
                for number in range(kept.chunk, min(chunk - 1, kept.high) + 1):
                    out.words += (2, b"DEL", _BITS % number)
                cursor, front, aside = change.cursor, change.front, change.aside
                kept = Kept(cursor, front, chunk, kept.high, aside, kept.epochs)
            case RetryNoted():
                out.add_pair(b":retries", change.offset, pack_retry(change))
            case RetriesForgotten():
                for offset in change.offsets:
                    out.add(b"HDEL", b":retries", offset)
            case AsideSet():
                if change.data:
                    out.add_pair(b":aside", change.stretch, change.data)
                else:
                    out.add(b"HDEL", b":aside", change.stretch)
            case LeaseExtended():
                out.close()
                deadline = pack_deadline(change.deadline_ms)
                out.words += (3, b"EXTEND", change.lease_id, deadline)
            case EpochsMoved():
                kept.epochs = change.epochs
            case _:
                assert_never(change)
    out.close()
    return out.words, kept


class _Commands:
    def __init__(self) -> None:
        self.words: list[Argument] = []
        self._command = b""  # the command that `_items` are collected for
        self._suffix = b""
        self._items: list[Argument] = []

    def add(self, command: bytes, suffix: bytes, item: int) -> None:
        self._go_on(command, suffix)
        self._items.append(item)

    def add_pair(self, suffix: bytes, field: int, data: bytes) -> None:
        self._go_on(b"HSET", suffix)
        self._items.append(field)
        self._items.append(data)

    def _go_on(self, command: bytes, suffix: bytes) -> None:
        same = command == self._command and suffix == self._suffix
        if not same or len(self._items) >= WORDS_MAX:
            self.close()
            self._command, self._suffix = command, suffix

    def close(self) -> None:
        if self._items:
            self.words += (2 + len(self._items), self._command, self._suffix)
            self.words += self._items
            self._items = []
