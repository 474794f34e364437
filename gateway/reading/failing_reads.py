"""Positions where every fetch has failed for a while, and why. Each topic gets one log line when
reading fails and one when it works again: a broker that is down leads many partitions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from gateway.core.reading.cache import Source
from gateway.core.reading.fetching import FetchPosition, Unreadable
from gateway.core.wire.errors import error_name

log = structlog.get_logger("keyway.reader")


@dataclass(slots=True)
class FailingReads:
    _by_topic: dict[str, dict[FetchPosition, Unreadable]] = field(default_factory=dict)

    def unreadable(self, source: Source, position: int) -> Unreadable | None:
        """Why nothing can be read at this position; None if it can. The reader tries for ever,
        unless a group gives the records up and reads on behind them.
        """
        return self._by_topic.get(source.tp.topic, {}).get(FetchPosition(source, position))

    def failing_partitions(self) -> int:
        """How many partitions cannot be read at the moment."""
        return len({place.source for places in self._by_topic.values() for place in places})

    def failed(self, place: FetchPosition, code: int, reason: str, end: int) -> None:
        """`end`: behind a batch that is too large; -1: any other reason."""
        topic = place.source.tp.topic
        if topic not in self._by_topic:
            log.warning("reading_stopped", topic=topic, error=code, reason=reason)
        why = f"offset {place.position}: {reason} ({error_name(code)})"
        self._by_topic.setdefault(topic, {})[_of_any_epoch(place)] = Unreadable(why, end)

    def over(self, place: FetchPosition) -> None:
        """The place was read, or nobody wants to read there any more."""
        topic = place.source.tp.topic
        failing = self._by_topic.get(topic)
        if failing is None:
            return
        failing.pop(_of_any_epoch(place), None)
        if not failing:
            del self._by_topic[topic]
            log.info("reading_again", topic=topic)


def _of_any_epoch(place: FetchPosition) -> FetchPosition:
    return FetchPosition(place.source, place.position)
