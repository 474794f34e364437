"""What upstream and the node know of a topic before it grows: its partitions, its groups, and where
its producers put keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from gateway.core.cluster.discovery import metadata_request
from gateway.core.cluster.topology import TopicPartition
from gateway.core.reading.cache import Source
from gateway.core.reading.fetching import Fetch, FetchPosition
from gateway.core.repartition.partitioners import Partitioner, Shown, shown_by
from gateway.core.repartition.plan import Into, TopicFacts, internal_topics
from gateway.core.repartition.record import Repartition
from gateway.core.share.listing import may_be_ours
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.records import Batch, CorruptBatch, Scan
from gateway.core.wire.schema import Message
from gateway.operations.errors import PartitionUnknown, StateUnavailable
from gateway.operations.group_offsets import GroupOffsets
from gateway.reading.record_times import TIMES_LANE
from gateway.reading.refetch import committed_of, fetched
from gateway.repartition.limits import (
    GROUPS_ASKED_AT_ONCE,
    SAMPLED_OFFSETS,
    SAMPLED_PARTITIONS_MAX,
)
from gateway.repartition.subscribers import subscribers_of
from gateway.upstream.cluster import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Upstream,
)
from gateway.upstream.commits import Commits
from gateway.upstream.configs import topic_config
from gateway.upstream.errors import Refused, UpstreamError

_NO_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)
_COMPACTION = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class Leaders:
    """A topic as upstream has it, also what is hidden. `leaders`: by partition; -1: none now."""

    topic_id: bytes
    leaders: dict[int, int]


@dataclass(frozen=True, slots=True)
class GroupsOf:
    """The groups that a topic's order may matter to."""

    ordered: tuple[str, ...]  # Key-Shared and reliable
    unreliable: tuple[str, ...]
    others: tuple[str, ...]  # with a position
    starting: tuple[str, ...] = ()  # others that are subscribed, and have committed nothing yet
    rebalancing: tuple[str, ...] = ()  # others that may be


async def leaders_of(upstream: Upstream, topic: str) -> Leaders | None:
    """None: there is no such topic. Raises UpstreamError."""
    answer = await upstream.call(ApiKey.METADATA, metadata_request([topic]))
    (row,) = answer["Topics"]
    if row["ErrorCode"] in _NO_TOPIC:
        return None
    if row["ErrorCode"] not in (0, ErrorCode.LEADER_NOT_AVAILABLE):
        raise Refused(row["ErrorCode"], f"topic {topic!r}")
    leaders = {
        partition["PartitionIndex"]: partition["LeaderId"] for partition in row["Partitions"]
    }
    return Leaders(row["TopicId"], leaders)


async def keys_from(
    upstream: Upstream, tp: TopicPartition, leader: int, position: int
) -> list[tuple[int, bytes]]:
    """Offsets and keys in the answer of one fetch; none if the log is damaged there. Raises
    UpstreamError.
    """
    place = FetchPosition(Source(tp, READ_UNCOMMITTED), position)
    fetch = Fetch(READ_UNCOMMITTED, 0, (place,))
    answer = (await fetched(upstream, leader, TIMES_LANE, fetch))[tp]
    try:
        batches = await _scanned(answer)
    except CorruptBatch:
        return []
    return [
        (offset, key)
        for batch in batches
        for offset, key in zip(batch.offsets, batch.keys, strict=True)
        if key is not None and offset >= position
    ]


async def _scanned(answer: Message) -> list[Batch]:
    """The batches of one partition's answer; none of one that is an error. Raises CorruptBatch."""
    scan = Scan(answer["Records"] or b"") if answer["ErrorCode"] == 0 else Scan(b"")
    while await asyncio.to_thread(scan.step, SAMPLED_OFFSETS):
        pass
    return scan.batches


