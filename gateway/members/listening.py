"""A clock for the silence of members, which stands still while the node is deaf."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.members.limits import TICK_MS


@dataclass(slots=True)
class Listening:
    """Counts only the time in which the node could hear its members. After a standstill (a frozen
    machine, a long request) their heartbeats are still unread: that time is not their silence.
    """

    _deaf_ms: int = 0
    _ticked_ms: int | None = None

    def of(self, now_ms: int) -> int:
        """`now_ms` on this clock."""
        return now_ms - self._deaf_ms

    def tick(self, now_ms: int) -> int:
        """Called every TICK_MS. Leaves out its own delay, beyond one more tick."""
        if self._ticked_ms is not None:
            self._deaf_ms += max(0, now_ms - self._ticked_ms - 2 * TICK_MS)
        self._ticked_ms = now_ms
        return self.of(now_ms)
