"""The records of an unreliable group that wait for one member."""

from __future__ import annotations

from bisect import bisect_left

from dispatcher.core.model import Key, MemberId
from dispatcher.core.routing.silence import Attention


class Outbox:
    """Records that wait for one member: ascending offsets, and their keys."""

    def __init__(self, member_id: MemberId, now_ms: int) -> None:
        self.member_id = member_id
        self.attention = Attention(now_ms)
        self.offsets: list[int] = []
        self.keys: list[Key] = []
        self.dropped = 0  # records, since it joined
        self.saturated = False  # since the box dropped something, until it is half free again
        self.told = False  # of that
        self.awake = False

    def __repr__(self) -> str:
        return f"<{self.member_id} waiting={self.waiting()} dropped={self.dropped}>"

    def waiting(self) -> int:
        return len(self.offsets)

    def put(self, offset: int, key: Key) -> None:
        self.offsets.append(offset)
        self.keys.append(key)

    def records(self) -> list[tuple[int, Key]]:
        return [(self.offsets[at], self.keys[at]) for at in range(len(self.offsets))]

    def take(self, count: int) -> list[int]:
        """The oldest `count` offsets, fewer if there are fewer."""
        taken = self.offsets[:count]
        del self.offsets[:count]
        del self.keys[:count]
        return taken

    def keep(self, count: int) -> int:
        """Keeps only the oldest `count` records; returns how many waited besides."""
        besides = len(self.offsets[count:])
        del self.offsets[count:]
        del self.keys[count:]
        return besides

    def forget_below(self, floor: int) -> int:
        """Returns how many waited there."""
        return len(self.take(bisect_left(self.offsets, floor)))
