"""The states of a window's life (life.py), and the events that lead from one to another."""

from __future__ import annotations

from enum import Enum
from typing import Final


class LifeState(Enum):
    LOADING = "loading"
    UP = "up"
    BROKEN = "broken"  # until the pause before the next attempt is over
    CLOSED = "closed"


class LifeEvent(Enum):
    LOADED = "loaded"
    LOAD_FAILED = "load failed"
    BROKE = "broke"  # a batch was not persisted, the log makes no sense, or there is a bug
    PAUSE_OVER = "pause over"
    LOOK_AGAIN = "look again"  # the group's position may have been set elsewhere
    CLOSE = "close"


# (state, event) -> state. Other pairs cannot happen. A window may break or be closed at any
# time: news that belong to an attempt that is over already change nothing.
NEXT: Final[dict[tuple[LifeState, LifeEvent], LifeState]] = {
    (LifeState.LOADING, LifeEvent.LOADED): LifeState.UP,
    (LifeState.LOADING, LifeEvent.LOAD_FAILED): LifeState.BROKEN,
    (LifeState.LOADING, LifeEvent.BROKE): LifeState.LOADING,
    (LifeState.LOADING, LifeEvent.LOOK_AGAIN): LifeState.LOADING,
    (LifeState.LOADING, LifeEvent.CLOSE): LifeState.CLOSED,
    (LifeState.UP, LifeEvent.BROKE): LifeState.BROKEN,
    (LifeState.UP, LifeEvent.LOOK_AGAIN): LifeState.LOADING,
    (LifeState.UP, LifeEvent.CLOSE): LifeState.CLOSED,
    (LifeState.BROKEN, LifeEvent.BROKE): LifeState.BROKEN,
    (LifeState.BROKEN, LifeEvent.PAUSE_OVER): LifeState.LOADING,
    (LifeState.BROKEN, LifeEvent.LOOK_AGAIN): LifeState.BROKEN,
    (LifeState.BROKEN, LifeEvent.CLOSE): LifeState.CLOSED,
    (LifeState.CLOSED, LifeEvent.LOADED): LifeState.CLOSED,
    (LifeState.CLOSED, LifeEvent.LOAD_FAILED): LifeState.CLOSED,
    (LifeState.CLOSED, LifeEvent.BROKE): LifeState.CLOSED,
    (LifeState.CLOSED, LifeEvent.PAUSE_OVER): LifeState.CLOSED,
    (LifeState.CLOSED, LifeEvent.LOOK_AGAIN): LifeState.CLOSED,
    (LifeState.CLOSED, LifeEvent.CLOSE): LifeState.CLOSED,
}
