"""Requests that a node reads whole on their way upstream: one limit for all of them together.

While a topic gets other partitions each Produce request is looked at, and so held until it is all
there. What is beyond the limit waits: its client is read no further until others are through. A
request that may be read has room for all of its bytes, so it can always be finished; and if there
is no other one, it may be of any size.
"""

from __future__ import annotations


class Turns:
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.total = 0  # of the requests that are being read, with the bytes that are to come
        self._reading: dict[int, tuple[int, int]] = {}  # by connection: size, since when
        self._came_ms: dict[int, int] = {}  # by connection: when the last of it came
        self._waiting: dict[int, int] = {}  # sizes by connection, the oldest first

    def begin(self, connection: int, size: int, now_ms: int) -> bool:
        """False: its turn comes with the `end` of another one."""
        assert connection not in self._reading
        if self._waiting or not self._fits(size):
            self._waiting[connection] = size
            return False
        self._read(connection, size, now_ms)
        return True

    def end(self, connection: int, now_ms: int) -> list[int]:
        """The request is through, or given up. The connections whose turn has come."""
        self._waiting.pop(connection, None)
        self.total -= self._reading.pop(connection, (0, 0))[0]
        self._came_ms.pop(connection, None)
        found = []
        while self._waiting:
            oldest, size = next(iter(self._waiting.items()))
            if not self._fits(size):
                break
            del self._waiting[oldest]
            self._read(oldest, size, now_ms)
            found.append(oldest)
        return found

    def came(self, connection: int, now_ms: int) -> None:
        """Some more of the request that is being read."""
        if connection in self._reading:
            self._came_ms[connection] = now_ms

    def overdue(self, now_ms: int, reading_ms: int, still_ms: int) -> list[int]:
        """Those that others wait for, and that have been read for so long, or of which nothing has
        come for `still_ms`.
        """
        if not self._waiting:
            return []
        return [
            connection
            for connection, (_, since_ms) in self._reading.items()
            if now_ms - since_ms >= reading_ms or now_ms - self._came_ms[connection] >= still_ms
        ]

    def _fits(self, size: int) -> bool:
        return not self._reading or self.total + size <= self.bytes_max

    def _read(self, connection: int, size: int, now_ms: int) -> None:
        self._reading[connection] = (size, now_ms)
        self._came_ms[connection] = now_ms
        self.total += size
