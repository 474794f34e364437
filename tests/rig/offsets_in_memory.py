"""The offsets of one cluster without Kafka: a client whose commits can fail, logs of one length.

Only the requests to Kafka are replaced: state topic, index, searches and plans are the real ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from keyway.clusters.config import Cluster
from keyway.clusters.core.internal import STATE_TOPIC_CONFIG
from keyway.clusters.core.trust import CHECKSUM
from keyway.kafka.compacted import CompactedTopic, Record
from keyway.kafka.log_ends import Tail
from offsets.client import ClusterClient, Commits, GroupPlace, Partition, Refused, TopicFacts
from offsets.commits import Change
from offsets.core.consumer_offsets import OffsetCommitted
from offsets.core.index import PartitionIndex
from offsets.core.model import Rows, Search, Stream
from offsets.core.plan import Committed
from offsets.errors import ClusterAway
from offsets.group_requests import Wanted
from offsets.partitions import Answer, Asked, Partitions
from tests.rig.offset_histories import answered

RECORDS = 100
FACTS = TopicFacts(partitions=1, create_time=True, topic_id="first-life")
STREAM = Stream("A", "topic", 0)


class MemoryClient(ClusterClient):
    """`fail`: raised, or answered, by the next commit."""

    def __init__(self, name: str, now_ms: int) -> None:
        super().__init__(Cluster(name=name, bootstrap_servers="127.0.0.1:1"))
        self.now_ms = now_ms
        self.positions: dict[GroupPlace, Committed] = {}
        self.fail: Exception | Refused | None = None
        self.topic_id = FACTS.topic_id
        self.active: set[str] = set()
        self.unknown: dict[str, Refused] = {}  # groups whose commits are not told
        self.hidden: set[str] = set()  # topics that this user may not describe
        self.leaderless: set[Partition] = set()
        self.epoch = 0  # of the leaders
        self.is_cut: bool | None = False  # what a later leader says

    def active_groups(self) -> set[str]:
        return self.active

    def committed_each(self, groups: Iterable[str]) -> dict[str, Commits | Refused]:
        return {wanted: self.unknown.get(wanted) or self._commits(wanted) for wanted in groups}

    def _commits(self, group: str) -> Commits:
        return {
            place[1:]: at
            for place, at in self.positions.items()
            if place[0] == group and place[1] not in self.hidden
        }

    def without_commit(self, places: Iterable[GroupPlace]) -> set[GroupPlace]:
        return {
            place for place in places if place not in self.positions and place[1] not in self.hidden
        }

    def commit(
        self, wanted: Mapping[str, Wanted]
    ) -> dict[str, dict[tuple[str, int], Refused | None]]:
        failure, self.fail = self.fail, None
        if isinstance(failure, Exception):
            raise failure
        if failure is None:
            self.positions |= {
                (group, *place): Committed(offset, metadata, self.now_ms)
                for group, places in wanted.items()
                for place, (offset, metadata) in places.items()
            }
        return {group: dict.fromkeys(places, failure) for group, places in wanted.items()}

    def starts(
        self, partitions: Iterable[Partition], *, partly: bool = False
    ) -> dict[Partition, int]:
        return dict.fromkeys(self._with_leaders(partitions, partly=partly), 0)

    def ends(
        self, partitions: Iterable[Partition], *, partly: bool = False
    ) -> dict[Partition, int]:
        return dict.fromkeys(self._with_leaders(partitions, partly=partly), RECORDS)

    def tails(self, partitions: Iterable[Partition]) -> dict[Partition, Tail]:
        ends = self.ends(partitions, partly=True)
        return {place: Tail(end, self.epoch) for place, end in ends.items()}

    def cut(self, positions: Mapping[Partition, tuple[int, int]]) -> dict[Partition, bool | None]:
        return dict.fromkeys(positions, self.is_cut)

    def _with_leaders(self, partitions: Iterable[Partition], *, partly: bool) -> list[Partition]:
        asked = list(partitions)
        if not partly and self.leaderless.intersection(asked):
            raise ClusterAway(f"{self.name}: no leaders")
        return [partition for partition in asked if partition not in self.leaderless]

    def identities(self, topics: Iterable[str]) -> dict[str, tuple[str, int]]:
        return dict.fromkeys(topics, (self.topic_id, 1))

    def compacted(self, topic: str) -> CompactedTopic:
        return MemoryTopic({}, topic)


class MemoryTopic(CompactedTopic):
    """The state topic reads its own writes by itself."""

    def exists(self) -> bool:
        return True

    def ensure(self, configs: Mapping[str, str] = STATE_TOPIC_CONFIG) -> bool:  # noqa: ARG002
        """It is there."""
        return False

    def end(self) -> int:
        return 0

    def write(self, records: Iterable[Record]) -> None:
        """Kept by nobody."""


class MemorySource:
    """The commits of a client, as `__consumer_offsets` would tell them."""

    caught_up = True
    timed = True
    working: Collection[str] = ()

    def __init__(self, client: MemoryClient) -> None:
        self._client = client
        self._seen: dict[GroupPlace, Committed] = {}

    def latest(self, place: GroupPlace) -> Committed | None:
        return self._client.positions.get(place)

    def poll(self) -> Collection[Change]:
        fresh = dict(self._client.positions.items() - self._seen.items())
        self._seen |= fresh
        return [
            OffsetCommitted(*place, commit.offset, -1, commit.metadata, commit.committed_ms or 0)
            for place, commit in fresh.items()
        ]

    def close(self) -> None:
        """There is nothing to close."""


class MemoryPartitions(Partitions):
    """Every partition has the same records, all of them from A. `read`: how many of them the index
    knows.
    """

    def __init__(self, client: ClusterClient, *, read: int = RECORDS) -> None:
        super().__init__(client, seals=CHECKSUM)
        self._index: PartitionIndex | None = PartitionIndex(Stream(client.name, "topic", 0), 0)
        self._index.extend(_rows(0, read - 1), read)

    def index(self, partition: Partition) -> PartitionIndex | None:  # noqa: ARG002
        return self._index

    def leave(self, partitions: Iterable[Partition]) -> None:  # noqa: ARG002
        self._index = None

    def all_answered(
        self, searches: Mapping[Asked, tuple[Partition, Search[Answer]]]
    ) -> dict[Asked, Answer]:
        return {key: answered(search, _rows) for key, (_, search) in searches.items()}


def _rows(first: int, last: int) -> Rows:
    offsets = range(max(0, first), min(last + 1, RECORDS))
    return Rows(offsets, [0] * len(offsets), [STREAM] * len(offsets), offsets)
