"""Rounds within a time: every part of the bench has a bound."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator


def rounds_within(
    rounds: int, seconds_max: float, clock: Callable[[], float] = time.monotonic
) -> Iterator[int]:
    """Numbers of rounds, from 0. The first one always; none starts that, taking as long as the
    longest before it, would end after `seconds_max`.
    """
    began = started = clock()
    longest = 0.0
    for at in range(rounds):
        now = clock()
        longest = max(longest, now - started)
        started = now
        if at and now - began + longest > seconds_max:
            sys.stdout.write(f"stopped after {at} rounds: another would pass {seconds_max:.0f} s\n")
            return
        yield at
