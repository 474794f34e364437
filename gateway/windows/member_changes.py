"""Tells windows about members that joined or left, a few windows at a time.

A join concerns every partition of the topics it subscribes to, and costs each of their windows a
pass over all members and all unsettled records. With 1,000 partitions and 1,000 members that is
most of a second, in which nothing else would happen. So the first windows are told at once, and the
rest in small portions between other work. Partitions owe each other no order, so each window may be
told at its own moment. Until a window is told of a join, it hands records only to the members it
knows; a fetch of the new member finds nothing there and is woken once the window knows. Until a
window is told of a leave, it keeps assigning keys to the departed member. The records that it held
went back with its session, or come back with the news that it was evicted.

Several changes that wait for one window are merged into one, unless that would hide that a member
left and came back, or why several members left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from dispatcher.core.model import Member, MembersChanged, Reason, present
from gateway.members.groups import TopicMembersChanged
from gateway.windows.limits import MEMBER_CHANGES_AT_ONCE
from gateway.windows.window import Window

_NOBODY: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Change:
    """A change that a window is told in one event, and the members that left by it."""

    moved: TopicMembersChanged
    gone: frozenset[str]


@dataclass(slots=True)
class MemberChanges:
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    now_ms: Callable[[], int]
    _waiting: dict[Window, list[_Change]] = field(default_factory=dict)
    _last: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)  # group, topic
    _of: tuple[Member, ...] = ()
    _there: frozenset[str] = _NOBODY  # of those
    _telling: bool = False

    def tell(self, moved: TopicMembersChanged, windows: Iterable[Window]) -> None:
        """Tells each of `windows`, after the changes that already wait for it."""
        place = (moved.group, moved.topic)
        before = self._last.pop(place, _NOBODY)
        if self._of is not moved.members:  # topics with the same members follow each other
            self._of = moved.members
            self._there = frozenset(str(member.member_id) for member in present(moved.members))
        there = self._there
        if there:
            self._last[place] = there
        gone, come = before - there, there - before
        for window in windows:
            changes = self._waiting.setdefault(window, [])
            if changes and (joint := _together(changes[-1], moved, gone, come)) is not None:
                changes[-1] = joint
            else:
                changes.append(_Change(moved, gone))
        if not self._telling and self._tell_some():
            self._telling = True
            self.spawn(self._tell_the_rest())

    def knows(self, window: Window) -> None:
        """Forgets the changes for a window that was told all current members, or is closed."""
        self._waiting.pop(window, None)

    def _tell_some(self) -> bool:
        """Returns whether more windows wait."""
        left = MEMBER_CHANGES_AT_ONCE
        while self._waiting and left > 0:
            window, changes = next(iter(self._waiting.items()))
            moved = changes.pop(0).moved
            if not changes:
                del self._waiting[window]
            window.post(MembersChanged(moved.members, self.now_ms(), moved.reason))
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
    change: _Change, moved: TopicMembersChanged, gone: frozenset[str], come: frozenset[str]
) -> _Change | None:
    """Both changes as one; None if a window must be told one after the other."""
    if come & change.gone or (gone and change.gone and moved.reason is not change.moved.reason):
        return None
    reason: Reason = moved.reason if gone else change.moved.reason
    return _Change(replace(moved, reason=reason), change.gone | gone)
