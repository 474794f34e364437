"""The ends of logs, as the members of groups may read them. A partition whose leader does not
answer keeps the end that was seen last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field

from gateway.core.cluster.topology import TopicPartition
from gateway.core.reading.cache import Source
from gateway.core.reading.fetching import leader_of
from gateway.operations.group_offsets import UpstreamView
from gateway.operations.limits import LAG_ANSWER_S_MAX, LAG_ENDS_AT_ONCE
from gateway.upstream.cluster import LATEST
from gateway.upstream.errors import UpstreamError
from gateway.upstream.requests import offsets_at_leader


@dataclass(slots=True)
class LogEnds:
    upstream: UpstreamView
    _ends: dict[Source, int] = field(default_factory=dict)
    _moved: set[Source] = field(default_factory=set)

    def of(self, source: Source) -> int | None:
        """None: it was not seen yet."""
        return self._ends.get(source)

    def take_moved(self) -> set[Source]:
        """The logs that have grown since they were taken the last time."""
        moved, self._moved = self._moved, set()
        return moved

    async def look(self, logs: Collection[Source], *, all_there_are: bool = False) -> None:
        """Asks the leaders. `all_there_are`: others are forgotten."""
        if all_there_are:
            self._ends = {of: end for of, end in self._ends.items() if of in logs}
        by_leader: dict[tuple[int, int], list[TopicPartition]] = {}
        topology = self.upstream.topology
        for tp, isolation in sorted(logs):
            leader = leader_of(topology, tp)
            if leader is not None:
                by_leader.setdefault((leader, isolation), []).append(tp)
        for (leader, isolation), led in by_leader.items():
            for at in range(0, len(led), LAG_ENDS_AT_ONCE):
                await self._ask(leader, isolation, led[at : at + LAG_ENDS_AT_ONCE])

    async def _ask(self, leader: int, isolation: int, led: list[TopicPartition]) -> None:
        asked = {(tp.topic, tp.partition): tp for tp in led}
        # A time limit of the call itself would end the connection, which others wait on, too.
        try:
            async with asyncio.timeout(LAG_ANSWER_S_MAX):
                answers = await offsets_at_leader(self.upstream, leader, asked, LATEST, isolation)
        except (UpstreamError, TimeoutError):
            return  # gateway/upstream/cluster.py has logged it; the other brokers' count
        for place, (code, end) in answers.items():
            if code == 0:
                source = Source(asked[place], isolation)
                if self._ends.get(source) != end:
                    self._ends[source] = end
                    self._moved.add(source)
