"""A repartition while it runs, on this node: who has adopted it, what waits, what comes late.

Times that nodes compare are Redis's clock: looks, reports, late records. All others are the
monotonic clock of the process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from dispatcher.core.dispatcher import Dispatcher
from dispatcher.core.hold import HoldMoved
from dispatcher.store.base import WindowKey
from gateway.core.forwarding.metadata_answer import ListedTopic
from gateway.core.reading.fetching import ReadResult
from gateway.core.repartition.adoption import Adopting, Producing
from gateway.core.repartition.holding import (
    LogEnds,
    Look,
    Report,
    Way,
    hold_for,
    report_of,
    together,
)
from gateway.core.repartition.holds import Holds
from gateway.core.repartition.progress import NodeSaid
from gateway.core.repartition.record import Phase, Repartition
from gateway.listen.server import ClientConnection, ConnectionId, Server
from gateway.repartition.late_records import LateRecords
from gateway.repartition.limits import CLOCK_SET_MS, CLOSE_MS
from gateway.repartition.plain_groups import PlainGroups
from gateway.repartition.table import RepartitionTable, Reports
from gateway.upstream.cluster import LATEST, READ_UNCOMMITTED, Upstream
from gateway.upstream.errors import UpstreamError
from gateway.upstream.requests import offsets_at_leader
from gateway.windows.failures import WindowUnavailable
from gateway.windows.table import WindowTable
from gateway.windows.tickets import Answered
from gateway.windows.window import Window
from gateway.windows.window_keys import topic_id_text

Share = Callable[[str, Reports], Awaitable[Reports]]  # of a topic id; with those of other nodes


@dataclass(slots=True)
class RedisClock:
    """Redis's clock as this node knows it, in ms: it was told it between two moments of its own."""

    told_ms: int = 0
    asked_ms: int = 0
    answered_ms: int = 0

    async def ask(self, table: RepartitionTable) -> bool:
        """False: it was set (NTP), or is that of another machine (a fail-over): times from before
        say nothing any more. Raises StateUnavailable.
        """
        asked_ms = monotonic_ms()
        told_ms = await table.now_ms()
        early_ms, late_ms = asked_ms - self.answered_ms, monotonic_ms() - self.asked_ms
        passed_ms = told_ms - self.told_ms
        goes_on = early_ms - CLOCK_SET_MS <= passed_ms <= late_ms + CLOCK_SET_MS
        self.told_ms, self.asked_ms, self.answered_ms = told_ms, asked_ms, monotonic_ms()
        return goes_on

    def earliest_ms(self) -> int:
        """It is this now, or later."""
        return self.told_ms + monotonic_ms() - self.answered_ms

    def latest_ms(self) -> int:
        """It is this now, or earlier."""
        return self.told_ms + monotonic_ms() - self.asked_ms


