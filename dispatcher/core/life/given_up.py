"""Records that a group gives up without having read them: the records of a batch that is too large
when decompressed.
"""

from __future__ import annotations

from dispatcher.core.dispatcher import Core
from dispatcher.core.life.commands import Command, Tell
from dispatcher.core.model import PoisonPolicy, Policy, RecordsRead


class GivenUp:
    def __init__(self) -> None:
        self._drops = False
        self._first = 0  # given up by an operator last: [first, end)
        self._end = 0

    def by_policy(self, policy: Policy) -> None:
        """`exhausted: drop` gives everything up. There is nothing that could be written to a
        dead-letter topic, so DEAD_LETTER waits for an operator, as BLOCK.
        """
        self._drops = policy.exhausted is PoisonPolicy.DROP

    def by_operator(self, first: int, end: int) -> None:
        """The span may leave room for a part of [first, end) at first."""
        self._first, self._end = first, end

    def too_large(self, core: Core | None, first: int, end: int, now_ms: int) -> list[Command]:
        """The batch of [first, end) is too large. If the window has come there and gives it up, it
        is a hole of the log; else the window waits.
        """
        if core is None or first != core.read_position or not self._gives_up(core, first, end):
            return []
        return [Tell(RecordsRead(first, end, [], [], now_ms))]

    def _gives_up(self, core: Core, first: int, end: int) -> bool:
        """By the policy, by an operator, or because all of it is settled, given up before a
        restart. O(span).
        """
        if self._drops or self._first <= first < self._end:
            return True
        return any(low <= first and end - 1 <= high for low, high in core.settled_ranges())
