"""Scripted surroundings of windows, groups and share handlers: a log in memory, the MemoryStore,
the virtual loop's clock. No part decides anything by itself: the test says it.
"""

# Long: a short stand-in for each part that windows and handlers are built from.
from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from dispatcher.core.steps import Noticed, WriteDeadLetters
from dispatcher.store.base import StoreError, WindowKey, Write
from dispatcher.store.memory import MemoryStore
from gateway.config.file import Config
from gateway.config.groups import GroupSection
from gateway.core.cluster.busiest_topics import BusiestTopics
from gateway.core.cluster.topology import Broker, PartitionInfo, Topic, TopicPartition, Topology
from gateway.core.reading.cache import Source
from gateway.core.reading.fetching import ReadResult
from gateway.core.share.dead_letter_queue import DeadLetterQueue
from gateway.core.share.membership import Heartbeat, ShareGroup
from gateway.core.share.sessions import ShareSessions
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.schema import Message
from gateway.group_log import GroupLog
from gateway.members.begun_topics import BegunTopics
from gateway.members.evictions import Evictions
from gateway.members.group_settings import GroupSettings
from gateway.members.groups import Groups
from gateway.routing.owners import Alone, Owners
from gateway.upstream.cluster import EARLIEST
from gateway.upstream.commits import Commit, Committed
from gateway.upstream.errors import Refused, UpstreamError
from gateway.windows.dependencies import Dependencies
from gateway.windows.ready_signals import ReadySignals
from gateway.windows.record_flow import RecordFlow
from gateway.windows.store_availability import MonitoredStore
from gateway.windows.window import Window
from gateway.windows.windows import Windows
from tests.rig.scripted_hashes import ScriptedHashes
from tests.rig.scripted_log import ScriptedLog
from tests.rig.virtual_time import now_ms

GROUP = "orders-group"
TOPIC = "orders"
TOPIC_ID = bytes(range(16))

Sink = Callable[[ReadResult], None]


