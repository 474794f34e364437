"""The last minutes of a group, or of one of its topics: a ring of samples, and what they tell.

A sample has counters that only grow (offsets at the ends of the logs, records delivered and
settled) and the lag. Rates are differences of two samples. A counter that went back, or logs that
came or went between the two, make their rate unknown, never negative.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

SAMPLES_MAX: Final = 90  # with one every 10 s, 15 minutes: some 4 KB
SAMPLE_MS_MIN: Final = 9_000  # between two of them
FLOW_MS: Final = 60_000  # current rates are those of the last minute
GROWTH_S: Final = 2  # of production, by which the lag of one minute must exceed the minute before
KEEPS_UP_S: Final = 10  # of production: with a smaller lag there is nothing to catch up
LATELY: Final = 30  # samples of the short form
_UNKNOWN: Final = -1


class Sample(NamedTuple):
    at_ms: int
    produced: int  # the sum of the ends of the logs
    logs: int  # whose ends are known
    delivered: int
    settled: int
    lag: int | None


class Flow(NamedTuple):
    """Records per second. None: not known."""

    produced: float | None = None
    delivered: float | None = None
    settled: float | None = None


class Point(NamedTuple):
    at_ms: int
    lag: int | None
    flow: Flow  # since the point before


_WIDTH: Final = len(Sample._fields)


class History:
    def __init__(self) -> None:
        self._numbers = array("q")
        self.lately: list[int | None] = []  # the lag, some 30 s apart, the latest last

    def __len__(self) -> int:
        return len(self._numbers) // _WIDTH

    def __getitem__(self, at: int) -> Sample:
        at = at if at >= 0 else at + len(self)
        at_ms, produced, logs, delivered, settled, lag = self._numbers[
            at * _WIDTH : (at + 1) * _WIDTH
        ]
        return Sample(at_ms, produced, logs, delivered, settled, None if lag == _UNKNOWN else lag)

    def add(self, sample: Sample) -> None:
        """Left out if it comes too soon behind the last one."""
        if self and sample.at_ms - self[-1].at_ms < SAMPLE_MS_MIN:
            return
        self._numbers.extend((*sample[:-1], _UNKNOWN if sample.lag is None else sample.lag))
        if len(self) > SAMPLES_MAX:
            del self._numbers[:_WIDTH]
        step = SAMPLES_MAX // LATELY
        self.lately = [self[at].lag for at in range((len(self) - 1) % step, len(self), step)]

    def points(self) -> Iterator[Point]:
        if self:
            yield Point(self[0].at_ms, self[0].lag, Flow())
        for before, now in pairwise(self[at] for at in range(len(self))):
            yield Point(now.at_ms, now.lag, _between(before, now))

    def flow(self) -> Flow:
        """Of the last minute."""
        return _between(self[self._since(FLOW_MS)], self[-1]) if self else Flow()

    def growing(self) -> bool:
        """The lag of the last minute is well above that of the minute before."""
        now = self._mean_lag(self._since(FLOW_MS), len(self))
        before = self._mean_lag(self._since(2 * FLOW_MS), self._since(FLOW_MS))
        produced = self.flow().produced
        if now is None or before is None or not produced:
            return False
        return now - before > produced * GROWTH_S

    def catches_up_s(self) -> float | None:
        """With the rates of the last minute. None: the lag does not fall, or is small."""
        produced, _, settled = self.flow()
        return time_to_catch_up_s(self[-1].lag if self else None, produced, settled)

    def growth_since_it_stood(self) -> tuple[int, int]:
        """How long nothing has been delivered or settled, in ms, and the growth of the lag
        meanwhile.
        """
        if not self:
            return 0, 0
        last = first = self[-1]
        for at in range(len(self) - 2, -1, -1):
            before = self[at]
            if (before.delivered, before.settled) != (last.delivered, last.settled):
                break
            first = before
        growth = 0 if last.lag is None or first.lag is None else last.lag - first.lag
        return last.at_ms - first.at_ms, growth

    def _since(self, ms: int) -> int:
        """The first sample that is so old at most."""
        first_ms = self[-1].at_ms - ms if self else 0
        return next((at for at in range(len(self)) if self[at].at_ms >= first_ms), 0)

    def _mean_lag(self, first: int, end: int) -> float | None:
        """None: it is not known of all, or they are not some."""
        lags = [self[at].lag for at in range(first, end)]
        known = [lag for lag in lags if lag is not None]
        return sum(known) / len(known) if known and len(known) == len(lags) else None


def time_to_catch_up_s(
    lag: int | None, produced: float | None, settled: float | None
) -> float | None:
    """From rates per second. None if the lag does not fall, or is small."""
    if not lag or produced is None or settled is None or settled <= produced:
        return None
    if lag < produced * KEEPS_UP_S:
        return None
    return lag / (settled - produced)


def _between(before: Sample, now: Sample) -> Flow:
    seconds = (now.at_ms - before.at_ms) / 1_000
    if seconds <= 0:
        return Flow()

    def rate(then: int, there: int) -> float | None:
        return (there - then) / seconds if there >= then else None

    return Flow(
        rate(before.produced, now.produced) if before.logs == now.logs else None,
        rate(before.delivered, now.delivered),
        rate(before.settled, now.settled),
    )
