"""The windows that the watchdog's next tick concerns.

A node has thousands of windows, and in most of them nothing happens: a node at rest would spend its
time with a walk of all of them at each tick. So a window is ticked after something has happened in
it, and then not before the time that it names itself (dispatcher/core/events/ticking.py).

Times are kept in slots of one tick, since many windows share one: a window that changes its time
leaves nothing behind. A slot comes up when it begins, so a window may be ticked once too early, and
is never ticked later than by a walk of all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import heappop, heappush

from dispatcher.core.events.ticking import NEVER
from gateway.members.limits import TICK_MS
from gateway.windows.window import Window


@dataclass(slots=True)
class TickSchedule:
    stirred: dict[Window, None] = field(default_factory=dict)  # the next tick concerns them
    _stirred_of: Counter[str] = field(default_factory=Counter)  # by group
    _changes: int = 0  # times that something began to happen in a window, or a group was forgotten
    _changed_at: dict[str, int] = field(default_factory=dict)  # the last of them, by group
    _forgotten_at: int = 0
    _slot_of: dict[Window, int] = field(default_factory=dict)
    _slots: dict[int, dict[Window, None]] = field(default_factory=dict)
    _order: list[int] = field(default_factory=list)  # a heap of the slots

    def stir(self, window: Window) -> None:
        """Something has happened in it."""
        if window not in self.stirred:
            self.stirred[window] = None
            self._changes += 1
            self._changed_at[window.key.group] = self._changes
            self._stirred_of[window.key.group] += 1

    def take(self, now_ms: int) -> list[Window]:
        """The windows to be ticked now. `rests` must follow for each that is still open."""
        taken, self.stirred = self.stirred, {}
        self._stirred_of.clear()
        while self._order and self._order[0] <= now_ms // TICK_MS:
            for window in self._slots.pop(heappop(self._order)):
                del self._slot_of[window]
                taken[window] = None
        return list(taken)

    def rests(self, window: Window, due_ms: int, now_ms: int) -> None:
        """The window was ticked at `now_ms`, and is due next at `due_ms`, or NEVER."""
        slot = due_ms // TICK_MS
        if slot == self._slot_of.get(window):
            return
        self._leave(window)
        if due_ms == NEVER:
            return
        if slot <= now_ms // TICK_MS:
            self.stir(window)
            return
        self._slot_of[window] = slot
        if slot not in self._slots:
            self._slots[slot] = {}
            heappush(self._order, slot)
        self._slots[slot][window] = None

    def forget(self, window: Window) -> None:
        """The window is closed."""
        if window in self.stirred:
            del self.stirred[window]
            self._stirred_of[window.key.group] -= 1
        self._leave(window)
        self._changes += 1
        self._changed_at[window.key.group] = self._changes

    def forget_group(self, group: str) -> None:
        """The group's last window is closed."""
        self._changed_at.pop(group, None)
        self._stirred_of.pop(group, None)
        self._changes += 1
        self._forgotten_at = self._changes

    def rest_of(self, group: str) -> int | None:
        """A number that stays the same while nothing happens in the group's windows. None:
        something happens.
        """
        if self._stirred_of.get(group):
            return None
        return self._changed_at.get(group, self._forgotten_at)

    def _leave(self, window: Window) -> None:
        slot = self._slot_of.pop(window, None)
        if slot is not None:
            del self._slots[slot][window]
