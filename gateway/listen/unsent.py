"""The bytes that were read from clients and that upstream has not taken: one bound for the node.

One connection alone is bounded by pauses: a client is not read while its upstream takes nothing.
But what a pause comes after is a whole read, and there are thousands of clients. So while all of
them together are beyond the bound, each read brings a small piece. Nobody is closed, and requests
whose upstream takes them pass as before, in more reads.

All client sockets are read into one buffer: each read is over before the next one begins. It is at
the beginning of a page: 16 bytes behind one, the system takes three times as long to fill it.
"""

from __future__ import annotations

import mmap
from typing import Final

from gateway.listen.limits import READ_BYTES_MAX, SMALL_READ_BYTES, UNSENT_BYTES_MAX


class Unsent:
    def __init__(self) -> None:
        self.bytes_max = UNSENT_BYTES_MAX
        self.total = 0
        self.whole: Final = memoryview(mmap.mmap(-1, READ_BYTES_MAX))
        self.buffer = self.whole  # for the next read
        self._small: Final = self.whole[:SMALL_READ_BYTES]

    @property
    def full(self) -> bool:
        return self.buffer is self._small

    def add(self, more: int) -> None:
        """Negative: so many bytes less."""
        self.total += more
        self.buffer = self.whole if self.total <= self.bytes_max else self._small


class UnsentOfOne:
    """The share of one connection."""

    def __init__(self, of_all: Unsent) -> None:
        self._of_all = of_all
        self._held = 0

    def hold(self, held_bytes: int) -> None:
        if held_bytes != self._held:
            self._of_all.add(held_bytes - self._held)
            self._held = held_bytes
