"""How many bytes go into one transaction, and how many records into one batch. Both follow what the
target has taken so far. Pure: bytes and seconds are handed in.

A transaction that lasts longer than its time-out is aborted by the broker, and would be aborted
again at each attempt. So it ends after a part of that time, and its bytes follow the target's
speed.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark.streaming.core.limits import (
    BATCH_RECORDS_MIN,
    BATCH_S_MAX,
    GROWTH,
    TRANSACTION_BYTES_FIRST,
    TRANSACTION_BYTES_MAX,
    TRANSACTION_S,
)


@dataclass(slots=True)
class Pace:
    """The pace of one writer's transactions, one after the other."""

    timeout_s: float
    bytes_max: int = TRANSACTION_BYTES_FIRST

    @property
    def _goal_s(self) -> float:
        return min(TRANSACTION_S, self.timeout_s / 8)

    def full(self, written_bytes: int, seconds: float) -> bool:
        return written_bytes >= self.bytes_max or seconds >= self._goal_s

    def committed(self, written_bytes: int, seconds: float) -> None:
        """`seconds` include the commit. A transaction that was neither full nor slow changes
        nothing.
        """
        if not self.full(2 * written_bytes, 2 * seconds):
            return
        possible = written_bytes * self._goal_s / max(seconds, 0.001)
        wanted = min(possible, self.bytes_max * GROWTH, TRANSACTION_BYTES_MAX)
        self.bytes_max = max(int(wanted), TRANSACTION_BYTES_FIRST)


@dataclass(slots=True)
class BatchSize:
    """Spark bounds a batch by records alone. So its records follow the bytes and the time that the
    last batch took. `records`: of the next query.
    """

    records_max: int
    bytes_max: int
    records: int = 0

    def __post_init__(self) -> None:
        self.records = self.records_max

    def measured(self, records: int, written_bytes: int, seconds: float, *, cut: bool) -> bool:
        """Takes in one batch; `cut`: a task ended before its range did. Returns whether the next
        batch should be so much larger or smaller that a new query is worth it.
        """
        if not cut and 2 * records < self.records:
            return False
        by_bytes = self.bytes_max * records / max(written_bytes, 1)
        by_time = BATCH_S_MAX / 2 * records / max(seconds, 0.001)
        wanted = max(int(min(self.records_max, by_bytes, by_time)), BATCH_RECORDS_MIN)
        if cut:
            self.records = min(wanted, self.records)
            return True
        if wanted >= GROWTH * self.records:
            self.records = wanted
            return True
        return False
