"""A link between two clusters in memory, from survey to positions, without Kafka and Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation
from pyspark.sql import SparkSession

from keyway.clusters.config import ClustersConfig, MessagesSection
from keyway.clusters.core.tree import ClusterName, Distributor, Level
from spark.links.distribute import LinkRun
from spark.links.link import Link
from spark.links.reports import LinkReport
from spark.links.status import Json, StatusTopic
from spark.links.surveyor import Surveyor
from spark.streaming.core.survey import UNKNOWN_EPOCH, Position, Tail, Topic
from spark.streaming.kafka import KafkaSide
from spark.streaming.known_topics import KnownTopics
from spark.streaming.orders import Partition, Result
from tests.rig.link_status import Kept

C1, C2 = ClusterName("c1"), ClusterName("c2")
DISTRIBUTOR = Distributor(C1, Level(1), (C2,), (C2,))
CONFIG = ClustersConfig.model_validate(
    {
        "clusters": [
            {"name": "c1", "bootstrap_servers": "127.0.0.1:1"},
            {"name": "c2", "bootstrap_servers": "127.0.0.1:1"},
        ],
        "tree": {"level": 1, "children": ["c1", "c2"]},
        "topics": {"include": ["flights"]},
    }
)
# Without any section that may be left out.
DEFAULTS = ClustersConfig.model_validate(
    {
        "clusters": CONFIG.model_dump(mode="json")["clusters"],
        "tree": {"level": 1, "children": ["c1", "c2"]},
    }
)
COPIED = 1_000
RESULT: Result = {
    "topic": "flights",
    "partition": 0,
    "position": COPIED,
    "copied": COPIED,
    "already": 0,
    "skipped": 0,
    "repeats": 0,
    "doubts": 0,
    "left_out": 0,
    "last_left_out": "",
    "bytes": 0,
    "last_timestamp_ms": 1,
    "refused": None,
}


@dataclass(slots=True)
class Side:
    """A cluster's topics and committed offsets, as `KafkaSide` tells them."""

    name: str
    ids: dict[str, str] = field(default_factory=dict)
    committed: dict[Partition, Position] = field(default_factory=dict)
    partitions: int = 2
    created: int = 0
    copies: set[str] = field(default_factory=set)  # topics with copies of the link's records
    unlisted: set[str] = field(default_factory=set)  # there, and yet not in the list of topics
    settings: dict[str, str] = field(default_factory=dict)  # of every topic
    refused: dict[str, int] = field(default_factory=dict)  # topics not to be made: Kafka's error
    leaderless: dict[str, int] = field(default_factory=dict)
    out_of_sync: dict[str, tuple[int, int]] = field(default_factory=dict)
    shown: set[str] = field(default_factory=set)  # topics that may be described, and not read
    log_start: int = 0  # of each partition
    log_end: int = COPIED
    epoch: int = UNKNOWN_EPOCH  # of each partition's leader
    epoch_ends: dict[int, int] = field(default_factory=dict)  # of earlier leaders' records

    @property
    def cluster(self) -> object:
        return CONFIG.cluster(self.name)

    def listed(self) -> dict[str, int]:
        return {name: self.partitions for name in self.ids if name not in self.unlisted}

    def described(
        self, names: Sequence[str], needed: AclOperation | None = None
    ) -> dict[str, tuple[str, int] | KafkaError]:
        missing = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "READ is not allowed")
        return {
            name: missing
            if name not in self.ids
            else denied
            if needed is not None and name in self.shown
            else (self.ids[name], self.partitions)
            for name in names
        }

    def visible(self, names: Sequence[str]) -> dict[str, tuple[str, int]]:
        return {name: (self.ids[name], self.partitions) for name in names if name in self.ids}

    def absent(self, names: Sequence[str]) -> set[str]:
        return set(names) - self.ids.keys()

    def configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        return {name: dict(self.settings) for name in names if name in self.ids}

    def grow(self, name: str, partitions: int) -> None:
        self._may_make(name)
        self.partitions = partitions

    def _may_make(self, name: str) -> None:
        if (code := self.refused.get(name)) is not None:
            raise KafkaException(KafkaError(code))

    def create_like(self, _topic: Topic, name: str, _messages: MessagesSection) -> None:
        self._may_make(name)
        self.created += 1
        self.ids[name] = f"{self.name}-{self.created}"

    def create(self, name: str, _partitions: int, _configs: object) -> None:
        self._may_make(name)
        self.ids[name] = name

    def delete(self, name: str) -> None:
        """Kafka deletes the offsets of a deleted topic, too."""
        del self.ids[name]
        self.committed = {place: at for place, at in self.committed.items() if place[0] != name}

    def log_starts(self, places: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(self._with_leaders(places), self.log_start)

    def log_ends(self, places: Iterable[Partition]) -> dict[Partition, int]:
        return {place: tail.end for place, tail in self.tails(places).items()}

    def tails(self, places: Iterable[Partition]) -> dict[Partition, Tail]:
        return dict.fromkeys(self._with_leaders(places), Tail(self.log_end, self.epoch))

    def cut(
        self, positions: Mapping[Partition, Position], tails: Mapping[Partition, Tail]
    ) -> set[Partition]:
        return {
            place
            for place, position in positions.items()
            if tails[place].is_of_another_leader(position.epoch)
            and position.offset > self.epoch_ends.get(position.epoch, self.log_end)
        }

    def _with_leaders(self, places: Iterable[Partition]) -> list[Partition]:
        asked = list(places)
        if any(self.leaderless.get(topic) == partition for topic, partition in asked):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return asked

    def positions(self, _group: str, places: Iterable[Partition]) -> dict[Partition, Position]:
        return {place: self.committed[place] for place in places if place in self.committed}

    def set_positions(
        self,
        _group: str,
        positions: Mapping[Partition, Position],
        stood: Mapping[Partition, Position] | None = None,
    ) -> None:
        assert stood in (None, self.positions("", positions)), "nobody else writes here"
        self.committed |= positions


@dataclass(slots=True)
class World:
    """The two clusters and the status topic, all of which outlive a process."""

    here: Side = field(default_factory=lambda: Side("c1", {"flights": "here"}))
    there: Side = field(default_factory=lambda: Side("c2"))
    told: dict[str, Json] = field(default_factory=dict)
    config: ClustersConfig = CONFIG

    def process(self) -> LinkRun:
        run = LinkRun(cast(SparkSession, None), self.config, DISTRIBUTOR, threading.Event())
        run._source, run._target = cast(KafkaSide, self.here), cast(KafkaSide, self.there)
        run._link = Link(DISTRIBUTOR, C2)
        known = KnownTopics(run._source, needed=AclOperation.READ), KnownTopics(run._target)
        run._surveyor = Surveyor(self.config, run._link, *known, None, run._refusals)
        run.report = LinkReport(DISTRIBUTOR, cast(StatusTopic, Kept(self.told)))
        run.report.load()
        run.report.targeted(C2)
        return run

    def copied(self, run: LinkRun, *partitions: int) -> None:
        """A batch wrote every record of `partitions`, and the status topic tells it."""
        for partition in partitions:
            self.there.committed["flights", partition] = Position(COPIED, "here")
            run.report.copied({**RESULT, "partition": partition})
        run.report.publish({("flights", partition): COPIED for partition in partitions})
