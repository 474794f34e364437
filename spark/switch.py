"""The target of a link: the present one, the switch to another, and the records left behind by it.

The old target may have records that it has not forwarded to the rest of its subtree. Without
`rewind` they arrive there when the old target is back, behind newer ones. With `rewind` the link
copies again from the first record that the new target lacks: nothing waits for the old target, and
records that it still forwards when it is back arrive twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from clusters.config import ClustersConfig
from clusters.core.copies import Copy, Origin, Stood, judge
from clusters.core.names import Unfit
from clusters.core.tree import FRESH, ClusterName, Distributor
from clusters.core.trust import Seals
from spark.core.survey import Position
from spark.kafka import KafkaSide
from spark.limits import ANSWER_S, UNFORWARDED_SCANNED_MAX
from spark.links import Link
from spark.naming import topic_there
from spark.produce import Place, headers_of
from spark.reports import LinkReport

log = structlog.get_logger()

# An origin without its topic id, which headers of version 1 lack.
Spot = tuple[ClusterName, str, int, int]


@dataclass(frozen=True, slots=True)
class Unforwarded:
    """Records of one partition that were copied to the old target and are not on the others.
    `first` is the offset of the oldest of them on the source.
    """

    first: int
    records: int
    cut: bool  # the partition was not compared back to its beginning, and the oldest was missing


def choose_target(
    config: ClustersConfig, distributor: Distributor, source: KafkaSide, report: LinkReport
) -> Link:
    """The link with the target it is to have now: the operator's choice, else the present one, else
    the first that answers. Raises KafkaException if none does.
    """
    wanted = report.switch()
    if wanted is not None:
        target = distributor.switched(ClusterName(wanted["target"])).targets[0]
        link = Link(distributor, target)
        positions = positions_for(config, link, source, report, rewind=bool(wanted["rewind"]))
        to = KafkaSide(config.cluster(target))
        create_missing(config, link, source, to, positions)
        to.set_positions(link.group, on_target(config, link, positions))
        report.targeted(target, int(wanted["generation"]))
        log.info("link switched", link=link.name, target=target, rewind=bool(wanted["rewind"]))
        return link
    if report.target in distributor.allowed:
        assert report.target is not None
        return Link(distributor, report.target)
    for target in distributor.targets:
        if KafkaSide(config.cluster(target)).answers():
            report.targeted(target)
            return Link(distributor, target)
    raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN, "no target answers"))


def positions_of_link(
    config: ClustersConfig, link: Link, report: LinkReport
) -> dict[Place, Position]:
    """Where the link stands at its present target, or as last reported if that is away."""
    positions = {
        place: Position(offset, topic_id)
        for place, (offset, topic_id) in report.positions().items()
    }
    if report.target is not None:
        old = KafkaSide(config.cluster(report.target))
        if old.answers():
            before = Link(link.distributor, report.target)
            names = {topic: topic_on_target(config, before, topic) for topic, _ in positions}
            here = {
                (topic, partition): (name, partition)
                for topic, partition in positions
                if (name := names[topic]) is not None
            }
            found = old.positions(link.group, here.values())
            positions |= {place: found[it] for place, it in here.items() if it in found}
    return positions


def positions_for(
    config: ClustersConfig, link: Link, source: KafkaSide, report: LinkReport, *, rewind: bool
) -> dict[Place, Position]:
    """Where the link goes on at a new target: where it stands; with `rewind` at the first record
    that the subtree lacks.
    """
    positions = positions_of_link(config, link, report)
    if rewind:
        for place, window in unforwarded(config, link, source, positions, report.target).items():
            positions[place] = Position(window.first, positions[place].topic_id)
    return positions


def create_missing(
    config: ClustersConfig,
    link: Link,
    source: KafkaSide,
    target: KafkaSide,
    positions: Mapping[Place, Position],
) -> None:
    """Kafka takes positions only for topics that exist."""
    if not config.messages.create_topics:
        return
    names = {topic: topic_on_target(config, link, topic) for topic, _ in positions}
    known = {topic: name for topic, name in names.items() if name is not None}
    there = target.identities(list(known.values()))
    for topic in source.topics(list(known), config.messages.copied_configs).values():
        if known[topic.name] not in there:
            target.create_like(topic, known[topic.name], config.messages)


def topic_on_target(config: ClustersConfig, link: Link, topic: str) -> str | None:
    """The target's name of a topic of the source; None if it has none."""
    return topic_there(config.cluster(link.source), config.cluster(link.target), topic)


def on_target(
    config: ClustersConfig, link: Link, positions: Mapping[Place, Position]
) -> dict[Place, Position]:
    """The same positions by the target's topic names."""
    names = {topic: topic_on_target(config, link, topic) for topic, _ in positions}
    return {
        (name, partition): position
        for (topic, partition), position in positions.items()
        if (name := names[topic]) is not None
    }


def unforwarded(
    config: ClustersConfig,
    link: Link,
    source: KafkaSide,
    positions: Mapping[Place, Position],
    old: ClusterName | None,
) -> dict[Place, Unforwarded]:
    """By partition, the records the link has copied that a cluster of the subtree lacks: the new
    target, and every other but the old target that answers.
    """
    seals = config.seals()
    others = [it for it in link.distributor.allowed if it != old]
    sides = {it: KafkaSide(config.cluster(it)) for it in others}
    reachable = [it for it in others if it == link.target or sides[it].answers()]
    found: dict[Place, Unforwarded] = {}
    for (topic, partition), position in positions.items():
        logical = source.cluster.topic_names().there(topic)
        if isinstance(logical, Unfit):
            continue
        low = max(0, position.offset - UNFORWARDED_SCANNED_MAX)
        sent = copied_records(
            source, link, (topic, partition), logical, (low, position.offset), seals
        )
        if not sent:
            continue
        since_ms = min(timestamp for _, _, timestamp in sent)
        lacking: set[int] = set()
        for name in reachable:
            there = sides[name].cluster.topic_names().back(logical)
            if isinstance(there, Unfit):
                continue
            has = origins_since(sides[name], name, (there, partition), logical, since_ms, seals)
            lacking |= {offset for offset, origin, _ in sent if origin not in has}
        if lacking:
            cut = low > 0 and min(lacking) == sent[0][0]
            found[topic, partition] = Unforwarded(min(lacking), len(lacking), cut)
    return found


def copied_records(
    source: KafkaSide,
    link: Link,
    place: Place,
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
    side: KafkaSide, name: ClusterName, place: Place, logical: str, since_ms: int, seals: Seals
) -> set[Spot]:
    """The origins of all records of a partition from a timestamp on."""
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
            copy_of(it, name, logical, seals).origin.place
            for it in messages(consumer, place, at.offset)
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
    consumer: Consumer, place: Place, first: int, last: int | None = None
) -> list[Message]:
    """Committed records from `first` to before `last`, or to the end."""
    low, high = consumer.get_watermark_offsets(TopicPartition(*place), ANSWER_S)
    end = high if last is None else min(high, last)
    found: list[Message] = []
    if max(first, low) >= end:
        return found
    consumer.assign([TopicPartition(*place, max(first, low))])
    while True:
        batch = consumer.consume(1_000, ANSWER_S)
        if not batch:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        for message in batch:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return found
                raise KafkaException(error)
            if offset_of(message) >= end:
                return found
            found.append(message)
