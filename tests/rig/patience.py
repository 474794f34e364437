"""Deadlines of tests. Only a fault reaches one, so a long one costs nothing where all is well. A
machine that shares its cores was ten times as slow for an hour: deadlines that fit a good one
failed there.

A limit with a meaning of its own, like "before the lock ends", is none of these: there a test takes
`wait_until` of gateway.embedded.process.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.embedded import process

PATIENCE = 5


def patient_s(seconds: float) -> float:
    """Of a deadline that a good machine would keep."""
    return PATIENCE * seconds


def wait_until(
    done: Callable[[], bool], *, what: str, deadline_s: float, every_s: float = 0.02
) -> None:
    """As that of gateway.embedded.process; `deadline_s` is for a good machine."""
    process.wait_until(done, what=what, deadline_s=patient_s(deadline_s), every_s=every_s)
