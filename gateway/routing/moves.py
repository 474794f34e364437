"""How long moves of virtual brokers have been pending, as this node has seen them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class PendingMoves:
    clock: Callable[[], float]  # seconds
    _since_s: dict[tuple[int, str], float] = field(default_factory=dict)  # and its next owner

    def look(self, next_owners: Mapping[int, str]) -> None:
        now_s = self.clock()
        self._since_s = {move: self._since_s.get(move, now_s) for move in next_owners.items()}

    def longest_s(self) -> float:
        """How long the oldest move has been waiting, in seconds; 0: there is none."""
        return self.clock() - min(self._since_s.values()) if self._since_s else 0.0
