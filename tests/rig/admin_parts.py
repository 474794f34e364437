"""A Node whose groups an operator looks at and sets back: the answers of the store, Kafka and
upstream are scripted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dispatcher.core.model import Acknowledge, Acquire, MemberId, SessionClosed, SessionId
from dispatcher.store.base import Claimed, FencedError, StoreError, WindowKey
from gateway.config.groups import GroupSection
from gateway.core.cluster.topology import Topic, Topology
from gateway.core.reading.cache import Source
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.records import HeaderStart, RecordStart
from gateway.core.wire.schema import Message
from gateway.members.redis_table import TableUnavailable
from gateway.operations.group_offsets import GroupOffsets, Partition
from gateway.operations.lag import Lags
from gateway.operations.oldest_records import OldestRecords
from gateway.reading.record_times import Seen
from gateway.upstream.cluster import EARLIEST, LATEST
from gateway.upstream.commits import Commit, Committed
from gateway.upstream.errors import Unreachable, UpstreamError
from gateway.windows.window_keys import topic_id_text
from tests.rig.node_parts import (
    GROUP,
    TOPIC,
    TOPIC_ID,
    Node,
    ScriptedCommits,
    ScriptedStore,
    topology,
)
from tests.rig.virtual_time import now_ms, now_s, settle

M1, S1 = MemberId("m1"), SessionId("s1")


@dataclass(slots=True)
class AdminCommits(ScriptedCommits):
    """Also answers for a whole group, and late."""

    gate: asyncio.Event | None = None  # `commit` waits for it, after having committed
    answer_ms: int = 0

    async def fetch_all(self, group: str) -> dict[Partition, Committed]:
        await asyncio.sleep(self.answer_ms / 1000)
        if self.failure is not None:
            raise self.failure
        return {(TOPIC, p): commit for (name, p), commit in self.committed.items() if name == group}

    async def commit(
        self, group: str, commits: Sequence[Commit], *, attempts_max: int = 1
    ) -> list[int]:
        codes = await ScriptedCommits.commit(self, group, commits, attempts_max=attempts_max)
        if self.gate is not None:
            await self.gate.wait()
        return codes


class AdminStore(ScriptedStore):
    """Also fails to create, or is fenced by somebody just before."""

    def __init__(self) -> None:
        super().__init__()
        self.create_failures: list[StoreError] = []

    async def claim(self, key: WindowKey, owner: str, generation: int = 0) -> Claimed:
        claimed = await super().claim(key, owner, generation)
        if self.create_failures:
            failure = self.create_failures.pop(0)
            if not isinstance(failure, FencedError):
                raise failure
            self.claim_now(key, "somebody else")
        return claimed


@dataclass(slots=True)
class Forgotten:
    """Saved members and key filters: the forgotten groups, by name."""

    names: list[str] = field(default_factory=list)
    failure: TableUnavailable | None = None

    async def forget(self, name: str) -> None:
        self.names.append(name)

    async def remove(self, group: str) -> None:
        if self.failure is not None:
            raise self.failure
        await asyncio.sleep(0)  # Redis answers later
        self.names.append(f"filters of {group}")


@dataclass(slots=True)
class ScriptedStarts:
    """Of records, by partition and offset; any other record is gone."""

    known: dict[tuple[int, int], list[HeaderStart]] = field(default_factory=dict)
    more: int = 0  # headers that each record has beside those
    failure: UpstreamError | None = None
    asked: list[tuple[Source, int]] = field(default_factory=list)
    value: bytes | None = b"secret"  # of each record

    async def of(
        self, source: Source, offset: int, *, value_bytes_max: int = 0
    ) -> RecordStart | None:
        self.asked.append((source, offset))
        if self.failure is not None:
            raise self.failure
        first = self.known.get((source.tp.partition, offset))
        if first is None:
            return None
        size = -1 if self.value is None else len(self.value)
        value = (self.value or b"")[:value_bytes_max]
        return RecordStart(1_000, value, size, first, len(first) + self.more)


class View:
    """The upstream of a Node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.silent: set[int] = set()  # brokers
        self.gate: asyncio.Event | None = None  # ListOffsets waits for it
        self.errors: dict[int, ErrorCode] = {}  # by partition, of ListOffsets
        self.times: dict[int, int] = {}  # offsets by timestamp, of ListOffsets
        self.stable: dict[int, int] = {}  # by partition: where an open transaction begins
        self.asked: list[tuple[int, Message]] = []  # ListOffsets by broker
        self.refusal = ErrorCode.NONE  # of changed configs and deleted groups
        self.configs: dict[str, str | None] = {}  # changed, of any group
        self.deleted: list[str] = []  # groups

    @property
    def topology(self) -> Topology:
        return self.node.topology

    async def look_up(self, names: Iterable[str]) -> dict[str, Topic]:
        known = self.node.topology.topics
        return {name: known[name] for name in names if name in known and known[name].partitions}

    async def refresh(self, topics: Iterable[str] = ()) -> Topology:  # noqa: ARG002
        return self.node.topology

    async def call(
        self,
        api_key: int,
        body: Message,
        *,
        broker_id: int | None = None,
        version: int | None = None,
    ) -> Message:
        if api_key == ApiKey.METADATA and version is not None:
            return {"Topics": [self._named(row["TopicId"]) for row in body["Topics"]]}
        if api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS:
            return {"Responses": [self._altered(row) for row in body["Resources"]]}
        if api_key == ApiKey.DELETE_GROUPS and broker_id is not None:
            self.deleted += body["GroupsNames"]
            rows = [
                {"GroupId": name, "ErrorCode": int(self.refusal)} for name in body["GroupsNames"]
            ]
            return {"Results": rows}
        if api_key != ApiKey.LIST_OFFSETS or broker_id is None:
            raise Unreachable(f"nobody asks {api_key} v{version} {body}")
        self.asked.append((broker_id, body))
        if self.gate is not None:
            await self.gate.wait()
        if broker_id in self.silent:
            raise Unreachable(f"broker {broker_id} is away")
        isolation = body["IsolationLevel"]
        return {"Topics": [self._ends(isolation, **topic) for topic in body["Topics"]]}

    def _altered(self, resource: Message) -> Message:
        if self.refusal is ErrorCode.NONE:
            self.configs |= {config["Name"]: config["Value"] for config in resource["Configs"]}
        said = None if self.refusal is ErrorCode.NONE else "Kafka's reason"
        return {"ErrorCode": int(self.refusal), "ErrorMessage": said}

    def _named(self, topic_id: bytes) -> Message:
        name = self.node.topology.names.get(topic_id)
        error = ErrorCode.NONE if name else ErrorCode.UNKNOWN_TOPIC_ID
        return {"TopicId": topic_id, "Name": name, "ErrorCode": int(error)}

    def _ends(self, isolation: int, Name: str, Partitions: list[Message]) -> Message:
        rows = [
            {
                "PartitionIndex": row["PartitionIndex"],
                "ErrorCode": int(self.errors.get(row["PartitionIndex"], 0)),
                "Offset": self._offset(row["PartitionIndex"], row["Timestamp"], isolation),
            }
            for row in Partitions
        ]
        return {"Name": Name, "Partitions": rows}

    def _offset(self, partition: int, timestamp: int, isolation: int) -> int:
        if timestamp == EARLIEST:
            return self.node.log.starts.get(partition, 0)
        if timestamp != LATEST:
            return self.times.get(timestamp, -1)
        end = self.node.log.end(partition)
        return self.stable.get(partition, end) if isolation else end

    def silent_brokers(self) -> dict[int, str]:
        return dict.fromkeys(self.silent, "away")

    async def coordinator(self, group: str) -> int:  # noqa: ARG002
        return 1

    async def list_offsets(
        self,
        topic: str,  # noqa: ARG002
        partitions: Iterable[int],
        timestamp: int,  # noqa: ARG002
        isolation: int = 1,  # noqa: ARG002
    ) -> dict[int, int]:
        return {partition: self.node.log.end(partition) for partition in partitions}


