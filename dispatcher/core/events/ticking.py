"""The watchdog of one window: the work of a tick, and the time of the next one that has any.

Nothing but time is handled by a tick; every other event has its consequences in its own step. So a
window in which nothing happens needs no ticks until something of it is due: a retry, a lock, the
grace of a session, a member that is silent. Its shell asks `due_ms` and lets it rest until then: a
node has thousands of windows, and in most of them nothing happens.
"""

from __future__ import annotations

from typing import Final

from dispatcher.core.events.membership import (
    evict_lost,
    lock_timeouts,
    lost_since_ms,
    silent_ms,
    watch_silence,
)
from dispatcher.core.events.room import is_looked_at_again, watch_span
from dispatcher.core.model import Ticked
from dispatcher.core.records.state import WindowState

NEXT_TICK: Final = 0  # a time that has come
NEVER: Final = 1 << 60  # a time that does not come


def tick(state: WindowState, event: Ticked) -> None:
    """The watchdog's phases: retries that are due, as before every event; lock timeouts, each
    exhausted record to its policy; members that are gone, and those that are silent. The step ends
    with the last: read on, if there is room.
    """
    lock_timeouts(state, event.now_ms)
    evict_lost(state, event.now_ms)
    watch_silence(state, event)
    watch_span(state)
    state.rest()


def due_ms(state: WindowState) -> int:
    """The time of the next tick with something to do, if the last event was a tick that had
    nothing to do: NEXT_TICK, a time, or NEVER. It may be too early. O(leases + members).
    """
    if is_looked_at_again(state):
        return NEXT_TICK
    due = min(NEVER, silent_ms(state))
    if state.retries.timers:
        due = min(due, state.retries.timers[0][0])
    for lease in state.book.leases.values():
        due = min(due, lease.deadline_ms)
    grace_ms = state.policy.disconnect_grace_ms
    for session in state.book.sessions.values():
        since_ms = lost_since_ms(state, session)
        if since_ms is not None:
            due = min(due, since_ms + grace_ms)
    return due
