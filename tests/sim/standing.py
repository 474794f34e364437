"""Windows that stand still, judged from outside: one with unread records, and with a member that
has nothing to do, reads on or tells which record it waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dispatcher.core.model import JoinPolicy
from tests.sim.checkers import CheckFailure

if TYPE_CHECKING:
    from tests.sim.window import Window

STANDS_MS = 5_000  # reads, and some ticks: two see that the front is slow


class Standing:
    """Of one window."""

    def __init__(self) -> None:
        self._place = (-1, -1)  # the core and its read position
        self._since_ms = 0

    def look(self, window: Window, waiting: Sequence[str], now_ms: int) -> None:
        """`waiting`: members that wait for records."""
        core = window.core
        told = core is not None and (core.holder >= 0 or window.kept_to is not None)
        if core is None or told or core.read_position >= window.log.end:
            self._place = (-1, -1)
            return
        place = (window.incarnation, core.read_position)
        if place != self._place or not any(_is_idle(window, name) for name in waiting):
            self._place, self._since_ms = place, now_ms
        elif now_ms - self._since_ms >= STANDS_MS:
            what = f"{window!r} {core} of {window.log.end}, {waiting} wait: {core.stats()}"
            raise CheckFailure("StandsStill", what)


def _is_idle(window: Window, name: str) -> bool:
    """Certainly; a member that joined with a limit is kept from what is unread by its limit."""
    checkers = window.checkers
    limited = checkers.policy.join_policy is JoinPolicy.LAST_SENT and name in checkers.joined
    return checkers.may_hold_more(name) and name not in checkers.silence.silent and not limited
