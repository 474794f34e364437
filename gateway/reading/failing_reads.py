"""Positions where every fetch has failed for a while, and why. Each topic gets one log line when
reading fails and one when it works again: a broker that is down leads many partitions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from gateway.core.reading.cache import Source
from gateway.core.reading.fetching import FetchPosition, Unreadable
from gateway.core.wire.errors import error_name
from gateway.reading.limits import STOPPED_TOPICS_MAX

log = structlog.get_logger("keyway.reader")


@dataclass(slots=True)
class FailingReads:
    """Of two groups that read at one position, each by the epoch that it knows, each place counts
    by itself.
    """

    _by_topic: dict[str, dict[FetchPosition, Unreadable]] = field(default_factory=dict)
    _told: dict[str, None] = field(default_factory=dict)  # topics: reading has stopped

    def unreadable(self, source: Source, position: int) -> Unreadable | None:
        """Why nothing can be read at this position; None if it can. The reader tries for ever,
        unless a group gives the records up and reads on behind them.
        """
        for place, why in self._by_topic.get(source.tp.topic, {}).items():
            if place.position == position and place.source == source:
                return why
        return None

    def failing_partitions(self) -> int:
        """How many partitions cannot be read at the moment."""
        return len({place.source for places in self._by_topic.values() for place in places})

    def failed(self, place: FetchPosition, code: int, reason: str, end: int) -> None:
        """`end`: behind a batch that is too large; -1: any other reason."""
        topic = place.source.tp.topic
        if topic not in self._told:
            log.warning("reading_stopped", topic=topic, error=code, reason=reason)
            self._told[topic] = None
            if len(self._told) > STOPPED_TOPICS_MAX:
                del self._told[next(iter(self._told))]
        why = f"offset {place.position}: {reason} ({error_name(code)})"
        self._by_topic.setdefault(topic, {})[place] = Unreadable(why, end)

    def dropped(self, place: FetchPosition) -> None:
        """Nobody wants to read there any more, or for now: that does not mean that one could."""
        topic = place.source.tp.topic
        failing = self._by_topic.get(topic)
        if failing is not None:
            failing.pop(place, None)
            if not failing:
                del self._by_topic[topic]

    def over(self, place: FetchPosition) -> None:
        """The place was read."""
        if not self._told:
            return
        self.dropped(place)
        topic = place.source.tp.topic
        if topic in self._told and topic not in self._by_topic:
            del self._told[topic]
            log.info("reading_again", topic=topic)
