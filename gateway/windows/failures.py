"""Failures of a window: for the caller that is refused, and for the window's life."""

from __future__ import annotations

from dispatcher.core.life.commands import Failure
from dispatcher.store.base import StoreError
from gateway.windows.store_availability import away


class WindowUnavailable(Exception):
    """The window has no store, no upstream or no owner right now; nothing of the event was kept.
    Retriable.
    """


def failure_of(error: Exception) -> Failure:
    """WindowUnavailable is no trouble that operators need to see. A store that is away concerns all
    windows: store_availability.py logs it once.
    """
    if isinstance(error, WindowUnavailable):
        return Failure(str(error))
    logged = isinstance(error, StoreError) and away(error)
    return Failure(str(error), f"{type(error).__name__}: {error}", logged)
