"""The bytes that a node holds for its connections: one limit for all of them together.

A connection that holds much is closed only when the sum is beyond the limit, the largest first. So
many connections may hold a little and a few may hold much, and an ordinary client, with requests of
some hundred bytes, is never the one.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class _Holding:
    bytes: int
    since_ms: int  # when it was last nothing
    moved_ms: int  # when it was last more or less than before


@dataclass(slots=True)
class HeldBytes:
    """The bytes of one kind that connections hold: requests that are being collected, or answers
    that are not yet written.
    """

    bytes_max: int
    total: int = 0
    _holdings: dict[int, _Holding] = field(default_factory=dict)  # by connection

    def hold(self, connection: int, held: int, now_ms: int) -> None:
        """From now on the connection holds this many bytes; 0: none."""
        holding = self._holdings.get(connection)
        before = 0 if holding is None else holding.bytes
        if held == before:
            return
        self.total += held - before
        if held == 0:
            del self._holdings[connection]
        elif holding is None:
            self._holdings[connection] = _Holding(held, now_ms, now_ms)
        else:
            holding.bytes, holding.moved_ms = held, now_ms

    def held(self, connection: int) -> int:
        holding = self._holdings.get(connection)
        return 0 if holding is None else holding.bytes

    def holders(self) -> list[int]:
        return list(self._holdings)

    @property
    def left(self) -> int:
        """Below the limit; never negative."""
        return max(0, self.bytes_max - self.total)

    def excess(
        self, now_ms: int, *, resting_ms: int = 0, held_ms: int = 0, bytes_min: int = 1
    ) -> list[int]:
        """The connections to close so that the rest fits: the largest first. One whose bytes
        moved less than `resting_ms` ago, or that began to hold some less than `held_ms` ago, or
        that holds less than `bytes_min`, stays.
        """
        over = self.total - self.bytes_max
        if over <= 0:
            return []
        resting = [
            (holding.bytes, connection)
            for connection, holding in self._holdings.items()
            if holding.bytes >= bytes_min
            and now_ms - holding.moved_ms >= resting_ms
            and now_ms - holding.since_ms >= held_ms
        ]
        found = []
        for held, connection in sorted(resting, key=lambda pair: (-pair[0], pair[1])):
            if over <= 0:
                break
            over -= held
            found.append(connection)
        return found

    def stalled(self, now_ms: int, *, resting_ms: int, bytes_min: int = 1) -> list[int]:
        """Connections that hold so much, none of which moved for so long."""
        return [
            connection
            for connection, holding in self._holdings.items()
            if holding.bytes >= bytes_min and now_ms - holding.moved_ms >= resting_ms
        ]

    def check_invariants(self) -> None:
        assert self.total == sum(holding.bytes for holding in self._holdings.values())
        assert all(holding.bytes > 0 for holding in self._holdings.values())