@dataclass(slots=True)
class Times:
    """Each record of partition p was made `made_ms` + its offset * 1000; of the log of a Node."""

    node: Node
    made_ms: int = 0
    cached_from: int = 0  # older records have left the cache
    cached: set[int] = field(default_factory=set)  # partitions that it has
    holes: dict[int, int] = field(default_factory=dict)  # by offset: none up to the other
    looked: list[tuple[int, int]] = field(default_factory=list)  # partition, position
    failure: UpstreamError | None = None
    gate: asyncio.Event | None = None  # looks wait for it

    def in_cache(self, source: Source, position: int) -> Seen | None:
        cached = source.tp.partition in self.cached and position >= self.cached_from
        seen = self._seen(source, position) if cached else None
        return None if seen is None or seen.offset is None else seen

    async def look(self, source: Source, position: int) -> Seen:
        self.looked.append((source.tp.partition, position))
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return self._seen(source, position)

    def _seen(self, source: Source, position: int) -> Seen:
        behind = self.holes.get(position, position)
        if behind >= self.node.log.end(source.tp.partition):
            return Seen(behind)
        return Seen(behind + 1, behind, self.made_ms + behind * 1000)


@dataclass(slots=True)
class Admin:
    store: AdminStore = field(default_factory=AdminStore)
    commits: AdminCommits = field(default_factory=AdminCommits)
    forgotten: Forgotten = field(default_factory=Forgotten)
    section: GroupSection | None = None
    node: Node = field(init=False)
    view: View = field(init=False)
    offsets: GroupOffsets = field(init=False)
    times: Times = field(init=False)

    def __post_init__(self) -> None:
        self.node = Node(self.section, topology=topology(2), store=self.store, commits=self.commits)
        self.view = View(self.node)
        self.times = Times(self.node)
        self.offsets = GroupOffsets(
            upstream=self.view,
            store=self.node.windows.table.dependencies.store,
            commits=self.commits,
            groups=self.node.groups,
            windows=self.node.windows.table,
            committer=self.node.windows.committer,
            saved_members=self.forgotten,
            filters=self.forgotten,
            owner="node",
        )

    def lags(self) -> Lags:
        return Lags(self.offsets, OldestRecords(self.times), now_ms, clock=now_s)

    def key(self, partition: int) -> WindowKey:
        return WindowKey(GROUP, topic_id_text(TOPIC_ID), partition)


async def worked(admin: Admin, count: int = 5) -> None:
    """A member has settled the first `count` - 1 and the last of partition 0, and has left; its
    window is still in memory.
    """
    node = admin.node
    node.log.produce(*(b"key-%d" % at for at in range(count + 1)))
    node.beat()
    await settle()
    acquired = node.window().acquire(Acquire(M1, S1, 100, now_ms()))
    assert acquired is not None
    done = [*range(count - 1), count]
    await node.window().ask(Acknowledge(M1, S1, [(o, o, b"\1") for o in done], now_ms()))
    node.beat("m1", -1)
    node.window().post(SessionClosed(M1, S1, now_ms()))
    await node.windows.committer.commit()
    await settle()