class RunningTopic:
    def __init__(
        self,
        record: Repartition,
        upstream: Upstream,
        server: Server,
        windows: WindowTable,
        holds: Holds,
        plain_of: Callable[[Repartition], PlainGroups],
        share: Share,
        way: Callable[[int], tuple[str, int] | None],
    ) -> None:
        """`way`: who serves a virtual broker, and as of how long ago (company.py)."""
        self.record = record
        self.topic_id = topic_id_text(bytes.fromhex(record.topic_id))
        self._new_topic_id = self.topic_id
        self.late = LateRecords()
        self.reports: dict[tuple[str, int], Report] = {}  # by group and old partition
        self.ends: dict[int, int] = {}  # as last seen
        self.reasons: tuple[str, ...] = ()  # what it waits for
        self.error = ""  # why the last step could not be made
        self.starts_due_ms = 0  # when groups that have not begun are committed at 0 again; at once
        self.closed = 0  # connections that had not adopted in time
        self._upstream = upstream
        self._server = server
        self._windows = windows
        self._holds = holds
        self._ends = LogEnds()
        self._adopting: Adopting | None = None
        self._outstanding_ms: dict[int, int] = {}  # connections, since when
        self._plain_of = plain_of
        self._share = share
        self._way = way
        self.said = NodeSaid(0)  # what this node tells the others
        self.plain: PlainGroups | None = None  # of SHOWN and later
        self.clock = RedisClock()
        self._resumes = record.phase is Phase.OPEN
        self.moved(record)

    def moved(self, record: Repartition) -> None:
        """The repartition is in another phase."""
        self.record = record
        if record.holds:
            self._new_topic_id = topic_id_text(bytes.fromhex(record.new_topic_id))
            self._holds.hold(self._new_topic_id, record)
            if self._adopting is None and not record.into:
                self._adopting = self._adopting_from_now()
            if self.plain is None:
                self.plain = self._plain_of(record)
            for window in self._old_windows():
                self.watch(window)

    def _adopting_from_now(self) -> Adopting:
        open_now = self._server.connections
        produced = [id_ for id_, connection in open_now.items() if connection.producing.produces]
        return Adopting(
            self.record.topic, max(open_now, default=0), monotonic_ms(), frozenset(produced)
        )

    @property
    def given_up(self) -> tuple[str, ...]:
        """Plain groups that had not passed when their time was over."""
        return () if self.plain is None else tuple(self.plain.given_up)

    def end(self) -> None:
        """No record waits any more, and nothing is looked at."""
        self._holds.lift(self._new_topic_id)
        for window in self._windows.all():
            number = self._number(window)
            if number is not None:
                window.when_read = None
                if number >= self.record.before and window.section.reliable:
                    window.post(HoldMoved(None, self._now_ms()))

    def _now_ms(self) -> int:
        return self._windows.dependencies.now_ms()

    # ------------------------------------------------------------------------------------- adoption

    def served(self, connection: ConnectionId, metadata: Sequence[ListedTopic]) -> None:
        if self._adopting is None:
            return
        for topic in metadata:
            if topic.name == self.record.topic and topic.partitions >= self.record.after:
                client = self._server.connections[connection].client
                self._adopting.served(connection, client, time.monotonic_ns())

    def disconnected(self, connection: ConnectionId) -> None:
        if self._adopting is not None:
            self._adopting.closed(connection)

    def outstanding(self) -> list[ClientConnection]:
        """Connections that may still produce by the Metadata of before."""
        return [] if self._adopting is None else self._connections(self._adopting.outstanding)

    def _connections(
        self, chosen: Callable[[Iterable[Producing]], list[int]]
    ) -> list[ClientConnection]:
        open_now = self._server.connections
        producing = [connection.producing for connection in open_now.values()]
        return [open_now[ConnectionId(connection_id)] for connection_id in chosen(producing)]

    async def hear_of_served(self, table: RepartitionTable) -> None:
        """A client asks one node for Metadata, and produces to all. Raises StateUnavailable."""
        adopting = self._adopting
        if adopting is None:
            return
        told = set(adopting.untold)
        asked = adopting.unknown(each.producing for each in self._server.connections.values())
        if told or asked:
            known = await table.share_served(self.record, told, asked)
            adopting.untold -= told
            adopting.heard(known, time.monotonic_ns())

    def close_late_ones(self, wait_ms: int) -> None:
        """The time to adopt is over: they get a moment for their answers. What one of them has
        sent after the boundaries were taken may be late. `wait_ms`: what other nodes know of the
        client of a connection that was opened later is heard within this.
        """
        if self._adopting is None:
            return
        late_ms = monotonic_ms() - self._adopting.since_ms - self.record.pace.adoption_ms
        if late_ms < 0:
            return
        over = late_ms > CLOSE_MS  # then nobody's answer is waited for any more
        adopting, now_ms = self._adopting, monotonic_ms()
        outstanding = [connection.producing.connection for connection in self.outstanding()]
        since_ms = self._outstanding_ms = {
            number: self._outstanding_ms.get(number, now_ms) for number in outstanding
        }
        for connection in self._connections(adopting.outstanding if over else adopting.to_close):
            number = connection.producing.connection
            if number > adopting.newest and now_ms - since_ms[number] < wait_ms:
                continue
            if not connection.draining:
                self.closed += 1
                if self.record.boundaries:
                    self.late.last_ms = self.clock.latest_ms()
                connection.drain()
            if over:
                connection.abort()

    # ---------------------------------------------------------------------------------------- looks

    async def ask_clock(self, table: RepartitionTable) -> None:
        """Before each look. Raises StateUnavailable."""
        if not await self.clock.ask(table):
            self._ends = LogEnds()

    async def look(self) -> None:
        """Looks at the ends of all logs; then every record may go out that this allows."""
        if self._resumes:
            # The node was away, and nobody could send what is late: it may come from now on.
            self.late.last_ms, self._resumes = self.clock.latest_ms(), False
        asked_ms = self.clock.earliest_ms()
        self.ends = await self._log_ends()
        if self.record.into:
            self.late.ended_at(self.record, self.ends, self.clock.latest_ms())
        ways, silent_ms = self._ways()
        look = Look(asked_ms - silent_ms, self.clock.latest_ms(), self.ends)
        self._ends.saw(look, ways, self.record)
        if self.record.phase is not Phase.SHOWN:
            await self._report()
            self._hold()
            if self.plain is not None:
                now_ms = self.clock.latest_ms()
                await self.plain.look(self.record, self._ends, self.ends, now_ms)

    def _ways(self) -> tuple[dict[int, Way], int]:
        """How producers reach the old partitions, and as of how long ago."""
        topic = self._upstream.topology.topics.get(self.record.topic)
        found: dict[int, Way] = {}
        silent_ms = 0
        for partition, info in ({} if topic is None else topic.partitions).items():
            way = self._way(info.virtual_leader) if partition < self.record.before else None
            if way is not None:
                node, ms = way
                found[partition] = (info.virtual_leader, info.leader_epoch, node)
                silent_ms = max(silent_ms, ms)
        return found, silent_ms

    async def _log_ends(self) -> dict[int, int]:
        """The ends of the logs, without those whose leaders do not answer."""
        names = {self.record.topic, self.record.new_topic}
        topics = self._upstream.topology.topics
        if not names <= topics.keys():  # nobody reads it now, or the node has just started
            topics = (await self._upstream.refresh(sorted(names))).topics
        by_leader: dict[int, list[int]] = {}
        for number in range(self.record.after):
            name, partition = self.record.place_of(number)
            info = topics[name].partitions.get(partition) if name in topics else None
            if info is not None and info.leader in self._upstream.topology.brokers:
                by_leader.setdefault(info.leader, []).append(number)
        asked = [self._ends_at(leader, led) for leader, led in by_leader.items()]
        return dict(pair for ends in await asyncio.gather(*asked) for pair in ends.items())

    async def _ends_at(self, leader: int, numbers: list[int]) -> dict[int, int]:
        places = {self.record.place_of(number): number for number in numbers}
        try:
            found = await offsets_at_leader(
                self._upstream, leader, places, LATEST, READ_UNCOMMITTED
            )
        except UpstreamError:
            return {}
        if any(code for code, _ in found.values()):
            self._upstream.request_refresh()
        return {places[place]: end for place, (code, end) in found.items() if code == 0}

    async def _report(self) -> None:
        """What the windows of the old partitions have left, once that is in the store: a record
        that comes again after a crash would else come behind one that this lets go out.
        """
        found: dict[tuple[str, int], tuple[Report, Answered]] = {}
        for window in self._old_windows():
            core = window.dispatcher
            if not isinstance(core, Dispatcher):
                continue
            partition = window.key.partition
            as_of_ms = self._ends.as_of_ms(partition, core.keys_known_to)
            report = report_of(
                self.record, partition, as_of_ms, core.cursor, core.first_unsettled()
            )
            stored = window.ask(HoldMoved(None, self._now_ms()))  # changes nothing, and waits
            found[window.key.group, partition] = (report, stored)
            await asyncio.sleep(0)  # O(span) each
        told: Reports = {}
        for place, (report, stored) in found.items():
            try:
                await stored
            except WindowUnavailable:
                continue
            told[place] = report
        if self.plain is not None:
            begun = self.plain.begun.items()
            told |= {place: Report(0, below=0, cursor=at, keys=None) for place, at in begun}
        known = await self._share(self.record.topic_id, told)
        now_ms = self.clock.latest_ms()  # what is later was told by a clock that is set back now
        self.reports = {place: each for place, each in known.items() if each.as_of_ms <= now_ms}
        if self.plain is not None:
            self.plain.heard(self.reports)

    def _hold(self) -> None:
        for window in self._windows.all():
            number = self._number(window)
            if number is None or number < self.record.before or not window.section.reliable:
                continue
            if self._holds.of(window.key) is None:
                continue
            sources = self.record.sources_of(number)
            told = [self.reports.get((window.key.group, source)) for source in sources]
            reports = [report for report in told if report is not None]
            if len(reports) < len(told):
                continue  # what was known before is still true
            hold = hold_for(self.record, number, together(reports), self._ends)
            self._holds.put(window.key, hold)
            window.post(HoldMoved(hold, self._now_ms()))

    def _old_windows(self) -> Iterator[Window]:
        for window in self._windows.all():
            number = self._number(window)
            if number is not None and number < self.record.before:
                yield window

    def _number(self, window: Window) -> int | None:
        """Its partition as the record numbers it; None: it is of another topic."""
        _, topic_id, partition = window.key
        if topic_id == self.topic_id:
            return partition
        return partition + self.record.first if topic_id == self._new_topic_id else None

    def window(self, group: str, partition: int) -> Window | None:
        return self._windows.find(WindowKey(group, self.topic_id, partition))

    # ----------------------------------------------------------------------------------------- late

    def watch(self, window: Window) -> None:
        """Watches the window of an old partition."""
        window.when_read = partial(self._read, window.key.partition)

    def _read(self, partition: int, read: ReadResult) -> None:
        self.late.read(self.record, partition, read, self.clock.latest_ms())


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
