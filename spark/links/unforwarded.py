"""Records that a link has copied to its target and that other clusters of the subtree lack, found
by origin in their logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from keyway.clusters.config import ClustersConfig
from keyway.clusters.core.copies import Copy, Origin, Stood, judge
from keyway.clusters.core.names import Unfit
from keyway.clusters.core.tree import FRESH, ClusterName
from keyway.clusters.core.trust import Seals
from keyway.kafka.to_ends import records_to
from keyway.terminal.progress import Step, no_step
from spark.links.link import Link
from spark.streaming.core.survey import Position
from spark.streaming.kafka import KafkaSide
from spark.streaming.limits import ANSWER_S, UNFORWARDED_SCANNED_MAX
from spark.streaming.orders import Partition
from spark.streaming.read_back import headers_of

# An origin without its topic id, which headers of version 1 lack.
Spot = tuple[ClusterName, str, int, int]
Sent = tuple[int, Spot, int]  # offset on the source, origin, timestamp in ms

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
    config: ClustersConfig,
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
            window = _unforwarded(link, source, place, position.offset, logical, subtree, config)
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
    config: ClustersConfig,
) -> Unforwarded | None:
    """Compares back from the position for as long as the oldest record that was compared lacks."""
    logs = _logs(place[1], logical, subtree, config)
    first, records, end = position, 0, position
    while True:
        low = max(0, end - UNFORWARDED_SCANNED_MAX)
        sent = copied_records(source, link, place, logical, (low, end), config.seals())
        missing = set[int]().union(*(there.lacking(sent) for there in logs if sent))
        first, records = min(missing, default=first), records + len(missing)
        reached = sent[0][0] not in missing if sent else not records
        if reached or low <= source.log_starts([place])[place]:
            return Unforwarded(first, records) if records else None
        end = low


def _logs(partition: int, logical: str, subtree: Subtree, config: ClustersConfig) -> list[_Log]:
    found = []
    for name, side in subtree.sides.items():
        there = side.cluster.topic_names().back(logical)
        if isinstance(there, Unfit):
            continue
        end = subtree.ends[name].get((logical, partition), 0)
        if end == _NOT_KNOWN:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, _without_leader(name)))
        found.append(_Log(config, side, name, (there, partition), logical, end))
    return found


@dataclass(slots=True)
class _Log:
    """A partition's log on another cluster of the subtree up to `end`. It is read backwards, as far
    as the compared records go.
    """

    config: ClustersConfig
    side: KafkaSide
    name: ClusterName
    place: Partition
    logical: str
    end: int
    _has: set[Spot] = field(default_factory=set)
    _met: bool = False  # it has some of the records that were compared before

    def lacking(self, sent: Sequence[Sent]) -> set[int]:
        """The offsets of the records that the log lacks, without those that it lacks for a reason
        of its own. `sent`: in order, and older than those of the last call.
        """
        since_ms = min(timestamp_ms for _, _, timestamp_ms in sent)
        if self.end:
            between, seals = (since_ms, self.end), self.config.seals()
            read = origins_since(self.side, self.name, self.place, self.logical, between, seals)
            self.end = min(self.end, read[0])
            self._has |= read[1]
        found = [offset for offset, origin, _ in sent if origin in self._has]
        lost = [(offset, at_ms) for offset, origin, at_ms in sent if origin not in self._has]
        kept_ms = kept_since_ms(self.side, self.place) if lost and self.end else None
        if kept_ms is not None:
            if found:  # what came before it came before it here, too
                lost = [(offset, at_ms) for offset, at_ms in lost if offset > found[0]]
            else:
                lost = [(offset, at_ms) for offset, at_ms in lost if at_ms >= kept_ms]
        if lost and (found or self._met) and self._has_holes():
            last = sent[-1][0] if self._met else found[-1]
            lost = [(offset, at_ms) for offset, at_ms in lost if offset > last]
        self._met = self._met or bool(found)
        return {offset for offset, _ in lost}

    def _has_holes(self) -> bool:
        """Whether records between others may be left out for good: then only those behind the last
        one that the log has count as not forwarded.
        """
        messages, topic = self.config.messages, self.place[0]
        if messages.pipeline is not None or messages.on_refused != "stop":
            return True
        configs = self.side.configs([topic]).get(topic, {})
        return "compact" in configs.get("cleanup.policy", "")


def _without_leader(cluster: ClusterName) -> str:
    return f"a partition at {cluster} has no leader: the brokers that have it are away"


def copied_records(
    source: KafkaSide,
    link: Link,
    place: Partition,
    logical: str,
    offsets: tuple[int, int],
    seals: Seals,
) -> list[Sent]:
    """Those in [first, last) that the link copies."""
    found = []
    with source.consumer(f"{link.group}-compare", enable_partition_eof=True) as consumer:
        for message in messages(consumer, place, *offsets):
            copy = copy_of(message, link.source, logical, seals)
            flags = link.distributor.flags_of_copy_from(copy.origin.cluster, copy.flags)
            if flags is not None:
                found.append((offset_of(message), copy.origin.place, message.timestamp()[1]))
    return found


def origins_since(
    side: KafkaSide,
    name: ClusterName,
    place: Partition,
    logical: str,
    between: tuple[int, int],
    seals: Seals,
) -> tuple[int, set[Spot]]:
    """The offset of the first record from a timestamp on, and the origins of all from there up to
    an offset.
    """
    since_ms, end = between
    group = "keyway-compare"
    with side.consumer(group, enable_partition_eof=True) as consumer:
        (at,) = consumer.offsets_for_times([TopicPartition(*place, since_ms)], ANSWER_S)
        if at.error is not None and at.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return end, set()
        if at.error is not None:
            raise KafkaException(at.error)
        if at.offset < 0:
            return end, set()
        return at.offset, {
            copy_of(message, name, logical, seals).origin.place
            for message in messages(consumer, place, at.offset, end)
        }


def kept_since_ms(side: KafkaSide, place: Partition) -> int | None:
    """The timestamp of a log's first record if older ones were deleted, else None."""
    with side.consumer("keyway-compare", enable_partition_eof=True) as consumer:
        low, high = consumer.get_watermark_offsets(TopicPartition(*place), ANSWER_S)
        if low <= 0:
            return None
        consumer.assign([TopicPartition(*place, low)])
        message = next(records_to(consumer, {place: high}, wait_s=ANSWER_S), None)
        return None if message is None else message.timestamp()[1]


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


def messages(consumer: Consumer, place: Partition, first: int, last: int) -> Iterator[Message]:
    """Committed records from `first` to before `last`, one after the other: together they may be
    larger than the memory.
    """
    low, high = consumer.get_watermark_offsets(TopicPartition(*place), ANSWER_S)
    end = min(high, last)
    if max(first, low) >= end:
        return
    consumer.assign([TopicPartition(*place, max(first, low))])
    yield from records_to(consumer, {place: end}, wait_s=ANSWER_S)
