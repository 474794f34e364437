"""The target of a link: the present one, the switch to another, and the records that the switch
leaves behind.

The old target may have records that it has not forwarded to the rest of its subtree. Without
`rewind` they arrive there when the old target is back, after newer ones. With `rewind` the link
copies again from the first record that the new target lacks: nothing waits for the old target, and
records that the old target still forwards when it is back arrive twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import structlog
from confluent_kafka import KafkaError, KafkaException

from keyway.clusters.config import ClustersConfig
from keyway.clusters.core.names import Unfit
from keyway.clusters.core.tree import ClusterName, Distributor
from spark.links.fence import fence
from spark.links.link import Link
from spark.links.naming import following, topic_there
from spark.links.reports import LinkReport
from spark.links.unforwarded import Windows, compare_into, subtree_now
from spark.streaming.core.survey import Position
from spark.streaming.kafka import KafkaSide
from spark.streaming.orders import MAKING_REFUSALS, Partition

log = structlog.get_logger("keyway.links")


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a link stands. `positions`: of topics that the source has. `followed`: the topics among
    them that follow to the target, which are compared and created there. `left_out`: all other
    topics that the link knows, with the reason. `unasked`: why the positions are those that the
    link has reported; empty: the present target has told them.
    """

    positions: dict[Partition, Position]
    followed: frozenset[str]
    left_out: dict[str, str]
    unasked: str = ""

    def compared(self) -> dict[Partition, Position]:
        return {
            place: position
            for place, position in self.positions.items()
            if place[0] in self.followed
        }


def choose_target(
    config: ClustersConfig, distributor: Distributor, source: KafkaSide, report: LinkReport
) -> Link:
    """The link with the target it is to have now: the operator's choice, else the present one, also
    under another name, else the first that answers. Raises KafkaException if none does.
    """
    wanted = report.switch()
    if wanted is not None:
        target = distributor.switched(ClusterName(wanted["target"])).targets[0]
        link = Link(distributor, target)
        generation = int(wanted["generation"])
        if report.target not in (None, target) and _is_in(config, report.target):
            leave(config, Link(distributor, report.target), source, report, generation)
        stand = standing(config, link, source, report)
        if stand.unasked:
            log.warning("target_left_as_reported", link=link.name, fault=stand.unasked)
        positions = stand.positions
        if wanted["rewind"]:
            positions = rewound(config, link, source, stand, report.target)
        to = KafkaSide(config.cluster(target))
        create_missing(config, link, source, to, stand.followed)
        marked = _of_generation(positions, generation)
        taken, stood, owed = on_target(config, link, to, marked)
        # A process that was frozen since must not set back what the next one has copied.
        to.set_positions(link.group, taken, stood)
        report.targeted(target, generation, owed)
        log.info("link_switched", link=link.name, target=target, rewind=bool(wanted["rewind"]))
        return link
    if report.target in distributor.allowed:
        assert report.target is not None
        return Link(distributor, report.target)
    written = {name: topic.target_id for name, topic in report.topics().items() if topic.target_id}
    if report.target is not None and written:
        link = _under_another_name(config, distributor, report.target, written)
        report.targeted(link.target)
        return link
    for target in distributor.targets:
        if KafkaSide(config.cluster(target)).answers():
            report.targeted(target)
            return Link(distributor, target)
    raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN, "no target answers"))


def _under_another_name(
    config: ClustersConfig,
    distributor: Distributor,
    before: ClusterName,
    written: Mapping[str, str],
) -> Link:
    """The link to the cluster that was called `before`, a name that the file does not have there
    any more. That cluster has the very topics that the link wrote to; any other one lacks what was
    copied since, or has it by another way. `written`: the ids of the target's topics, by name on
    the source. Raises KafkaException if no cluster that answers has one of them.
    """
    for target in distributor.allowed:
        link, side = Link(distributor, target), KafkaSide(config.cluster(target))
        if not side.answers():
            continue
        names = {topic: topic_on_target(config, link, topic) for topic in written}
        there = side.visible(sorted({name for name in names.values() if name is not None}))
        ids = {topic: there[name][0] for topic, name in names.items() if name in there}
        if any(ids[topic] == written[topic] for topic in ids):
            log.info("target_renamed", link=link.name, before=before, now=target)
            return link
    told = (
        f"the file has no cluster {before} that the link may copy to, as it did last. If it has"
        " another name there, it does not answer, or lacks the topics; else say with"
        " `keyway distribute switch` where the link goes on"
    )
    raise KafkaException(KafkaError(KafkaError._STATE, told))


