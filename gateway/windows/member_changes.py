"""Tells windows of members that came or went, a few windows at a time.

A join concerns every partition of its topics and costs each of them a pass over all members and all
that is not settled: 1,000 partitions of 1,000 members are most of a second, in which nothing else
would happen. So the first windows are told at once and the others between other work, each at a
moment of its own: partitions owe each other no order. A window that has not heard of a member yet
hands out to those it knows; a fetch of the newcomer finds nothing there and is woken when the
window has heard. One that has not heard of a leave lists keys for whoever left until it has; what
that member held went back with its session.

A window hears of all that came together at once, unless that would hide something: that a member
was gone and came back, or why several went.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from dispatcher.core.model import Reason
from gateway.members.groups import TopicMembersChanged
from gateway.windows.limits import MOVES_AT_ONCE
from gateway.windows.window import Window

_NOBODY: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Move:
    """What a window is to hear at once, and who is gone by it."""

    moved: TopicMembersChanged
    gone: frozenset[str]


@dataclass(slots=True)
class Moves:
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    _waiting: dict[Window, list[_Move]] = field(default_factory=dict)
    _last: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)  # group, topic
    _telling: bool = False

    def tell(self, moved: TopicMembersChanged, windows: Iterable[Window]) -> None:
        """Each of `windows` hears of it, after what it has not heard of yet."""
        place = (moved.group, moved.topic)
        before = self._last.pop(place, _NOBODY)
        there = frozenset(str(member.member_id) for member in moved.members)
        if there:
            self._last[place] = there
        gone, come = before - there, there - before
        for window in windows:
            moves = self._waiting.setdefault(window, [])
            if moves and (joint := _together(moves[-1], moved, gone, come)) is not None:
                moves[-1] = joint
            else:
                moves.append(_Move(moved, gone))
        if not self._telling and self._tell_some():
            self._telling = True
            self.spawn(self._tell_the_rest())

    def knows(self, window: Window) -> None:
        """It was told of all members as they are now, or needs to hear nothing any more."""
        self._waiting.pop(window, None)

    def _tell_some(self) -> bool:
        """True: there are more."""
        left = MOVES_AT_ONCE
        while self._waiting and left > 0:
            window, moves = next(iter(self._waiting.items()))
            moved = moves.pop(0).moved
            if not moves:
                del self._waiting[window]
            window.members_changed(moved.members, moved.reason)
            left -= 1 + len(moved.members) + window.unsettled_span
        return bool(self._waiting)

    async def _tell_the_rest(self) -> None:
        try:
            while True:
                await asyncio.sleep(0)
                if not self._tell_some():
                    break
        finally:
            self._telling = False


def _together(
    move: _Move, moved: TopicMembersChanged, gone: frozenset[str], come: frozenset[str]
) -> _Move | None:
    """Both at once; None if a window has to hear of one after the other."""
    if come & move.gone or (gone and move.gone and moved.reason is not move.moved.reason):
        return None
    reason: Reason = moved.reason if gone else move.moved.reason
    return _Move(replace(moved, reason=reason), move.gone | gone)