@dataclass(frozen=True, slots=True)
class Survey:
    upstream: Upstream
    commits: Commits
    offsets: GroupOffsets

    async def facts(
        self, topic: str, before: int | None, named: Partitioner | None = None
    ) -> TopicFacts:
        """`before`: the partitions that clients see, if some are hidden. `named`: the partitioner,
        by the operator. Raises PartitionUnknown, StateUnavailable.
        """
        try:
            there = await leaders_of(self.upstream, topic)
            if there is None:
                raise PartitionUnknown(f"no topic {topic!r}")
            policy = await topic_config(self.upstream, topic, [_COMPACTION])
            shown = await self._shown(topic, there, before or len(there.leaders), named)
            groups = await self.groups(topic, before or len(there.leaders))
            streams = await self._streams(groups.others)
        except UpstreamError as error:
            raise StateUnavailable(f"upstream: {error}") from error
        return TopicFacts(
            name=topic,
            topic_id=there.topic_id,
            partitions=len(there.leaders),
            compacted="compact" in policy.get(_COMPACTION, ""),
            shown=shown,
            ordered_groups=groups.ordered,
            unreliable_groups=groups.unreliable,
            other_groups=groups.others,
            streams=streams,
        )

    async def into(self, name: str) -> Into:
        """Raises StateUnavailable."""
        try:
            return Into(name=name, there=await leaders_of(self.upstream, name) is not None)
        except UpstreamError as error:
            raise StateUnavailable(f"upstream: {error}") from error

    # ------------------------------------------------------------------------------------- its keys

    async def _shown(
        self, topic: str, there: Leaders, before: int, named: Partitioner | None
    ) -> Shown:
        partitions = range(min(before, SAMPLED_PARTITIONS_MAX))
        await self.upstream.refresh([topic])
        ends = await self.upstream.list_offsets(topic, partitions, LATEST, READ_UNCOMMITTED)
        starts = await self.upstream.list_offsets(topic, partitions, EARLIEST, READ_UNCOMMITTED)
        samples = {}
        for partition in partitions:
            position = max(starts[partition], ends[partition] - SAMPLED_OFFSETS)
            if position < ends[partition]:
                tp = TopicPartition(topic, there.topic_id, partition)
                keyed = await keys_from(self.upstream, tp, there.leaders[partition], position)
                samples[partition] = [key for _, key in keyed[-SAMPLED_OFFSETS:]]
        return shown_by(samples, before, named)

    async def first_record(self, record: Repartition, partition: int, position: int) -> int | None:
        """The offset of the first record at or behind `position` that a consumer gets, as far as
        one fetch reads; else where that ends. None: nothing can be read there now. Raises
        UpstreamError.
        """
        topic = self.upstream.topology.topics.get(record.topic)
        if topic is None or partition not in topic.partitions:
            return None
        tp = TopicPartition(record.topic, bytes.fromhex(record.topic_id), partition)
        fetch = Fetch(READ_COMMITTED, 0, (FetchPosition(Source(tp, READ_COMMITTED), position),))
        leader = topic.partitions[partition].leader
        answer = (await fetched(self.upstream, leader, TIMES_LANE, fetch))[tp]
        if answer["ErrorCode"] == ErrorCode.OFFSET_OUT_OF_RANGE:
            return max(position, await self.upstream.list_offset(tp, EARLIEST))
        try:
            batches = await _scanned(answer)
        except CorruptBatch:
            return None
        for batch in committed_of(batches, answer, READ_COMMITTED):
            found = next((offset for offset in batch.offsets if offset >= position), None)
            if found is not None:
                return found
        return max((batch.last_offset + 1 for batch in batches), default=None)

    # ----------------------------------------------------------------------------------- its groups

    async def groups(self, topic: str, before: int) -> GroupsOf:
        """`before`: the partitions of the topic in which a position counts. Raises UpstreamError,
        StateUnavailable.
        """
        listed = await self._listed()
        await self.offsets.recognise(row["GroupId"] for row in listed if may_be_ours(row))
        ours = {group.name: group for group in self.offsets.groups.all()}
        settings = self.offsets.windows.dependencies.settings
        reading = [
            name
            for name, group in sorted(ours.items())
            if any(member.subscribes(topic) for member in group.members.values())
            or any(place[0] == topic for place in await self.offsets.positions(name))
        ]
        for name in reading:
            await settings.known(name)
        others = {row["GroupId"]: row for row in listed if row["GroupId"] not in ours}
        with_position = await self._with_position(sorted(others), topic, before)
        rest = [others[name] for name in sorted(others) if name not in with_position]
        subscribers = await subscribers_of(self.upstream, rest, [topic])
        return GroupsOf(
            tuple(name for name in reading if settings.of(name).reliable),
            tuple(name for name in reading if not settings.of(name).reliable),
            tuple(with_position),
            subscribers.names,
            subscribers.rebalancing,
        )

    async def _listed(self) -> list[Message]:
        """The groups of all brokers; of a broker that does not answer, groups would be missed."""
        found: dict[str, Message] = {}
        for broker in self.upstream.topology.brokers:
            body: Message = {"StatesFilter": [], "TypesFilter": []}
            answer = await self.upstream.call(ApiKey.LIST_GROUPS, body, broker_id=broker)
            if answer["ErrorCode"] != 0:
                raise Refused(answer["ErrorCode"], "ListGroups")
            found.update({row["GroupId"]: row for row in answer["Groups"]})
        return list(found.values())

    async def _streams(self, groups: Collection[str]) -> dict[str, str]:
        """Those that are applications of Kafka Streams, as far as the node may see their topics."""
        if not groups:
            return {}
        answer = await self.upstream.call(
            ApiKey.METADATA, {"Topics": None, "AllowAutoTopicCreation": False}
        )
        topics = [row["Name"] for row in answer["Topics"]]
        return internal_topics(groups, {row["GroupId"] for row in await self._listed()}, topics)

    async def begins(self, group: str, topic: str) -> bool:
        """Whether members of the group subscribe to the topic, or may do so. Raises
        UpstreamError.
        """
        ours = {known.name: known for known in self.offsets.groups.all()}
        if group in ours:
            return any(member.subscribes(topic) for member in ours[group].members.values())
        listed = [row for row in await self._listed() if row["GroupId"] == group]
        found = await subscribers_of(self.upstream, listed, [topic])
        return bool(found.names or found.rebalancing)

    async def assigned_by_kafka(self, topic: str, before: int) -> list[str]:
        """The groups of the consumer protocol (KIP-848) that read the topic, or did. Raises
        UpstreamError.
        """
        rows = [row for row in await self._listed() if row["GroupType"].lower() == "consumer"]
        found = await self._with_position([row["GroupId"] for row in rows], topic, before)
        return sorted({*found, *(await subscribers_of(self.upstream, rows, [topic])).names})

    async def _with_position(self, names: list[str], topic: str, before: int) -> list[str]:
        found = []
        for at in range(0, len(names), GROUPS_ASKED_AT_ONCE):
            portion = names[at : at + GROUPS_ASKED_AT_ONCE]
            asked = [self.commits.fetch_all(name) for name in portion]
            for name, committed in zip(portion, await asyncio.gather(*asked), strict=True):
                if any(one == topic and number < before for one, number in committed):
                    found.append(name)
        return found
