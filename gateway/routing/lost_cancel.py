"""A cancellation that a library has lost.

redis-py sends with `asyncio.wait_for`, which in Python 3.11 forgets a cancellation that comes just
when the bytes are out. A loop that asks Redis several times a second would then run for ever, and
the node would not end.
"""

from __future__ import annotations

import asyncio


def cancelled() -> bool:
    """Whether the task that runs has been told to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
