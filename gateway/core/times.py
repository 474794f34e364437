"""Durations by size, as plain numbers: a histogram that costs an addition. A metric is made of it
when somebody asks (gateway/metric_rows.py).
"""

from __future__ import annotations

from typing import Final, final


@final
class Times:
    """`bounds_ns`: ascending. `buckets`: durations within each bound and beyond the one before; the
    last is beyond all.
    """

    def __init__(self, bounds_ns: list[int]) -> None:
        self.bounds_ns: Final = bounds_ns
        self.buckets: Final[list[int]] = [0] * (len(bounds_ns) + 1)
        self.sum_ns = 0

    def note(self, took_ns: int) -> None:
        at = 0  # most durations are within the first bounds: no search is as fast
        while at < len(self.bounds_ns) and took_ns > self.bounds_ns[at]:
            at += 1
        self.buckets[at] += 1
        self.sum_ns += took_ns
