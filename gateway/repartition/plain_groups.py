"""The consumer groups of a topic that grows, classic and KIP-848: how far they have committed, and
so how far their members may read the new partitions.

A group that has committed nothing in a partition may have begun at its end (`latest`). It is taken
to have, where its members fetch at one place for long.

Behind a committed offset there may be nothing that a consumer gets: markers and aborted records of
transactions, or records that retention has taken. Not every client commits an offset behind those.
So where a group stands still before the end of a log, the log itself is looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import structlog

from gateway.core.repartition.consumers import ANYBODY, ConsumerEnds
from gateway.core.repartition.holding import LogEnds, Report, hold_for
from gateway.core.repartition.progress import Left
from gateway.core.repartition.record import Phase, Repartition
from gateway.repartition.limits import (
    GROUPS_ASKED_AT_ONCE,
    RECORD_THERE_MS,
    STANDING_MS,
    UNCOMMITTED_MS,
)
from gateway.repartition.survey import Survey
from gateway.upstream.commits import Commits
from gateway.upstream.errors import UpstreamError

log = structlog.get_logger("keyway.repartition")

_Place = tuple[str, int]  # group, old partition


class PlainGroups:
    def __init__(self, record: Repartition, commits: Commits, survey: Survey) -> None:
        self.ends = ConsumerEnds(frozenset(record.consumers), record.before, record.into)
        self.given_up: list[str] = []  # that had not passed when their time was over
        # Where members fetch for long of a partition in which their group has committed nothing.
        self.begun: dict[_Place, int] = {}
        self._commits = commits
        self._survey = survey
        self._committed: dict[str, dict[int, int]] = {}  # by group and old partition
        self._nothing_to: dict[_Place, tuple[int, int]] = {}  # from a committed offset to this one
        self._look_at: dict[_Place, tuple[int, int]] = {}  # a position, and when it is looked at
        self._began: dict[_Place, tuple[int, int]] = {}  # where members fetch, and since when

    async def look(
        self, record: Repartition, log_ends: LogEnds, ends: Mapping[int, int], now_ms: int
    ) -> None:
        """`ends`: of the old partitions. `now_ms`: Redis's clock."""
        waiting = sorted(self.ends.waiting)
        for at in range(0, len(waiting), GROUPS_ASKED_AT_ONCE):
            portion = waiting[at : at + GROUPS_ASKED_AT_ONCE]
            await asyncio.gather(*(self._ask(group, record) for group in portion))
        for group in waiting:
            for partition in range(record.before):
                self._look_where_it_began(group, partition, now_ms)
                await self._look_behind(group, record, partition, ends.get(partition, 0), now_ms)
            self._put(group, record, log_ends, partial(self._position, group))
            if self._has_passed(group, record):
                self.ends.passed(group)
                log.info("group_passed_the_boundaries", group=group, topic=record.topic)
            elif now_ms - _held_since_ms(record, now_ms) >= record.pace.consumer_hold_ms:
                self.ends.passed(group)
                self.given_up.append(group)
                log.warning("order_given_up", group=group, topic=record.topic)
        self._put(ANYBODY, record, log_ends, lambda source: ends.get(source, -1))

    async def _ask(self, group: str, record: Repartition) -> None:
        try:
            committed = await self._commits.fetch_all(group)
        except UpstreamError as away:
            log.debug("positions_not_known", group=group, reason=str(away))
            return  # what was known before is still true
        self._committed[group] = {
            partition: place.offset
            for (topic, partition), place in committed.items()
            if topic == record.topic
        }

    def _look_where_it_began(self, group: str, partition: int, now_ms: int) -> None:
        """Of a group that has committed nothing there: where its members fetch all the time."""
        place = (group, partition)
        at = self.ends.fetched.get(place)
        if at is None or partition in self._committed.get(group, {}):
            return
        known, since_ms = self._began.setdefault(place, (at, now_ms))
        if known != at:
            self._began[place] = (at, now_ms)
        elif now_ms - since_ms >= UNCOMMITTED_MS:
            self._has_begun(place, at)

    def heard(self, reports: Mapping[_Place, Report]) -> None:
        """Where members fetch from other nodes, as `begun`."""
        for place in reports.keys() - self.begun.keys():
            if place[0] in self.ends.waiting:
                self._has_begun(place, reports[place].cursor)

    def _has_begun(self, place: _Place, at: int) -> None:
        committed = self._committed.get(place[0])
        if committed is None or place[1] in committed or at <= self._position(*place):
            return
        self.begun[place] = at
        self._nothing_to[place] = (0, at)

    async def _look_behind(
        self, group: str, record: Repartition, partition: int, end: int, now_ms: int
    ) -> None:
        """Once the group has stood still for a while."""
        place, position = (group, partition), self._position(group, partition)
        if position >= end:
            return
        standing, due_ms = self._look_at.get(place, (-1, 0))
        if standing == position and now_ms < due_ms:
            return
        self._look_at[place] = (position, now_ms + STANDING_MS)
        if standing != position:
            return
        try:
            reached = await self._survey.first_record(record, partition, position)
        except UpstreamError as away:
            log.debug("log_not_read", topic=record.topic, partition=partition, reason=str(away))
            return
        if reached == position:
            self._look_at[place] = (position, now_ms + RECORD_THERE_MS)
        elif reached is not None and reached > position:
            committed = self._committed.get(group, {}).get(partition, 0)
            self._nothing_to[place] = (committed, reached)

    def _position(self, group: str, partition: int) -> int:
        committed = self._committed.get(group, {}).get(partition, 0)
        since, reached = self._nothing_to.get((group, partition), (-1, 0))
        return reached if since == committed else committed

    def _put(
        self, group: str, record: Repartition, log_ends: LogEnds, passed: Callable[[int], int]
    ) -> None:
        """The ends of the new partitions for a group that has `passed` these offsets."""
        for partition in range(record.before, record.after):
            as_of_ms = min(
                log_ends.as_of_ms(source, passed(source)) for source in record.sources_of(partition)
            )
            report = Report(as_of_ms, below=0, cursor=0, keys=frozenset())
            self.ends.put(group, partition, hold_for(record, partition, report, log_ends).open_to)

    def _has_passed(self, group: str, record: Repartition) -> bool:
        """A group without a position was deleted: its next members begin as new ones."""
        if self._committed.get(group) == {}:
            return True
        return record.phase is Phase.DRAINING and not any(
            left.offsets for left in self._left_of(group, record)
        )

    def left(self, record: Repartition) -> list[Left]:
        return [
            left for group in sorted(self.ends.waiting) for left in self._left_of(group, record)
        ]

    def _left_of(self, group: str, record: Repartition) -> Iterator[Left]:
        for partition, boundary in enumerate(record.boundaries):
            yield Left(group, partition, max(0, boundary - self._position(group, partition)))


def _held_since_ms(record: Repartition, now_ms: int) -> int:
    """A topic that moves has its producers for as long as their operator likes."""
    return (record.raised_ms or now_ms) if record.into else record.shown_ms