def _is_in(config: ClustersConfig, name: ClusterName | None) -> bool:
    return any(cluster.name == name for cluster in config.clusters)


def standing(config: ClustersConfig, link: Link, source: KafkaSide, report: LinkReport) -> Standing:
    """Where the link stands at its present target, or as it last reported if that target does not
    tell. A topic that has been deleted on the source is left out: nobody can copy it, or take its
    positions.
    """
    reported = report.positions()
    # Also topics of which nothing is reported yet: their first batch may be in flight.
    known = sorted(report.topics().keys() | {topic for topic, _ in reported})
    told = source.described(known)
    here = {name: answer for name, answer in told.items() if not isinstance(answer, KafkaError)}
    target = config.cluster(link.target)
    follows = {
        follow.name: follow.there for follow in following(config, source.cluster, target, here)
    }
    left_out: dict[str, str] = {}
    for topic in known:
        there, answer = follows.get(topic), told[topic]
        if isinstance(answer, KafkaError):
            gone = answer.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            why = "has no such topic any more" if gone else f"does not show it: {answer.str()}"
            left_out[topic] = f"{link.source} {why}"
        elif there is None:
            left_out[topic] = "it does not follow any more"
        elif isinstance(there, Unfit):
            left_out[topic] = f"it has no name on {link.target}: {there}"
    ids = {topic: topic_id for topic, (topic_id, _) in here.items()}
    positions = {place: position for place, position in reported.items() if place[0] in here}
    partitions = [
        (name, partition) for name, (_, count) in here.items() for partition in range(count)
    ]
    unasked = ""
    try:
        positions |= _committed(config, link, report, partitions)
    except KafkaException as error:
        unasked = error.args[0].str()
    for (topic, _), position in positions.items():
        if position.topic_id not in ("", ids[topic]):
            left_out[topic] = f"it was deleted on {link.source} and created again"
    return Standing(positions, frozenset(follows.keys() - left_out.keys()), left_out, unasked)


def _committed(
    config: ClustersConfig, link: Link, report: LinkReport, places: Iterable[Partition]
) -> dict[Partition, Position]:
    """The positions at the present target. Raises KafkaException if it does not tell them: it is
    away, or half of it, and the group's coordinator with it.
    """
    if report.target is None:
        return {}
    if not _is_in(config, report.target):
        gone = f"the file has no cluster {report.target}"
        raise KafkaException(KafkaError(KafkaError._STATE, gone))
    old = KafkaSide(config.cluster(report.target))
    if not old.answers():
        away = f"{report.target} does not answer"
        raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN, away))
    before = Link(link.distributor, report.target)
    here = {
        (topic, partition): (name, partition)
        for topic, partition in places
        if (name := topic_on_target(config, before, topic)) is not None
    }
    found = old.positions(link.group, here.values())
    return {place: found[place_here] for place, place_here in here.items() if place_here in found}


def rewound(
    config: ClustersConfig, link: Link, source: KafkaSide, stand: Standing, old: ClusterName | None
) -> dict[Partition, Position]:
    """The positions, each moved back to the first record that the subtree lacks."""
    compared = stand.compared()
    logical = {str(source.cluster.topic_names().there(topic)) for topic, _ in compared}
    subtree = subtree_now(config, link, old, logical)
    windows = Windows()
    compare_into(windows, link, source, compared, subtree, config)
    for topic, why in windows.failed.items():
        log.warning("topic_not_rewound", link=link.name, topic=topic, why=why)
    moved = {
        place: replace(compared[place], offset=window.first)
        for place, window in windows.found.items()
    }
    return {**stand.positions, **moved}


