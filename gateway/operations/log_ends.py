"""The ends of logs, as the members of groups may read them. A partition whose leader does not
answer keeps the end that was seen last.

Under read_committed a log ends where the first open transaction begins (its last stable offset). A
transaction that nobody ends would stop its readers for ever, and look as if they had caught up. So
the high watermark is asked for, too: once a minute of all logs, and with each look where it lies
behind the end. A log whose end has stood for TRANSACTION_TOLD_MS while there is more behind it ends
at its high watermark, and `held` says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.core.cluster.topology import TopicPartition
from gateway.core.reading.cache import Source
from gateway.core.reading.fetching import leader_of
from gateway.operations.group_offsets import UpstreamView
from gateway.operations.limits import LAG_ANSWER_S_MAX, LAG_ENDS_AT_ONCE, TRANSACTION_TOLD_MS
from gateway.upstream.cluster import LATEST, READ_COMMITTED, READ_UNCOMMITTED
from gateway.upstream.errors import UpstreamError
from gateway.upstream.requests import offsets_at_leader


class OpenTransaction(NamedTuple):
    """The first one of a log that is open. `since_ms`: it has been open for at least so long."""

    begins: int  # its first offset: where members may read to
    since_ms: int  # Unix time
    high_watermark: int


@dataclass(slots=True)
class LogEnds:
    upstream: UpstreamView
    now_ms: Callable[[], int]
    _ends: dict[Source, int] = field(default_factory=dict)
    _open: dict[Source, OpenTransaction] = field(default_factory=dict)
    _held: dict[Source, OpenTransaction] = field(default_factory=dict)  # those that are told
    _moved: set[Source] = field(default_factory=set)

    def of(self, source: Source) -> int | None:
        """None: it was not seen yet."""
        held = self._held.get(source)
        return self._ends.get(source) if held is None else held.high_watermark

    def held(self, source: Source) -> OpenTransaction | None:
        """The transaction that holds up the readers of a log, if it has for TRANSACTION_TOLD_MS."""
        return self._held.get(source)

    def all_held(self) -> Iterable[tuple[Source, OpenTransaction]]:
        return self._held.items()

    def take_moved(self) -> set[Source]:
        """The logs whose end is another one than when they were taken the last time."""
        moved, self._moved = self._moved, set()
        return moved

    async def look(
        self, logs: Collection[Source], *, all_there_are: bool = False, transactions: bool = False
    ) -> None:
        """Asks the leaders. `all_there_are`: others are forgotten. `transactions`: looks for open
        ones.
        """
        if all_there_are:
            self._ends = {of: end for of, end in self._ends.items() if of in logs}
            self._open = {of: begun for of, begun in self._open.items() if of in logs}
        seen = await self._latest(logs)
        for source, end in seen.items():
            if self._ends.get(source) != end:
                self._ends[source] = end
                self._moved.add(source)
                self._open.pop(source, None)
        committed = [source for source in seen if source.isolation == READ_COMMITTED]
        await self._look_behind(
            committed if transactions else [source for source in committed if source in self._open]
        )
        self._hold(seen.keys())

    async def _look_behind(self, logs: Iterable[Source]) -> None:
        """Finds the open transactions. A log may have grown since its end was asked for: then the
        next look finds another end.
        """
        whole = {Source(source.tp, READ_UNCOMMITTED): source for source in logs}
        now_ms = self.now_ms()
        for of_whole, high_watermark in (await self._latest(whole)).items():
            source = whole[of_whole]
            end = self._ends[source]
            if high_watermark > end:
                known = self._open.get(source)
                since_ms = now_ms if known is None else known.since_ms
                self._open[source] = OpenTransaction(end, since_ms, high_watermark)
            else:
                self._open.pop(source, None)

    def _hold(self, seen: Set[Source]) -> None:
        """Of logs that were not `seen` now, nobody knows whether the end still stands."""
        told_ms = self.now_ms() - TRANSACTION_TOLD_MS
        held = {
            source: begun
            for source, begun in self._open.items()
            if begun.since_ms <= told_ms and (source in seen or source in self._held)
        }
        for source in self._held.keys() | held.keys():
            if self._held.get(source) != held.get(source):
                self._moved.add(source)
        self._held = held

    async def _latest(self, logs: Collection[Source]) -> dict[Source, int]:
        """The ends that leaders tell."""
        by_leader: dict[tuple[int, int], list[TopicPartition]] = {}
        topology = self.upstream.topology
        for tp, isolation in sorted(logs):
            leader = leader_of(topology, tp)
            if leader is not None:
                by_leader.setdefault((leader, isolation), []).append(tp)
        found: dict[Source, int] = {}
        for (leader, isolation), led in by_leader.items():
            for at in range(0, len(led), LAG_ENDS_AT_ONCE):
                found |= await self._ask(leader, isolation, led[at : at + LAG_ENDS_AT_ONCE])
        return found

    async def _ask(
        self, leader: int, isolation: int, led: list[TopicPartition]
    ) -> dict[Source, int]:
        asked = {(tp.topic, tp.partition): tp for tp in led}
        # A time limit of the call itself would end the connection, which others wait on, too.
        try:
            async with asyncio.timeout(LAG_ANSWER_S_MAX):
                answers = await offsets_at_leader(self.upstream, leader, asked, LATEST, isolation)
        except (UpstreamError, TimeoutError):
            return {}  # gateway/upstream/cluster.py has logged it; the other brokers' count
        return {
            Source(asked[place], isolation): end
            for place, (code, end) in answers.items()
            if code == 0
        }