class ScriptedStore(MemoryStore):
    """Also fails some of the next calls, or answers late."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[StoreError] = []  # of the next calls of `apply`
        self.applied: list[list[Write]] = []
        self.gate: asyncio.Event | None = None  # `apply` waits for it, after having applied

    async def apply(self, writes: Sequence[Write]) -> list[StoreError | None]:
        self.applied.append(list(writes))
        if self.failures:
            return [self.failures.pop(0)] * len(writes)
        results = self.apply_now(writes)
        if self.gate is not None:
            await self.gate.wait()
        return results


@dataclass(slots=True)
class ScriptedCommits:
    metadata_chars_max: int = 4_096
    repeat_ms: int = 3_600_000
    committed: dict[tuple[str, int], Committed] = field(default_factory=dict)  # group, partition
    errors: list[int] = field(default_factory=list)  # of the next commits
    requests: list[list[Commit]] = field(default_factory=list)
    failure: UpstreamError | None = None
    refused: dict[int, Refused] = field(default_factory=dict)  # of asked offsets, by partition

    async def fetch(self, group: str, tp: TopicPartition) -> Committed | None:
        if self.failure is not None:
            raise self.failure
        if tp.partition in self.refused:
            raise self.refused[tp.partition]
        return self.committed.get((group, tp.partition))

    async def coordinators(self, groups: Sequence[str]) -> dict[str, int | None]:
        return dict.fromkeys(groups, 1)

    async def fetch_some(
        self,
        group: str,
        partitions: Sequence[TopicPartition],
        *,
        attempts_max: int = 1,  # noqa: ARG002
    ) -> dict[TopicPartition, Committed | Refused | None]:
        refused = self.refused
        return {tp: refused.get(tp.partition) or await self.fetch(group, tp) for tp in partitions}

    async def commit(
        self,
        group: str,
        commits: Sequence[Commit],
        *,
        attempts_max: int = 1,  # noqa: ARG002
    ) -> list[int]:
        self.requests.append(list(commits))
        if self.errors:
            return [self.errors.pop(0)] * len(commits)
        for commit in commits:
            place = (group, commit.tp.partition)
            self.committed[place] = Committed(commit.offset, commit.leader_epoch, commit.metadata)
        return [0] * len(commits)


@dataclass(slots=True)
class ScriptedDeadLetters:
    outcomes: list[bool | Exception | None] = field(
        default_factory=list
    )  # of the next; then durable
    written: list[list[int]] = field(default_factory=list)
    isolations: list[int] = field(default_factory=list)
    queues: list[DeadLetterQueue | None] = field(default_factory=list)
    gate: asyncio.Event | None = None

    async def write_offsets(
        self,
        group: str,  # noqa: ARG002
        source: Source,
        topic: str,  # noqa: ARG002
        effect: WriteDeadLetters,
        queue: DeadLetterQueue | None = None,
    ) -> list[bool | None]:
        self.queues.append(queue)
        self.written.append(effect.offsets)
        self.isolations.append(source.isolation)
        if self.gate is not None:
            await self.gate.wait()
        outcome = self.outcomes.pop(0) if self.outcomes else True
        if isinstance(outcome, Exception):
            raise outcome
        return [outcome] * len(effect.offsets)

    def trouble(self, origin: str, topic: str) -> str | None:
        return f"no {topic} for {origin}"


def topology(
    partitions: int = 1,
    *,
    leader: int = 1,
    topic_id: bytes = TOPIC_ID,
    error: int = 0,
    brokers: tuple[int, ...] = (1, 2),
) -> Topology:
    parts = {p: PartitionInfo(leader, 0) for p in range(partitions)} if error == 0 else {}
    topic = Topic(TOPIC, topic_id, parts, error=error)
    return Topology(
        cluster_id="c",
        brokers={broker: Broker(broker, "upstream", 9000 + broker) for broker in brokers},
        topics={TOPIC: topic},
        names={} if error else {topic_id: TOPIC},
    )


class Node:
    """The runtime of a node without sockets. Inside `async with`, its tasks run."""

    def __init__(
        self,
        section: GroupSection | None = None,
        *,
        topology: Topology | None = None,
        store: ScriptedStore | None = None,
        commits: ScriptedCommits | None = None,
        hashes: ScriptedHashes | None = None,
        boot: str = "boot",
        owners: Owners | None = None,
    ) -> None:
        chosen = section or GroupSection(auto_offset_reset="earliest")
        if "assignment_interval_ms" not in chosen.model_fields_set:  # a join assigns at once
            chosen = chosen.model_copy(update={"assignment_interval_ms": 0})
        self.config = Config(groups=(chosen,))
        self.topology = topology or make_topology()
        self.store = store or ScriptedStore()
        self.commits = commits or ScriptedCommits()
        self.hashes = hashes or ScriptedHashes()
        self.log = ScriptedLog()
        self.dead_letters = ScriptedDeadLetters()
        self.delivered = BusiestTopics(1, 1)
        self.flow = RecordFlow()
        self.kafka_config: dict[str, str] = {}
        self.config_failure: UpstreamError | None = None
        self.refresh_failure: UpstreamError | None = None
        self.noticed: list[Noticed] = []
        self.changed: list[ShareGroup] = []
        self.unwatched: list[str] = []
        self.watched: list[str] = []
        self.filters: tuple[bytes, ...] = ()  # of every member
        self.connections = self.refreshes_requested = 0
        self.asked_starts: list[int | None] = []  # brokers that were asked where logs begin
        self.ready = ReadySignals()
        self.owners = owners or Alone()
        self.tasks = asyncio.TaskGroup()
        self.settings = GroupSettings(self.config, self.group_config, now_ms)
        self.groups = Groups(
            settings=self.settings,
            sessions=ShareSessions(boot, 100, 100),
            key_filters=lambda _group, _client: self.filters,
        )
        self.windows = Windows(
            self.config,
            Evictions(self.groups),
            tasks=self.tasks,
            key_filters_loaded=lambda: True,
            dependencies=Dependencies(
                store=MonitoredStore(self.store, now_ms),
                reader=self.log,
                records=self.log,
                unreadables=self.log,
                commits=self.commits,
                upstream=self,
                dead_letters=self.dead_letters,
                settings=self.settings,
                begun_topics=BegunTopics(cast(Any, self.hashes)),
                owner="node",
                now_ms=now_ms,
                ready=self.ready,
                noticed=lambda _group, _partition, noticed: self.noticed.append(noticed),
                log=GroupLog(now_ms),
                spawn=self._spawn,
                owners=self.owners,
            ),
        )
        self._hear()
        self._background: list[asyncio.Task[None]] = []

    def _hear(self) -> None:
        self.settings.on_change(self.groups.settings_changed)
        self.settings.on_change(self.windows.news.settings_changed)
        self.groups.on_topic_members(self.windows.news.membership_moved)
        self.groups.on_session_lost(self.windows.news.session_lost)
        self.groups.on_change(self.changed.append)
        self.groups.on_forgotten(self.settings.forget)
        self.groups.on_forgotten(self.windows.table.dependencies.begun_topics.forget)
        self.groups.on_forgotten(self.windows.news.group_forgotten)

    @property
    def evictions(self) -> Evictions:
        return self.windows.watchdog.evictions

    async def __aenter__(self) -> Node:
        await self.tasks.__aenter__()
        self.windows.news.topology_changed(self.topology)
        for work in (
            self.windows.persister.persist_forever,
            self.windows.watchdog.watch_forever,
            self.windows.log_starts.look_forever,
        ):
            self._background.append(self.tasks.create_task(work()))
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        for task in self._background:
            task.cancel()
        for window in self.windows.table.all():
            window.close()
        try:
            await self.tasks.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            if error is None or error not in group.exceptions:
                raise
            # The test's own error goes on as it is.

    def watch(self, topics: Iterable[str]) -> None:
        self.unwatched = [name for name in self.unwatched if name not in set(topics)]
        self.watched += [name for name in topics if name not in self.watched]

    def unwatch(self, topics: Iterable[str]) -> None:
        self.unwatched.extend(topics)
        self.watched = [name for name in self.watched if name not in set(topics)]

    def request_refresh(self) -> None:
        self.refreshes_requested += 1

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.create_task(work)

    async def group_config(self, group: str) -> dict[str, str]:  # noqa: ARG002
        if self.config_failure is not None:
            raise self.config_failure
        return self.kafka_config

    async def list_offset(self, tp: TopicPartition, timestamp: int, isolation: int) -> int:
        assert isolation in (0, 1)
        if timestamp == EARLIEST:
            return self.log.starts.get(tp.partition, 0)
        return self.log.end(tp.partition)

    async def call(
        self,
        api_key: int,
        body: Message,
        *,
        broker_id: int | None = None,
        version: int | None = None,
    ) -> Message:
        """Answers where logs begin."""
        assert (api_key, version) == (ApiKey.LIST_OFFSETS, None)
        self.asked_starts.append(broker_id)
        if self.refresh_failure is not None:
            raise self.refresh_failure
        return {
            "Topics": [
                {"Name": topic["Name"], "Partitions": [*map(self._start, topic["Partitions"])]}
                for topic in body["Topics"]
            ]
        }

    def _start(self, asked: Message) -> Message:
        assert asked["Timestamp"] == EARLIEST
        partition = asked["PartitionIndex"]
        start = self.log.starts.get(partition, 0)
        return {"PartitionIndex": partition, "ErrorCode": 0, "Offset": start}

    def change_topology(self, changed: Topology) -> None:
        self.topology = changed
        self.windows.news.topology_changed(changed)

    # ------------------------------------------------------------------------------ words of tests

    def beat(
        self,
        member: str = "m1",
        epoch: int = 0,
        *topics: str,
        connection: int = 1,
        fetches: bool = True,
        principal: str | None = None,
    ) -> int:
        """A heartbeat, and a fetch of all its partitions; joins with `topics` (default: the topic).
        Returns the member's epoch.
        """
        beat = Heartbeat(
            member_id=member,
            member_epoch=epoch,
            rack_id=None,
            topics=(topics or (TOPIC,)) if epoch == 0 else None,
            client_id=f"client-{member}",
            client_host="127.0.0.1",
            connection=connection,
            principal=principal,
        )
        answer = self.groups.heartbeat(GROUP, beat, self.topology.topics.get, now_ms())
        if epoch >= 0 and fetches:
            self.fetch(member, connection)
        return answer.member_epoch

    def fetch(self, member: str = "m1", connection: int = 1, group: str = GROUP) -> None:
        """From all partitions of its topics, as a stock client does when it has joined."""
        known = self.groups.member(group, member)
        for name in known.topics if known is not None else ():
            topic = self.topology.topics.get(name)
            for partition in sorted(topic.partitions) if topic is not None else ():
                assert self.windows.table.wanted(group, name, partition, connection)

    def window(self, partition: int = 0) -> Window:
        window = self.windows.table.get(GROUP, self.topology.topics[TOPIC].topic_id, partition)
        assert window is not None
        return window

    @property
    def stored(self) -> dict[WindowKey, int]:
        """Cursors, as the store has them."""
        return {key: state.snapshot().cursor for key, state in self.store.windows.items()}


make_topology = topology