def create_missing(
    config: ClustersConfig,
    link: Link,
    source: KafkaSide,
    target: KafkaSide,
    topics: Iterable[str],
) -> None:
    """Creates the topics that the new target lacks: Kafka takes positions only for topics that
    exist. One that the target refuses is left out, and does not hold the switch up.
    """
    if not config.messages.create_topics:
        return
    names = {topic: topic_on_target(config, link, topic) for topic in topics}
    known = {topic: name for topic, name in names.items() if name is not None}
    there = target.visible(list(known.values()))
    for topic in source.topics(list(known), config.messages.copied_configs).values():
        if known[topic.name] in there:
            continue
        try:
            target.create_like(topic, known[topic.name], config.messages)
        except KafkaException as error:
            if error.args[0].code() not in MAKING_REFUSALS:
                raise
            why = error.args[0].str()
            log.warning("topic_not_created", link=link.name, topic=known[topic.name], why=why)


def topic_on_target(config: ClustersConfig, link: Link, topic: str) -> str | None:
    """The target's name of a topic of the source; None if it has none."""
    return topic_there(config.cluster(link.source), config.cluster(link.target), topic)


def on_target(
    config: ClustersConfig, link: Link, target: KafkaSide, positions: Mapping[Partition, Position]
) -> tuple[dict[Partition, Position], dict[Partition, Position], dict[Partition, Position]]:
    """The positions by the target's topic names, for the partitions that the target has, without
    those that this switch has set before; the positions that stand there now; and, by the source's
    names, the positions of partitions that the target lacks.
    """
    names = {topic: topic_on_target(config, link, topic) for topic, _ in positions}
    there = target.visible(sorted({name for name in names.values() if name is not None}))
    wanted = {
        (name, partition): position
        for (topic, partition), position in positions.items()
        if (name := names[topic]) is not None and name in there and partition < there[name][1]
    }
    set_before = target.positions(link.group, wanted)
    taken = {
        place: position
        for place, position in wanted.items()
        if place not in set_before or set_before[place].generation < position.generation
    }
    owed = {
        (topic, partition): position
        for (topic, partition), position in positions.items()
        if (names[topic], partition) not in wanted
    }
    return taken, set_before, owed


def _of_generation(
    positions: Mapping[Partition, Position], generation: int
) -> dict[Partition, Position]:
    return {
        place: replace(position, generation=generation) for place, position in positions.items()
    }


def require_generation(committed: Iterable[Position], report: LinkReport, link: Link) -> None:
    """Raises KafkaException where a switch was carried out that the status topic does not know: it
    was deleted, or made anew. The link may have gone on elsewhere, so somebody must say.
    """
    latest = max((position.generation for position in committed), default=0)
    if latest > report.generation:
        raise KafkaException(
            KafkaError(
                KafkaError._STATE,
                f"positions on {link.target} are of a switch that the status topic of"
                f" {link.source} does not know: say with `keyway distribute switch` where"
                f" {link.name} goes on",
            )
        )


def leave(
    config: ClustersConfig, link: Link, source: KafkaSide, report: LinkReport, generation: int
) -> None:
    """Fences the tasks that still write to a target that the link leaves, if that target answers.
    Otherwise a batch in flight, or a process that was frozen, would write there what the link also
    copies to the new target.
    """
    old = KafkaSide(config.cluster(link.target))
    if not old.answers():
        return
    listed = source.listed()
    follows = following(config, source.cluster, old.cluster, listed)
    # Nothing can be read of a partition without a leader, and its log's start is not known.
    names = {
        follow.name: follow.there
        for follow in follows
        if not isinstance(follow.there, Unfit) and follow.name not in source.leaderless
    }
    here = source.visible(list(names))
    starts = source.log_starts(
        (name, partition)
        for name, (_, partitions) in here.items()
        for partition in range(partitions)
    )
    try:
        there = old.visible(list(names.values()))
        # Kafka forgets the position of a partition that rests. The standing goes by what is marked.
        ids = {name: there[names[name]][0] for name in here if names[name] in there}
        reported = report.positions(link.target, ids)
        # The link has written to none of these. A position would have the next target get all of
        # them, also where it has copies already.
        held = {name for name, topic in report.topics().items() if topic.never_begun}
        begun = {}
        for (name, partition), start in starts.items():
            if name in ids.keys() - held and partition < there[names[name]][1]:
                stood = reported.get((name, partition), Position(start, here[name][0]))
                begun[names[name], partition] = replace(stood, generation=generation)
        fence(old, link, begun, config.messages.transaction_timeout_ms)
    except KafkaException as error:  # half of it is away: its metadata alone was answered
        fault = error.args[0].str()
        log.warning("target_left_without_fence", link=link.name, target=link.target, fault=fault)
