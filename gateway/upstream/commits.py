"""A group's committed offsets in Kafka, read and written as the gateway itself (a simple consumer:
no member, no generation). The metadata of a commit carries the settled bitmap, so its limit is the
broker's `offset.metadata.max.bytes`.

Topics are named by their ids where upstream can do that (OffsetCommit and OffsetFetch v10), so a
topic that is created anew under the same name never gets the cursor of the old one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import structlog

from gateway.core.cluster.topology import TopicPartition
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.upstream.cluster import Upstream
from gateway.upstream.configs import broker_config
from gateway.upstream.errors import Refused, UpstreamError
from gateway.upstream.requests import NO_COORDINATOR, ask_coordinator

log = structlog.get_logger("keyway.commits")

METADATA_CHARS_MAX = 4_096  # Kafka's default of offset.metadata.max.bytes
METADATA_CHARS_MIN = 256  # halving stops here: less holds no bitmap worth writing
METADATA_LIMIT = "offset.metadata.max.bytes"
RETENTION = "offsets.retention.minutes"
REPEAT_MS_MAX = 60 * 60 * 1_000  # far below a week, Kafka's default
NAMED_COMMIT_VERSION = 9  # the last OffsetFetch that names topics
# Of one commit; a quarter of Kafka's default max.message.bytes.
REQUEST_BYTES_MAX = 256 * 1024
ENTRY_BYTES = 100  # of an offset in the log beside its names and metadata
ATTEMPTS_MAX = 5  # at finding the coordinator that really is one: within about a second


@dataclass(frozen=True, slots=True)
class Commit:
    """`offset` is the next one to read, as always in Kafka."""

    tp: TopicPartition
    offset: int
    metadata: str
    leader_epoch: int = -1  # of the last record that the commit knows of; -1 = not known


@dataclass(frozen=True, slots=True)
class Committed:
    offset: int
    leader_epoch: int  # -1 = not known
    metadata: str


@dataclass(slots=True)
class _PendingFetch:
    """Partitions that are asked about in one request, and the answer that all of them wait for."""

    partitions: list[TopicPartition] = field(default_factory=list)
    found: dict[TopicPartition, Committed | Refused | None] | UpstreamError | None = None


class Commits:
    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._metadata_chars_max = METADATA_CHARS_MAX
        self._repeat_ms = REPEAT_MS_MAX
        self._pending: dict[str, _PendingFetch] = {}  # by group: not asked yet
        self._fetch_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def metadata_chars_max(self) -> int:
        """Characters of metadata the brokers take, as far as is known."""
        return self._metadata_chars_max

    @property
    def repeat_ms(self) -> int:
        """After this time at the latest, the same offset is to be committed again. Kafka keeps it
        for offsets.retention.minutes after its last commit, whether the group is at work or not:
        it does not know the members of a Key-Shared group.
        """
        return self._repeat_ms

    async def probe_limits(self) -> None:
        """Asks every broker for its limits; the lowest count. A broker that does not say has the
        defaults.
        """
        limits: list[int] = []
        for broker in self._upstream.topology.brokers:
            try:
                config = await broker_config(self._upstream, broker, [METADATA_LIMIT, RETENTION])
                limits.append(int(config[METADATA_LIMIT]))
                kept_min = int(config.get(RETENTION, 0))
                if kept_min > 0:  # else it does not say, or keeps them for ever
                    self._repeat_ms = min(self._repeat_ms, kept_min * 60_000 // 4)
            except (UpstreamError, KeyError, ValueError) as error:
                log.warning("commit_limits_not_known", broker=broker, reason=str(error))
        if limits:
            self._metadata_chars_max = min(limits)

    # ------------------------------------------------------------------------------- reading

    async def fetch(self, group: str, tp: TopicPartition) -> Committed | None:
        """The committed offsets of a group. There is one request at a time for a group: callers
        that come meanwhile share the next one. None = never committed. Raises UpstreamError.
        """
        pending = self._pending.setdefault(group, _PendingFetch())
        pending.partitions.append(tp)
        async with self._fetch_locks.setdefault(group, asyncio.Lock()):
            if pending.found is None:
                if self._pending.get(group) is pending:
                    del self._pending[group]
                try:
                    pending.found = await self.fetch_some(group, pending.partitions)
                except UpstreamError as error:
                    pending.found = error
        if isinstance(pending.found, UpstreamError):
            raise pending.found
        found = pending.found[tp]
        if isinstance(found, Refused):
            raise found
        return found

    async def coordinators(self, groups: Sequence[str]) -> dict[str, int | None]:
        """The coordinator of each group, looked for once where it is not known; None: Kafka names
        none at the moment.
        """
        known = self._upstream.known_coordinator
        await self._upstream.look_for_coordinators([one for one in groups if known(one) is None])
        return {group: known(group) for group in groups}

    async def fetch_some(
        self,
        group: str,
        partitions: Sequence[TopicPartition],
        *,
        attempts_max: int = ATTEMPTS_MAX,
    ) -> dict[TopicPartition, Committed | Refused | None]:
        """The committed offsets of some partitions, in one request. None = never committed;
        Refused: Kafka's word on that partition alone. Raises UpstreamError.
        """
        by_topic: dict[tuple[str, bytes], dict[int, None]] = {}
        for tp in partitions:
            by_topic.setdefault((tp.topic, tp.topic_id), {})[tp.partition] = None
        topics = [
            {"Name": name, "TopicId": topic_id, "PartitionIndexes": list(indexes)}
            for (name, topic_id), indexes in by_topic.items()
        ]
        found = await self._fetch(group, topics, attempts_max)
        by_name = {(name, index): offset for (name, _, index), offset in found.items()}
        by_id = {(topic_id, index): offset for (_, topic_id, index), offset in found.items()}
        return {
            tp: by_id.get((tp.topic_id, tp.partition)) or by_name.get((tp.topic, tp.partition))
            for tp in partitions
        }

    async def fetch_all(self, group: str) -> dict[tuple[str, int], Committed]:
        """Everything the group has committed, by (topic, partition). Raises UpstreamError."""
        found: dict[tuple[str, int], Committed] = {}
        for (topic, _, partition), committed in (await self._fetch(group, None)).items():
            if isinstance(committed, Refused):
                raise committed
            found[topic, partition] = committed
        return found

    async def _fetch(
        self, group: str, topics: list[Message] | None, attempts_max: int = ATTEMPTS_MAX
    ) -> dict[tuple[str, bytes, int], Committed | Refused]:
        """Keys are topic name, topic id (the version leaves one of the two empty), partition."""
        body = {
            "GroupId": group,
            "Topics": topics,
            "Groups": [{"GroupId": group, "Topics": topics}],
            "RequireStable": False,
        }
        version = NAMED_COMMIT_VERSION if topics is None else None
        response = await ask_coordinator(
            self._upstream,
            group,
            lambda broker: self._upstream.call(
                ApiKey.OFFSET_FETCH, body, broker_id=broker, version=version
            ),
            _fetch_error,
            attempts_max=attempts_max,
        )
        return _committed(response)

    # ------------------------------------------------------------------------------- writing

    async def commit(
        self, group: str, commits: Sequence[Commit], *, attempts_max: int = ATTEMPTS_MAX
    ) -> list[int]:
        """One Kafka error code per commit, 0 = durable. Never raises for the upstream's failures.

        UNKNOWN_MEMBER_ID: a classic or consumer group of that name is active and owns the offsets.
        OFFSET_METADATA_TOO_LARGE: `metadata_chars_max` has been halved, to be used next time.
        """
        results = dict.fromkeys(range(len(commits)), int(ErrorCode.COORDINATOR_NOT_AVAILABLE))

        def left() -> list[int]:
            return [at for at, code in results.items() if code in NO_COORDINATOR]

        async def commit_left(broker: int) -> int:
            for portion in _portions(group, commits, left()):
                results.update(await self._commit_portion(broker, group, commits, portion))
            return next((code for code in results.values() if code in NO_COORDINATOR), 0)

        try:
            await ask_coordinator(
                self._upstream, group, commit_left, int, attempts_max=attempts_max
            )
        except Refused as refused:
            results |= dict.fromkeys(left(), refused.error_code)
        except UpstreamError as error:
            # The broker is gone: nothing to wait for here, the next commit is a few s away.
            log.warning("commit_not_sent", group=group, reason=str(error))
            results |= dict.fromkeys(left(), int(ErrorCode.NETWORK_EXCEPTION))
            self._upstream.forget_coordinator(group)
        self._learn(group, commits, results)
        return list(results.values())

    async def _commit_portion(
        self, broker: int, group: str, commits: Sequence[Commit], portion: list[int]
    ) -> dict[int, int]:
        """The errors, by index. Raises UpstreamError, but not for refusals of Kafka."""
        try:
            return await self._commit_once(broker, group, commits, portion)
        except Refused as refused:
            return dict.fromkeys(portion, refused.error_code)

    async def _commit_once(
        self, broker: int, group: str, commits: Sequence[Commit], chosen: list[int]
    ) -> dict[int, int]:
        by_topic: dict[tuple[str, bytes], list[Message]] = {}
        places: dict[tuple[str | bytes, int], int] = {}
        for at in chosen:
            commit = commits[at]
            topic = (commit.tp.topic, commit.tp.topic_id)
            places.update({(named, commit.tp.partition): at for named in topic})
            entry = {
                "PartitionIndex": commit.tp.partition,
                "CommittedOffset": commit.offset,
                "CommittedLeaderEpoch": commit.leader_epoch,
                "CommittedMetadata": commit.metadata,
            }
            by_topic.setdefault(topic, []).append(entry)
        body = {
            "GroupId": group,
            "GenerationIdOrMemberEpoch": -1,
            "MemberId": "",
            "Topics": [
                {"Name": name, "TopicId": topic_id, "Partitions": parts}
                for (name, topic_id), parts in by_topic.items()
            ],
        }
        response = await self._upstream.call(ApiKey.OFFSET_COMMIT, body, broker_id=broker)
        codes = dict.fromkeys(chosen, int(ErrorCode.UNKNOWN_SERVER_ERROR))
        for answered in response["Topics"]:
            for answer in answered["Partitions"]:
                at = places[answered["Name"] or answered["TopicId"], answer["PartitionIndex"]]
                codes[at] = answer["ErrorCode"]
        return codes

    def _learn(self, group: str, commits: Sequence[Commit], results: Mapping[int, int]) -> None:
        refused = [
            len(commits[at].metadata)
            for at, code in results.items()
            if code == ErrorCode.OFFSET_METADATA_TOO_LARGE
        ]
        if refused:
            halved = max(METADATA_CHARS_MIN, min(refused) // 2)
            self._metadata_chars_max = min(self._metadata_chars_max, halved)
            log.warning(
                "commit_metadata_too_large",
                group=group,
                characters=min(refused),
                limit=self._metadata_chars_max,
            )


def _portions(group: str, commits: Sequence[Commit], chosen: list[int]) -> Iterator[list[int]]:
    """`chosen` in requests that Kafka can write: all offsets of a request are one batch of
    `__consumer_offsets`, and one that is too large is refused whole.
    """
    portion: list[int] = []
    size = 0
    for at in chosen:
        commit = commits[at]
        names = len(group.encode()) + len(commit.tp.topic.encode())
        needed = ENTRY_BYTES + names + len(commit.metadata.encode())
        if portion and size + needed > REQUEST_BYTES_MAX:
            yield portion
            portion, size = [], 0
        portion.append(at)
        size += needed
    if portion:
        yield portion


def _fetch_error(response: Message) -> int:
    """The first error of an OffsetFetch answer, of the group or of a partition; 0 = none."""
    answer = response["Groups"][0] if response["Groups"] else response
    if answer["ErrorCode"] != 0:
        return int(answer["ErrorCode"])
    codes = [entry["ErrorCode"] for topic in answer["Topics"] for entry in topic["Partitions"]]
    return next((int(code) for code in codes if code != 0), 0)


def _committed(response: Message) -> dict[tuple[str, bytes, int], Committed | Refused]:
    """Raises Refused for what concerns the whole group."""
    answer = response["Groups"][0] if response["Groups"] else response
    if answer["ErrorCode"] != 0:
        raise Refused(answer["ErrorCode"], "committed offsets")
    found: dict[tuple[str, bytes, int], Committed | Refused] = {}
    for topic in answer["Topics"]:
        for entry in topic["Partitions"]:
            place = (topic["Name"], topic["TopicId"], entry["PartitionIndex"])
            if entry["ErrorCode"] != 0:
                what = f"committed offset of {topic['Name'] or topic['TopicId'].hex()}"
                found[place] = Refused(entry["ErrorCode"], what)
            elif entry["CommittedOffset"] >= 0:
                found[place] = Committed(
                    entry["CommittedOffset"], entry["CommittedLeaderEpoch"], entry["Metadata"] or ""
                )
    return found
