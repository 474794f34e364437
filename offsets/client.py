"""One Kafka cluster as offsets needs it: logs, topics, groups, commits, through confluent-kafka.

Topics are logical names here, the cluster's own names on the wire. Everything blocks, for
ANSWER_S_MAX at most, and raises ClusterAway for troubles that pass by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from keyway.clusters.config import Cluster
from keyway.clusters.core.copies import as_in_headers
from keyway.clusters.core.internal import is_internal
from keyway.clusters.core.names import Unfit
from keyway.kafka.compacted import QUIET, CompactedTopic
from keyway.kafka.cut_logs import ASKING, BEHIND_A_CUT, tried
from keyway.kafka.log_ends import NO_LEADERS, LogEnds, Tail
from keyway.kafka.log_ends import Partition as KafkaPartition
from keyway.kafka.to_ends import NOT_KNOWN
from keyway.kafka.topics import answered, described
from offsets.core.plan import Committed, Refusal
from offsets.errors import ClusterAway, NotReadable
from offsets.group_requests import KafkaError as RequestFailed
from offsets.group_requests import Partition as Place
from offsets.group_requests import (
    Wanted,
    commit_offsets,
    fetch_offsets,
    group_states,
    without_commit,
)
from offsets.limits import LOGGED_PLACES_MAX, NAMES_KEPT

log = structlog.get_logger("keyway.offsets")
Partition = tuple[str, int]  # logical topic, partition
GroupPlace = tuple[str, str, int]  # group, topic, partition, by their names on the cluster
Told = TypeVar("Told", int, Tail)

ANSWER_S_MAX = 15.0  # a coordinator that moves takes some seconds
EMPTY_STATES = ("Empty", "Dead", "")
_DENIED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
_NO_LEADER = (NO_LEADERS, KafkaError.LEADER_NOT_AVAILABLE)
_REFUSED = {
    KafkaError.UNKNOWN_MEMBER_ID: Refusal.GROUP_ACTIVE,
    KafkaError.REBALANCE_IN_PROGRESS: Refusal.GROUP_ACTIVE,
    KafkaError.ILLEGAL_GENERATION: Refusal.GROUP_ACTIVE,
    KafkaError.NON_EMPTY_GROUP: Refusal.GROUP_ACTIVE,
    KafkaError.GROUP_ID_NOT_FOUND: Refusal.GROUP_ACTIVE,  # members of a Key-Shared group
    KafkaError.UNKNOWN_TOPIC_OR_PART: Refusal.TOPIC_MISSING,
    KafkaError.OFFSET_METADATA_TOO_LARGE: Refusal.METADATA_TOO_LARGE,
    **dict.fromkeys(_DENIED, Refusal.NOT_AUTHORISED),
}


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """`create_time`: records keep the timestamps of their producers. `topic_id`: a topic that is
    deleted and created again has another one.
    """

    partitions: int
    create_time: bool
    topic_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    refusal: Refusal
    error: str

    def __str__(self) -> str:
        return f"{self.refusal}, {self.error}"


Commits = dict[tuple[str, int], Committed]  # of one group, by topic here and partition


# Long: one client of a service, whose questions share its names, errors and time-outs.
class ClusterClient:
    def __init__(self, cluster: Cluster) -> None:
        self.name = cluster.name
        self._cluster = cluster
        topics, groups = cluster.topic_names(), cluster.group_names()
        self._topic_back = lru_cache(NAMES_KEPT)(topics.back)
        self._topic_there = lru_cache(NAMES_KEPT)(topics.there)
        self._group_back = lru_cache(NAMES_KEPT)(groups.back)
        self._group_there = lru_cache(NAMES_KEPT)(groups.there)
        self._settings: dict[str, Any] = {
            **cluster.client_settings(),
            "client.id": "keyway-offsets",
            "log_level": QUIET,
        }
        self.admin = AdminClient(self._settings)
        self._ends = LogEnds(self._settings, ANSWER_S_MAX, self.admin)
        self._unreadable: set[str] = set()  # topics of which that was said

    # ------------------------------------------------------------------------------------- names

    def topic_here(self, logical: str) -> str | None:
        """The topic's name on this cluster; None if the cluster's pattern cannot express it."""
        name = self._topic_back(logical)
        return None if isinstance(name, Unfit) else name

    def topic_of(self, name: str) -> str | None:
        """The logical name; None for internal topics and foreign names."""
        logical = self._topic_there(name)
        return None if isinstance(logical, Unfit) or is_internal(logical) else logical

    def group_here(self, logical: str) -> str | None:
        name = self._group_back(logical)
        return None if isinstance(name, Unfit) else name

    def group_of(self, name: str) -> str | None:
        logical = self._group_there(name)
        return None if isinstance(logical, Unfit) else logical

    # ----------------------------------------------------------------------------------- reading

    def consumer(self, *, wait_ms: int = 100, bytes_min: int = 1) -> Consumer:
        """A consumer of committed records that also says where a partition ends. It never joins a
        group. A fetch waits for `bytes_min`, at most `wait_ms`.
        """
        return Consumer(
            {
                **self._settings,
                "group.id": "keyway-offsets-reader",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": wait_ms,
                "fetch.min.bytes": bytes_min,
            }
        )

    def partitions_of(self, name: str) -> int | None:
        """How many partitions a topic has, by its name here; None: Kafka says that it does not
        exist. Raises ClusterAway, NotReadable.
        """
        with self.asking(name):
            answer = described(self.admin, [name], ANSWER_S_MAX)[name]
            if not isinstance(answer, KafkaError):
                return answer[1]
            if answer.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise KafkaException(answer)

    def partitions_here(self) -> dict[str, int]:
        """How many partitions each logical topic has that is listed here. Raises ClusterAway."""
        with self.asking("topics"):
            listed = self.admin.list_topics(timeout=ANSWER_S_MAX).topics
        counts = {name: len(topic.partitions) for name, topic in listed.items()}
        return {
            logical: count
            for name, count in counts.items()
            if not is_internal(name) and (logical := self.topic_of(name)) is not None
        }

    def without_leader(self, name: str) -> set[int]:
        """The partitions of a topic, by its name here, that have no leader now. Raises ClusterAway,
        NotReadable.
        """
        with self.asking(name):
            listed = self.admin.list_topics(timeout=ANSWER_S_MAX).topics.get(name)
        found = {} if listed is None else listed.partitions
        return {at for at, partition in found.items() if partition.leader < 0}

    def ends_here(self, places: Iterable[KafkaPartition]) -> dict[KafkaPartition, int]:
        """As `ends`, by names here; NOT_KNOWN of one that does not tell. Raises ClusterAway."""
        with self.asking("ends of logs"):
            answers = self._ends.ends(places)
        return {
            place: NOT_KNOWN if isinstance(answer, KafkaError) else answer
            for place, answer in answers.items()
        }

    def facts(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        """The facts of logical topics. Topics that are missing on this cluster, or whose configs
        this user may not read, are left out. Raises ClusterAway.
        """
        known = self.identities(topics)
        resources = {
            ConfigResource(ConfigResource.Type.TOPIC, str(self.topic_here(topic))): topic
            for topic in known
        }
        if not resources:
            return {}
        found, unreadable = {}, set()
        asked = self.admin.describe_configs(list(resources), request_timeout=ANSWER_S_MAX)
        for resource, future in asked.items():
            try:
                config = answered(future, ANSWER_S_MAX)
            except KafkaException as error:
                if error.args[0].code() in _DENIED:
                    unreadable.add(str(resource.name))
                elif error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._away("topic configs", error) from error
                continue
            topic_id, partitions = known[resources[resource]]
            kind = config["message.timestamp.type"].value
            found[resources[resource]] = TopicFacts(partitions, kind != "LogAppendTime", topic_id)
        if fresh := sorted(unreadable - self._unreadable):
            shown = fresh[:LOGGED_PLACES_MAX]
            log.warning("topic_configs_not_readable", cluster=self.name, topics=shown)
            self._unreadable |= unreadable
        return found

    def identities(self, topics: Iterable[str]) -> dict[str, tuple[str, int]]:
        """The id and the number of partitions of logical topics. Topics that are missing here, or
        that this user may not describe, are left out. Raises ClusterAway.
        """
        names = {name: topic for topic in topics if (name := self.topic_here(topic)) is not None}
        found = {}
        for name, answer in described(self.admin, names, ANSWER_S_MAX).items():
            if not isinstance(answer, KafkaError):
                topic_id, partitions = answer
                found[names[name]] = (as_in_headers(topic_id), partitions)
            elif answer.code() not in (KafkaError.UNKNOWN_TOPIC_OR_PART, *_DENIED):
                raise self._away(f"topic {name}", KafkaException(answer))
        return found

    def starts(
        self, partitions: Iterable[Partition], *, partly: bool = False
    ) -> dict[Partition, int]:
        """Where the logs begin. Partitions that no longer exist are left out, and with `partly`
        those that have no leader now, or that this user may not describe. Raises ClusterAway.
        """
        return self._offsets(self._ends.starts, partitions, partly=partly)

    def ends(
        self, partitions: Iterable[Partition], *, partly: bool = False
    ) -> dict[Partition, int]:
        """The last stable offsets: readers of committed records read up to there. As `starts`."""
        return self._offsets(self._ends.ends, partitions, partly=partly)

    def tails(self, partitions: Iterable[Partition]) -> dict[Partition, Tail]:
        """The same, `partly`, with the epochs of the leaders."""
        return self._offsets(self._ends.tails, partitions, partly=True)

    def cut(self, positions: Mapping[Partition, tuple[int, int]]) -> dict[Partition, bool | None]:
        """Whether the logs have lost records before the offset, by the epoch beside it. The offset
        must not be before the log's start. None: it is not known. Raises ClusterAway.
        """
        if not positions:
            return {}
        places = {(self.topic_here(topic), at): (topic, at) for topic, at in positions}
        asked = [
            TopicPartition(name, at, offset, leader_epoch=epoch)
            for (name, at), place in places.items()
            if name is not None
            for offset, epoch in (positions[place],)
        ]
        settings = {"group.id": "keyway-offsets-cut", "enable.auto.commit": False, **ASKING}
        with closing(Consumer({**self._settings, **settings})) as consumer, self.asking("logs"):
            answers = tried(consumer, asked, wait_s=ANSWER_S_MAX)
        cut = {None: False, BEHIND_A_CUT: True}
        return {
            places[place]: cut.get(None if error is None else error.code())
            for place, error in answers.items()
        }

    def _offsets(
        self,
        asked: Callable[[Iterable[KafkaPartition]], Mapping[KafkaPartition, Told | KafkaError]],
        partitions: Iterable[Partition],
        *,
        partly: bool,
    ) -> dict[Partition, Told]:
        named = {
            (self.topic_here(partition[0]), partition[1]): partition for partition in partitions
        }
        places = {
            (name, at): partition for (name, at), partition in named.items() if name is not None
        }
        gone = (KafkaError.UNKNOWN_TOPIC_OR_PART, *(_DENIED if partly else ()))
        found, leaderless = {}, set()
        for place, offset in asked(places).items():
            if not isinstance(offset, KafkaError):
                found[places[place]] = offset
            elif offset.code() in _NO_LEADER:
                leaderless.add(places[place][0])
            elif offset.code() not in gone:
                raise self._away(f"offsets of {place[0]}", KafkaException(offset))
        if leaderless and not partly and (there := self.identities(leaderless)):
            raise ClusterAway(f"{self.name}: offsets of {min(there)}: no leaders")
        return found

    # ------------------------------------------------------------------------------------ groups

    def group_states(self) -> dict[str, str]:
        """The state of every group of every kind, by its name here. Raises ClusterAway."""
        try:
            return group_states(self._cluster)
        except (RequestFailed, OSError) as error:
            raise ClusterAway(f"{self.name}: groups: {error}") from error

    def active_groups(self) -> set[str]:
        """Groups with members, by their names here. Raises ClusterAway."""
        return {name for name, state in self.group_states().items() if state not in EMPTY_STATES}

    def committed(self, groups: Iterable[str]) -> dict[str, Commits]:
        """What each group has committed, by the topic names of this cluster. Raises ClusterAway,
        also if one group alone cannot be asked.
        """
        found = {}
        for group, answer in self.committed_each(groups).items():
            if isinstance(answer, Refused):
                raise ClusterAway(f"{self.name}: committed offsets: {answer.error}")
            found[group] = answer
        return found

    def committed_each(self, groups: Iterable[str]) -> dict[str, Commits | Refused]:
        """The same, or the reason why it is not known of a group: this user may not read it, or it
        has no coordinator now. Raises ClusterAway if Kafka cannot be asked.
        """
        try:
            found = fetch_offsets(self._cluster, groups)
        except (RequestFailed, OSError) as error:
            raise ClusterAway(f"{self.name}: committed offsets: {error}") from error
        return {
            group: Refused(_REFUSED.get(_code_of(answer), Refusal.CLUSTER_AWAY), str(answer))
            if isinstance(answer, Exception)
            else {place: Committed(*committed) for place, committed in answer.items()}
            for group, answer in found.items()
        }

    def without_commit(self, places: Iterable[GroupPlace]) -> set[GroupPlace]:
        """Those of which Kafka says by name that they have no commit. Raises ClusterAway if Kafka
        cannot be asked.
        """
        asked: dict[str, list[Place]] = {}
        for group, topic, partition in places:
            asked.setdefault(group, []).append((topic, partition))
        try:
            found = without_commit(self._cluster, asked) if asked else {}
        except (RequestFailed, OSError) as error:
            raise ClusterAway(f"{self.name}: committed offsets: {error}") from error
        return {
            (group, *place)
            for group, answer in found.items()
            if not isinstance(answer, Exception)
            for place in answer
        }

    def commit(
        self, wanted: Mapping[str, Wanted]
    ) -> dict[str, dict[tuple[str, int], Refused | None]]:
        """Returns None or Kafka's refusal for each partition, by group and (topic here, partition).
        Raises ClusterAway if Kafka has answered for none of them.
        """
        try:
            answers = commit_offsets(self._cluster, wanted)
        except (RequestFailed, OSError) as error:
            raise ClusterAway(f"{self.name}: commits: {error}") from error
        found: dict[str, dict[tuple[str, int], Refused | None]] = {}
        for group, codes in answers.items():
            if isinstance(codes, Exception):
                failed = Refused(Refusal.CLUSTER_AWAY, str(codes))
                found[group] = dict.fromkeys(wanted[group], failed)
            else:
                found[group] = {
                    place: self._refused(codes.get(place, KafkaError._NO_OFFSET))
                    for place in wanted[group]
                }
        return found

    # ------------------------------------------------------------------------------------ inside

    def compacted(self, topic: str) -> CompactedTopic:
        """A topic that keeps state, by its name here."""
        return CompactedTopic(self._settings, topic, answer_s=ANSWER_S_MAX)

    @contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Turns Kafka's errors into ClusterAway, or into NotReadable if this user has no right."""
        try:
            yield
        except KafkaException as error:
            if error.args[0].code() in _DENIED:
                raise NotReadable(f"{self.name}: {what}: {error.args[0].str()}") from error
            raise self._away(what, error) from error

    def _away(self, what: str, error: KafkaException) -> ClusterAway:
        return ClusterAway(f"{self.name}: {what}: {error.args[0].str()}")

    @staticmethod
    def _refused(code: int) -> Refused | None:
        if code == 0:
            return None
        return Refused(_REFUSED.get(code, Refusal.KAFKA_ERROR), KafkaError(code).name())


def _code_of(error: Exception) -> int:
    return int(error.errno) if isinstance(error, RequestFailed) else KafkaError._TRANSPORT
