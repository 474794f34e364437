"""Whether a topic can get other partitions with the order of its keys kept, and why not: more of
its own, or any number in a new topic.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from dispatcher.core.routing.hashes import key_hash32
from gateway.core.cluster.topic_names import is_topic_name
from gateway.core.repartition.limits import TOPIC_PARTITIONS_MAX
from gateway.core.repartition.partitioners import Partitioner, Shown
from gateway.core.repartition.record import Phase, Repartition

_STREAMS: Final = re.compile(r"-(changelog|repartition)$|-subscription-(registration|response)-")


def internal_topics(
    groups: Iterable[str], listed: AbstractSet[str], topics: Iterable[str]
) -> dict[str, str]:
    """Those of the groups that are applications of Kafka Streams with topics of their own, and one
    of these each. Streams calls such a topic GROUP-name-changelog, -repartition or the like.
    `listed`: all groups of the cluster; the one with the longest fitting name has the topic.
    """
    found: dict[str, str] = {}
    for topic in sorted(filter(_STREAMS.search, topics)):
        name = topic
        while name and name not in listed:
            name = name.rpartition("-")[0]
        found.setdefault(name, topic)
    return {group: found[group] for group in groups if group in found}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """The topic as upstream has it now."""

    name: str
    topic_id: bytes
    partitions: int  # also partitions that are hidden from clients
    compacted: bool
    shown: Shown
    ordered_groups: tuple[str, ...]  # Key-Shared and reliable: their order is kept
    unreliable_groups: tuple[str, ...]
    other_groups: tuple[str, ...]  # consumer groups with a position in it
    streams: Mapping[str, str] = field(default_factory=dict)  # of these, see internal_topics


@dataclass(frozen=True, slots=True)
class Order:
    """What an operator asks for."""

    topic: str
    after: int  # partitions, of `into` if it is given
    _: KW_ONLY
    into: str = ""  # the new topic; "": the topic itself gets more
    unordered: Collection[str] = ()  # groups whose order across the cut is given up
    partitioner: Partitioner | None = None  # what its producers use, if the topic does not tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Into:
    """The topic that another one is to move to. `there`: upstream has one of the name."""

    name: str
    there: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    topic: str
    before: int
    after: int  # of the new topic, if there is one
    into: str  # its name; "": the topic grows
    partitioner: Partitioner | None
    ordered_groups: tuple[str, ...]
    unordered_groups: tuple[str, ...]
    refusals: tuple[str, ...]  # empty: it can be started
    warnings: tuple[str, ...] = ()


def planned(
    facts: TopicFacts,
    after: int,
    known: Repartition | None,
    unordered: Collection[str],
    into: Into | None = None,
) -> Plan:
    """`known`: the last repartition of the topic. `unordered`: groups whose order across the cut
    the operator gives up.
    """
    before = facts.partitions
    consumers = tuple(group for group in facts.other_groups if group not in unordered)
    if known is not None and known.phase is Phase.ABORTED and not known.into:
        before = known.before
    others = (*facts.other_groups, *facts.unreliable_groups)
    refusals = [
        *_refused_now(known),
        *(
            _refused_count(before, after, facts.partitions)
            if into is None
            else _refused_into(facts.name, before, facts.partitions, into)
        ),
        *_refused_topic(facts),
        *(_refused_keys(facts) if into is None else ()),
        *_refused_groups(facts, unordered),
        *(
            f"group {group} is a Kafka Streams application: its tasks, and the state that they keep"
            f" in topics like {its}, are bound to the number of partitions"
            for group, its in sorted(facts.streams.items())
        ),
    ]
    unknown = sorted(set(unordered) - {*others, *facts.ordered_groups})
    if unknown:
        refusals.append(f"groups {', '.join(unknown)} have no position in the topic")
    return Plan(
        topic=facts.name,
        before=before,
        after=after,
        into="" if into is None else into.name,
        partitioner=facts.shown.partitioner,
        ordered_groups=(*facts.ordered_groups, *consumers),
        unordered_groups=tuple(group for group in others if group not in consumers),
        refusals=tuple(refusals),
        warnings=_warnings(facts, before, into),
    )


def _refused_now(known: Repartition | None) -> list[str]:
    if known is None or not known.runs:
        return []
    return [f"it goes from {counts(known)} now: {known.phase.value}"]


def counts(record: Repartition) -> str:
    """In words: from how many partitions to how many."""
    if record.into:
        return f"{record.before} to {record.after - record.before} partitions of {record.into}"
    return f"{record.before} to {record.after} partitions"


def _refused_count(before: int, after: int, there: int) -> list[str]:
    if after <= before:
        return [f"it has {before} partitions, and Kafka takes none away: move it into a new topic"]
    if after % before:
        least, next_one = after - after % before, after - after % before + before
        nearest = f"{next_one}" if least == before else f"{least} or {next_one}"
        return [
            f"{after} is no multiple of its {before} partitions: {nearest} is; or move it into a"
            " new topic"
        ]
    if after < there:
        return [f"{there - before} more partitions are hidden since an abort: at least {there}"]
    if after > TOPIC_PARTITIONS_MAX:
        return [f"at most {TOPIC_PARTITIONS_MAX} partitions"]
    return []


def _refused_into(topic: str, before: int, there: int, into: Into) -> list[str]:
    if there > before:
        return [f"{there - before} more partitions are hidden since an abort: let it grow first"]
    if not is_topic_name(into.name) or into.name.startswith("__"):
        return [f"a topic cannot be called {into.name!r}"]
    if into.name == topic:
        return ["the new topic needs a name of its own"]
    if into.there:
        return [f"topic {into.name!r} exists: the new one is created here"]
    return []


def _refused_topic(facts: TopicFacts) -> list[str]:
    found = []
    if facts.topic_id == bytes(16):
        found.append("upstream has no topic ids (Kafka below 2.8)")
    if facts.name.startswith("__"):
        found.append("it is Kafka's own")
    if _STREAMS.search(facts.name):
        found.append("it is Kafka Streams': its tasks are bound to the number of partitions")
    if facts.compacted:
        found.append("it is compacted: a key's last value would stay in two partitions")
    return found


def _refused_keys(facts: TopicFacts) -> list[str]:
    if facts.shown.few:
        return [
            f"its newest records have {facts.shown.few} different keys, too few to tell which"
            " partitioner its producers use: name it, `--partitioner murmur2` (Java's default) or"
            " `crc32` (librdkafka's)"
        ]
    if not facts.shown.strays:
        return []
    at, key = facts.shown.strays[0]
    return [
        "its producers use another partitioner than murmur2 or crc32, or several: partition"
        f" {at} has the key of hash {int(key_hash32(key)):08x}"
    ]


def _refused_groups(facts: TopicFacts, unordered: Collection[str]) -> list[str]:
    return [
        f"group {group} is unreliable: the order of its keys is not kept"
        for group in facts.unreliable_groups
        if group not in unordered
    ]


def _warnings(facts: TopicFacts, before: int, into: Into | None) -> tuple[str, ...]:
    found = [
        "consumers that commit no position (Spark, assigned partitions) are not seen here, and not"
        " waited for"
    ]
    if into is not None:
        found.append(
            f"consumers are to read {facts.name} and {into.name}, then producers are to move; those"
            " that write the same key are to move together"
        )
    elif facts.shown.partitioner is None and not facts.shown.strays and not facts.shown.few:
        why = "it has one partition" if before == 1 else "it has no records with a key"
        found.append(
            f"which partitioner its producers use cannot be told: {why}; `--partitioner` names it"
        )
    return tuple(found)
