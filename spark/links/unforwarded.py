"""Records that a link has copied to its target and that other clusters of the subtree lack, found
by origin in their logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from keyway.clusters.config import ClustersConfig
from keyway.clusters.core.copies import Copy, Origin, Stood, judge
from keyway.clusters.core.names import Unfit
from keyway.clusters.core.tree import FRESH, ClusterName
from keyway.clusters.core.trust import Seals
from keyway.terminal.progress import Step, no_step
from spark.links.link import Link
from spark.streaming.core.survey import Position
from spark.streaming.kafka import KafkaSide
from spark.streaming.limits import ANSWER_S, UNFORWARDED_SCANNED_MAX
from spark.streaming.orders import Partition
from spark.streaming.read_back import headers_of, to_the_end

# An origin without its topic id, which headers of version 1 lack.
Spot = tuple[ClusterName, str, int, int]

# The topic is at fault, not the cluster: the others are compared all the same.
_TOPIC_FAULTS = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.LEADER_NOT_AVAILABLE,
    }
)
_NOT_KNOWN = -1  # the end of a log without a leader


@dataclass(frozen=True, slots=True)
class Unforwarded:
    """Records of one partition that were copied to the old target and are not on the others.
    `first` is the offset of the oldest of them on the source.
    """

    first: int
    records: int
    cut: bool  # the partition was not compared back to its beginning, and the oldest was missing


@dataclass(slots=True)
class Windows:
    """`failed`: topics that could not be compared, with the reason."""

    found: dict[Partition, Unforwarded] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Subtree:
    """The clusters that are compared, and the ends of their logs at one moment: what a link copies
    there later does not count. `ends`: by cluster, and by logical topic and partition.
    """

    sides: Mapping[ClusterName, KafkaSide]
    ends: Mapping[ClusterName, Mapping[Partition, int]]


def subtree_now(
    config: ClustersConfig, link: Link, old: ClusterName | None, logical: set[str]
) -> Subtree:
    """The new target, and every other cluster of the subtree but the old target that answers.
    Raises KafkaException.
    """
    sides: dict[ClusterName, KafkaSide] = {}
    ends: dict[ClusterName, dict[Partition, int]] = {}
    for target in link.distributor.allowed:
        side = KafkaSide(config.cluster(target))
        if target == old or not (target == link.target or side.answers()):
            continue
        try:
            ends[target] = _ends(side, logical)
        except KafkaException:
            if target == link.target:
                raise
            continue  # half of it is away
        sides[target] = side
    return Subtree(sides, ends)


def _ends(side: KafkaSide, logical: set[str]) -> dict[Partition, int]:
    """The ends of the logs, by logical topic, for the topics that exist there. None is known of a
    topic with a partition that has no leader.
    """
    names = side.cluster.topic_names()
    here = {names.back(topic): topic for topic in sorted(logical)}
    known = {back: topic for back, topic in here.items() if not isinstance(back, Unfit)}
    side.listed()
    there = side.visible(list(known))
    places = [(name, partition) for name, (_, count) in there.items() for partition in range(count)]
    asked = [place for place in places if place[0] not in side.leaderless]
    ends = {**dict.fromkeys(places, _NOT_KNOWN), **side.log_ends(asked)}
    return {(known[name], partition): end for (name, partition), end in ends.items()}


def compare_into(
    windows: Windows,
    link: Link,
    source: KafkaSide,
    positions: Mapping[Partition, Position],
    subtree: Subtree,
    seals: Seals,
    step: Step = no_step,
) -> None:
    """Fills `windows`, one partition after the other. Raises KafkaException if a cluster does not
    answer.
    """
    source.listed()
    windows.failed |= {
        topic: _without_leader(link.source) for topic, _ in positions if topic in source.leaderless
    }
    for (topic, partition), position in positions.items():
        logical = source.cluster.topic_names().there(topic)
        if isinstance(logical, Unfit) or topic in windows.failed:
            continue
        step(f"comparing {topic}-{partition}")
        place = (topic, partition)
        try:
            window = _unforwarded(link, source, place, position.offset, logical, subtree, seals)
        except KafkaException as error:
            if error.args[0].code() not in _TOPIC_FAULTS:
                raise
            windows.failed[topic] = error.args[0].str()
            continue
        if window is not None:
            windows.found[place] = window


def _unforwarded(
    link: Link,
    source: KafkaSide,
    place: Partition,
    position: int,
    logical: str,
    subtree: Subtree,
    seals: Seals,
) -> Unforwarded | None:
    low = max(0, position - UNFORWARDED_SCANNED_MAX)
    sent = copied_records(source, link, place, logical, (low, position), seals)
    if not sent:
        return None
    since_ms = min(timestamp for _, _, timestamp in sent)
    lacking: set[int] = set()
    for name, side in subtree.sides.items():
        there = side.cluster.topic_names().back(logical)
        if isinstance(there, Unfit):
            continue
        end = subtree.ends[name].get((logical, place[1]), 0)
        if end == _NOT_KNOWN:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, _without_leader(name)))
        where = (there, place[1])
        has = origins_since(side, name, where, logical, (since_ms, end), seals) if end else set()
        lacking |= {offset for offset, origin, _ in sent if origin not in has}
    if not lacking:
        return None
    return Unforwarded(min(lacking), len(lacking), low > 0 and min(lacking) == sent[0][0])


def _without_leader(cluster: ClusterName) -> str:
    return f"a partition at {cluster} has no leader: the brokers that have it are away"


def copied_records(
    source: KafkaSide,
    link: Link,
    place: Partition,
    logical: str,
    offsets: tuple[int, int],
    seals: Seals,
) -> list[tuple[int, Spot, int]]:
    """(offset, origin, timestamp) of those in [first, last) that the link copies."""
    found = []
    with source.consumer(f"{link.group}-compare", enable_partition_eof=True) as consumer:
        for message in messages(consumer, place, *offsets):
            copy = copy_of(message, link.source, logical, seals)
            if link.distributor.flags_of_copy(copy.flags) is not None:
                found.append((offset_of(message), copy.origin.place, message.timestamp()[1]))
    return found


def origins_since(
    side: KafkaSide,
    name: ClusterName,
    place: Partition,
    logical: str,
    between: tuple[int, int],
    seals: Seals,
) -> set[Spot]:
    """The origins of the records of a partition from a timestamp on, up to an offset."""
    since_ms, end = between
    group = "keyway-compare"
    with side.consumer(group, enable_partition_eof=True) as consumer:
        (at,) = consumer.offsets_for_times([TopicPartition(*place, since_ms)], ANSWER_S)
        if at.error is not None and at.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return set()
        if at.error is not None:
            raise KafkaException(at.error)
        if at.offset < 0:
            return set()
        return {
            copy_of(message, name, logical, seals).origin.place
            for message in messages(consumer, place, at.offset, end)
        }


def copy_of(message: Message, cluster: ClusterName, logical: str, seals: Seals) -> Copy:
    """The contents of a record's header whose seal fits; a fresh record is its own origin."""
    stood = Stood(logical, message.timestamp()[1], message.key(), message.value())
    copy = judge(headers_of(message), stood, seals=seals).copy
    partition = message.partition()
    assert partition is not None
    return copy or Copy(FRESH, Origin(cluster, logical, partition, offset_of(message)))


def offset_of(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def messages(
    consumer: Consumer, place: Partition, first: int, last: int | None = None
) -> list[Message]:
    """Committed records from `first` to before `last`, or to the end."""
    low, high = consumer.get_watermark_offsets(TopicPartition(*place), ANSWER_S)
    end = high if last is None else min(high, last)
    found: list[Message] = []
    if max(first, low) >= end:
        return found
    consumer.assign([TopicPartition(*place, max(first, low))])
    for message in to_the_end(consumer):
        if offset_of(message) >= end:
            break
        found.append(message)
        if offset_of(message) == end - 1:
            break
    return found
