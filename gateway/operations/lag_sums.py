"""The lag of a whole group: sums over its partitions (lag.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


class PartitionLag(Protocol):
    """gateway.operations.lag.Lag"""

    @property
    def records(self) -> int | None: ...
    @property
    def seconds(self) -> float | None: ...
    @property
    def held(self) -> object | None: ...


@dataclass(slots=True)
class GroupLag:
    """How many records the group is behind, None: not known of any partition; and the age of the
    oldest of those whose age is known. It is never 0 while that of some partition is not known.
    """

    records: int | None = None
    seconds: float | None = None
    held: int = 0  # partitions that wait for an open transaction
    _some_unknown: bool = field(default=False, repr=False, compare=False)

    def add(self, lag: PartitionLag) -> None:
        if lag.records is not None:
            self.records = lag.records + (self.records or 0)
        self.held += lag.held is not None
        self._some_unknown |= lag.seconds is None
        self.seconds = max(lag.seconds or 0.0, self.seconds or 0.0)
        if self._some_unknown:
            self.seconds = self.seconds or None


@dataclass(slots=True)
class TopicSum:
    """The sum over a group's partitions of one topic."""

    produced: int = 0  # the sum of the ends of its logs that are known
    logs: int = 0
    records: int | None = None

    def add(self, end: int | None, records: int | None) -> None:
        if end is not None:
            self.produced += end
            self.logs += 1
        if records is not None:
            self.records = records + (self.records or 0)


@dataclass(slots=True)
class LagSum:
    """The sum over a group's partitions. `oldest_ms`: the time of its oldest unsettled record, if
    known.
    """

    of: tuple[int, int] | None  # `Lags._as_of`; None: the next look may find others
    partitions: int = 0
    records: int | None = None
    some_unknown: bool = False  # whether a partition has an unsettled record, or since when
    oldest_ms: int | None = None
    held: int = 0  # partitions that wait for an open transaction
    topics: dict[str, TopicSum] = field(default_factory=dict)

    def add(self, records: int | None, caught_up: bool, oldest_ms: int | None) -> None:
        if records is not None:
            self.records = records + (self.records or 0)
        self.partitions += 1
        self.some_unknown |= not caught_up and oldest_ms is None
        if oldest_ms is not None:
            self.oldest_ms = oldest_ms if self.oldest_ms is None else min(self.oldest_ms, oldest_ms)

    def seconds(self, now_ms: int) -> float | None:
        age = 0.0 if self.oldest_ms is None else max(0, now_ms - self.oldest_ms) / 1000
        return None if not age and (self.some_unknown or not self.partitions) else age
