"""The windows that the watchdog's next tick concerns.

A node has thousands of windows, and in most of them nothing happens: a node at rest would spend its
time with a walk of all of them at each tick. So a window is ticked after something has happened in
it, and then not before the time that it names itself (dispatcher/core/ticking.py).

Times are kept in slots of one tick, since many windows share one: a window that changes its time
leaves nothing behind. A slot comes up when it begins, so a window may be ticked once too early, and
is never ticked later than by a walk of all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

from dispatcher.core.ticking import NEVER
from gateway.members.limits import TICK_MS
from gateway.windows.window import Window


@dataclass(slots=True)
class TickSchedule:
    stirred: dict[Window, None] = field(default_factory=dict)  # the next tick concerns them
    _slot_of: dict[Window, int] = field(default_factory=dict)
    _slots: dict[int, dict[Window, None]] = field(default_factory=dict)
    _order: list[int] = field(default_factory=list)  # a heap of the slots

    def stir(self, window: Window) -> None:
        """Something has happened in it."""
        self.stirred[window] = None

    def take(self, now_ms: int) -> list[Window]:
        """Those to be ticked now. `rests` must follow for each that stays."""
        taken, self.stirred = self.stirred, {}
        while self._order and self._order[0] <= now_ms // TICK_MS:
            for window in self._slots.pop(heappop(self._order)):
                del self._slot_of[window]
                taken[window] = None
        return list(taken)

    def rests(self, window: Window, due_ms: int, now_ms: int) -> None:
        """It was ticked at `now_ms`, and is due next at `due_ms`, or NEVER."""
        slot = due_ms // TICK_MS
        if slot == self._slot_of.get(window):
            return
        self._leave(window)
        if due_ms == NEVER:
            return
        if slot <= now_ms // TICK_MS:
            self.stirred[window] = None
            return
        self._slot_of[window] = slot
        if slot not in self._slots:
            self._slots[slot] = {}
            heappush(self._order, slot)
        self._slots[slot][window] = None

    def forget(self, window: Window) -> None:
        """It is closed."""
        self.stirred.pop(window, None)
        self._leave(window)

    def _leave(self, window: Window) -> None:
        slot = self._slot_of.pop(window, None)
        if slot is not None:
            del self._slots[slot][window]
