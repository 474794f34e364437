"""Failures of a window: for the caller that is refused, and for the window's life."""

from __future__ import annotations

from dispatcher.core.life.commands import Failure
from dispatcher.store.base import StoreError
from gateway.core.wire.errors import ErrorCode
from gateway.upstream.errors import Refused
from gateway.windows.store_availability import away

TOPIC_GONE_ERRORS = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


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


def tells_of_gone_topic(error: Exception) -> bool:
    return isinstance(error, Refused) and error.error_code in TOPIC_GONE_ERRORS
