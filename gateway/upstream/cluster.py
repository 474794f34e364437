"""The gateway's own view of, and connections to, the upstream cluster, under the gateway's own
identity.

`topology` is replaced whole; parts that follow it register with `on_topology` and are called only
when the content changed. Clients' traffic does not come through here: each client connection has
its own upstream connection (gateway/listen/server.py).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Self

import structlog

from gateway.core.cluster.discovery import metadata_request, topology_from
from gateway.core.cluster.topic_names import is_topic_name
from gateway.core.cluster.topology import Topic, TopicPartition, Topology
from gateway.core.forwarding.own_answers import raw_rows
from gateway.core.repartition.hiding import Shown, hide
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode, WireError
from gateway.core.wire.schema import Message
from gateway.upstream.broker_connections import BrokerConnections
from gateway.upstream.errors import Refused, TimedOut, Unreachable, UpstreamError
from gateway.upstream.limits import (
    METADATA_TOPICS_MAX,
    REFRESH_REQUESTED_PAUSE_MS,
    SETTLING_PAUSE_MS,
    WATCHED_TOPICS_MAX,
)
from gateway.upstream.requests import offsets_at_leader
from gateway.upstream.settings import UpstreamSettings

__all__ = ["Refused", "TimedOut", "Unreachable", "Upstream", "UpstreamError", "UpstreamSettings"]


log = structlog.get_logger("keyway.upstream")

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST, EARLIEST = -1, -2  # timestamps of ListOffsets with a meaning of their own
COORDINATOR_KEY_GROUP = 0
COORDINATORS_MAX = 10_000  # remembered; clients may ask about any number of groups

_COORDINATOR_SETTLING = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_HOW_TO_GO_ON = (
    "--upstream, or upstream.bootstrap_servers in keyway.yaml, says where Kafka is; Ctrl-C or"
    " SIGTERM ends the wait"
)
_LEADER_SETTLING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
)


class Upstream:
    """`async with Upstream(settings) as upstream: await upstream.start(...)`, and `run()` in a task
    group.
    """

    def __init__(self, settings: UpstreamSettings) -> None:
        self.settings = settings
        self.topology = Topology()
        self._rows: dict[str, bytes] = {}  # that it was made from
        self._hides: Shown | None = None
        self._watched: dict[str, None] = {}  # in the order they were asked for
        self._callbacks: list[Callable[[Topology], None]] = []
        self._coordinators: dict[str, int] = {}
        self._refreshing = asyncio.Lock()
        self._refresh_asked = 0
        self._refresh_done = 0
        self._refresh_error: UpstreamError | None = None
        self._refresh_requested = asyncio.Event()
        self._connections = BrokerConnections(settings, lambda: self.topology, self.request_refresh)
        self.call = self._connections.call
        self.silent_brokers = self._connections.silent_brokers

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connections.close()

    # ------------------------------------------------------------------------------------- topology

    def on_topology(self, callback: Callable[[Topology], None]) -> None:
        """`callback` is called from the event loop after each change of content, never for a mere
        refresh.
        """
        self._callbacks.append(callback)

    async def start(self, *, timeout_ms: int | None = None) -> Topology:
        """Waits until a broker answers, saying so in the log when the reason changes. Raises
        UpstreamError at the end.
        """
        deadline = None if timeout_ms is None else _loop_time() + timeout_ms / 1000
        reason = ""
        failures = 0
        while True:
            try:
                topology = await self.refresh()
            except UpstreamError as error:
                if str(error) != reason:
                    reason = str(error)
                    servers = self.settings.bootstrap_servers
                    log.warning(
                        "waiting_for_upstream", servers=servers, reason=reason, hint=_HOW_TO_GO_ON
                    )
                if deadline is not None and _loop_time() >= deadline:
                    raise
                failures += 1
                await asyncio.sleep(self.settings.backoff_ms(failures) / 1000)
            else:
                log.info(
                    "upstream_found", cluster=topology.cluster_id, brokers=len(topology.brokers)
                )
                return topology

    async def run(self) -> None:
        """Refreshes the topology at intervals, and after `request_refresh()`, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self.settings.refresh_interval_ms / 1000):
                    await self._refresh_requested.wait()
                await asyncio.sleep(REFRESH_REQUESTED_PAUSE_MS / 1000)
            except TimeoutError:
                pass
            self._refresh_requested.clear()
            try:
                await self.refresh()
            except UpstreamError:
                # Already logged for the brokers it concerns; somebody still wants a fresh view.
                await asyncio.sleep(SETTLING_PAUSE_MS / 1000)
                self._refresh_requested.set()

    def request_refresh(self) -> None:
        """A broker said that our view is out of date: `run()` refreshes it soon."""
        self._refresh_requested.set()

    async def refresh(self, topics: Iterable[str] = ()) -> Topology:
        """The view as of now; `topics` become watched. One request serves all who wait. Raises
        UpstreamError.
        """
        self.watch(topics)
        self._refresh_asked += 1
        ticket = self._refresh_asked
        async with self._refreshing:
            if self._refresh_done < ticket:
                serves = self._refresh_asked
                self._refresh_error = None
                try:
                    await self._refresh()
                except UpstreamError as error:
                    self._refresh_error = error
                self._refresh_done = serves
            if self._refresh_error is not None:
                raise self._refresh_error
        return self.topology

    def watch(self, topics: Iterable[str]) -> None:
        """From the next refresh on these topics are part of the view, up to WATCHED_TOPICS_MAX.
        Names that no topic had when they were last looked at make room for them.
        """
        new = [topic for topic in dict.fromkeys(topics) if topic not in self._watched]
        self.unwatch(self._without_topic(len(new) + len(self._watched) - WATCHED_TOPICS_MAX))
        room = WATCHED_TOPICS_MAX - len(self._watched)
        if len(new) > room:
            log.warning(
                "too_many_topics_watched", watched=len(self._watched), refused=len(new) - room
            )
        self._watched.update(dict.fromkeys(new[:room]))

    def _without_topic(self, names_max: int) -> list[str]:
        """So many watched names that no topic had, the newest: who names thousands of them, by
        mistake or on purpose, takes the room from himself.
        """
        known = self.topology.topics
        missing = (
            name
            for name in reversed(self._watched)
            if (topic := known.get(name)) is not None
            and topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        return list(itertools.islice(missing, max(0, names_max)))

    @property
    def watched(self) -> Collection[str]:
        """Names that were asked for, whether or not there is such a topic."""
        return self._watched.keys()

    async def look_up(self, names: Iterable[str]) -> dict[str, Topic]:
        """The topics of these names, as of now; they do not become watched. Names that no topic has
        are left out. Raises UpstreamError.
        """
        answer = await self._metadata(name for name in names if is_topic_name(name))
        found = topology_from(self.topology, answer, self.settings.slots).topics
        return {name: topic for name, topic in found.items() if topic.partitions}

    def hide(self, shown: Shown | None) -> None:
        """From the next refresh on the view has no more partitions of these topics."""
        self._hides = shown

    def unwatch(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._watched.pop(topic, None)

    async def _refresh(self) -> None:
        response = await self._metadata(self._watched)
        rows = raw_rows(response)
        same = {name for name, raw in rows.items() if self._rows.get(name) == raw}
        try:
            topology = topology_from(self.topology, response, self.settings.slots, same=same)
        except WireError as error:  # of a topic that nobody has looked at before
            raise Unreachable(f"unreadable answer: {error}") from error
        if not topology.brokers:
            raise Unreachable("the upstream knows no live broker yet")
        self._rows = rows
        if topology == self.topology:
            return
        self.topology = topology
        self._connections.close_strays()
        for callback in self._callbacks:
            callback(topology)

    async def _metadata(self, names: Iterable[str]) -> Message:
        """One Metadata answer about all topics, asked for in portions. Raises UpstreamError."""
        left = list(names)
        whole: Message | None = None
        while left or whole is None:
            asked, left = left[:METADATA_TOPICS_MAX], left[METADATA_TOPICS_MAX:]
            answer = await self.call(ApiKey.METADATA, metadata_request(asked))
            if answer["ErrorCode"] != 0:
                raise Refused(answer["ErrorCode"], "Metadata")
            if self._hides is not None:
                hide(answer, self._hides)
            if whole is not None:
                answer["Topics"] = whole["Topics"] + answer["Topics"]
            whole = answer
        return whole

    # --------------------------------------------------------------------------------- coordinators

    def known_coordinator(self, group: str) -> int | None:
        """The broker that is remembered; it may be another one since."""
        known = self._coordinators.get(group)
        return known if known in self.topology.brokers else None

    async def coordinator(self, group: str) -> int:
        """The broker that coordinates `group` (remembered). Raises UpstreamError."""
        known = self.known_coordinator(group)
        if known is not None:
            return known
        deadline = _loop_time() + self.settings.request_timeout_ms / 1000
        while True:
            code, broker_id = (await self._find_coordinators([group]))[group]
            if code == 0 and broker_id not in self.topology.brokers:
                await self.refresh()
                code = 0 if broker_id in self.topology.brokers else _COORDINATOR_SETTLING[0]
            if code == 0:
                if len(self._coordinators) >= COORDINATORS_MAX:
                    self._coordinators.clear()
                self._coordinators[group] = broker_id
                return broker_id
            # The first group ever makes the cluster create __consumer_offsets, which takes a second
            # or two.
            if code not in _COORDINATOR_SETTLING or _loop_time() >= deadline:
                raise Refused(code, f"coordinator of group {group!r}")
            await asyncio.sleep(SETTLING_PAUSE_MS / 1000)

    async def _find_coordinators(self, groups: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Error code and broker by group, in one request. A broker of before 3.0 (FindCoordinator
        below 4) answers for the first group alone. Raises UpstreamError.
        """
        body = {"Key": groups[0], "KeyType": COORDINATOR_KEY_GROUP, "CoordinatorKeys": groups}
        response = await self.call(ApiKey.FIND_COORDINATOR, body)
        answers = response["Coordinators"] or [{**response, "Key": groups[0]}]
        return {answer["Key"]: (answer["ErrorCode"], answer["NodeId"]) for answer in answers}

    async def look_for_coordinators(self, groups: Sequence[str]) -> None:
        """Asks anew for all of them, in one request; those without an answer are forgotten."""
        if not groups:
            return
        for group in groups:
            self.forget_coordinator(group)
        try:
            found = await self._find_coordinators(groups)
        except UpstreamError:
            return
        brokers = {name: broker for name, (code, broker) in found.items() if code == 0}
        self._coordinators |= brokers
        if not self.topology.brokers.keys() >= set(brokers.values()):
            self.request_refresh()

    def forget_coordinator(self, group: str) -> None:
        """The coordinator answered NOT_COORDINATOR, or not at all."""
        self._coordinators.pop(group, None)

    # -------------------------------------------------------------------------------------- offsets

    async def list_offset(
        self, tp: TopicPartition, timestamp: int, isolation: int = READ_COMMITTED
    ) -> int:
        """As `list_offsets`, for one partition. Raises UpstreamError."""
        found = await self.list_offsets(tp.topic, [tp.partition], timestamp, isolation)
        return found[tp.partition]

    async def list_offsets(
        self,
        topic: str,
        partitions: Iterable[int],
        timestamp: int,
        isolation: int = READ_COMMITTED,
    ) -> dict[int, int]:
        """Offset at `timestamp` (ms, or EARLIEST, LATEST) by partition; -1 = none so late. Raises
        UpstreamError.
        """
        missing = sorted(partitions)
        found: dict[int, int] = {}
        deadline = _loop_time() + self.settings.request_timeout_ms / 1000
        while missing:
            code = await self._list_offsets_once(topic, missing, timestamp, isolation, found)
            missing = [partition for partition in missing if partition not in found]
            if missing and (code not in _LEADER_SETTLING or _loop_time() >= deadline):
                raise Refused(code, f"offsets of {topic}-{missing[0]}")
            if missing:
                await asyncio.sleep(SETTLING_PAUSE_MS / 1000)
                await self.refresh([topic])
        return found

    async def _list_offsets_once(
        self,
        topic: str,
        partitions: list[int],
        timestamp: int,
        isolation: int,
        found: dict[int, int],
    ) -> int:
        """Fills `found`, and returns one error of the partitions that are not in it: one that time
        does not mend, if there is any.
        """
        if topic not in self.topology.topics:
            await self.refresh([topic])
        known = self.topology.topics.get(topic)
        by_leader: dict[int, list[int]] = {}
        worst = 0
        for partition in partitions:
            info = None if known is None else known.partitions.get(partition)
            if info is None:
                worst = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif info.leader not in self.topology.brokers:
                worst = worst or ErrorCode.LEADER_NOT_AVAILABLE
            else:
                by_leader.setdefault(info.leader, []).append(partition)
        for leader, led in by_leader.items():
            places = [(topic, partition) for partition in led]
            answers = await offsets_at_leader(self, leader, places, timestamp, isolation)
            for (_, partition), (code, offset) in answers.items():
                if code == 0:
                    found[partition] = offset
                elif worst in (0, *_LEADER_SETTLING):
                    worst = code
        return worst


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
