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
        # What was sent last, as long as nothing later of its keys can have gone to another member.
        self.sent: list[tuple[int, Key]] = []
        self.back = 0  # records in front that were sent before, and could not be
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
        self.back = max(0, self.back - len(taken))
        return taken

    def send(self, count: int) -> list[int]:
        """As `take`; they may come back."""
        sent = [(self.offsets[at], self.keys[at]) for at in range(min(count, self.waiting()))]
        if sent:
            self.sent = sent
        return self.take(count)

    def put_back(self, offsets: list[int]) -> int:
        """Of what was sent last, these records could not be: they are the next ones again, but for
        those that a later one of their key is ahead of. Returns how many.
        """
        missing = set(offsets)
        back: list[tuple[int, Key]] = []
        ahead: dict[Key, None] = {}
        kept: list[tuple[int, Key]] = []
        for offset, key in reversed(self.sent):
            if offset in missing and (key is None or key not in ahead):
                back.append((offset, key))
            else:
                ahead[key] = None
                kept.append((offset, key))
        self.sent = kept[::-1]
        self.offsets = [offset for offset, _ in back[::-1]] + self.offsets
        self.keys = [key for _, key in back[::-1]] + self.keys
        self.back += len(back)
        return len(back)

    def keep(self, count: int) -> int:
        """Keeps only the oldest `count` records; returns how many waited besides."""
        besides = len(self.offsets[count:])
        del self.offsets[count:]
        del self.keys[count:]
        self.back = min(self.back, count)
        return besides

    def forget_below(self, floor: int) -> int:
        """Returns how many waited there."""
        return len(self.take(bisect_left(self.offsets, floor)))
