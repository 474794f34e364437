"""Whether a topic can get more partitions with the order of its keys kept, and why not."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from gateway.core.repartition.limits import TOPIC_PARTITIONS_MAX
from gateway.core.repartition.partitioners import Partitioner, Shown
from gateway.core.repartition.record import Phase, Repartition

_STREAMS: Final = re.compile(r"-(changelog|repartition)$|-subscription-(registration|response)-")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    topic: str
    before: int
    after: int
    partitioner: Partitioner | None
    ordered_groups: tuple[str, ...]
    unordered_groups: tuple[str, ...]
    refusals: tuple[str, ...]  # empty: it can be started
    warnings: tuple[str, ...] = ()


def planned(
    facts: TopicFacts, after: int, known: Repartition | None, unordered: Collection[str]
) -> Plan:
    """`known`: the last repartition of the topic. `unordered`: groups whose order across the cut
    the operator gives up.
    """
    before = facts.partitions
    consumers = tuple(group for group in facts.other_groups if group not in unordered)
    if known is not None and known.phase is Phase.ABORTED:
        before = known.before
    others = (*facts.other_groups, *facts.unreliable_groups)
    refusals = [
        *_refused_now(known),
        *_refused_count(before, after, facts.partitions),
        *_refused_topic(facts),
        *_refused_groups(facts, unordered),
    ]
    unknown = sorted(set(unordered) - {*others, *facts.ordered_groups})
    if unknown:
        refusals.append(f"groups {', '.join(unknown)} have no position in the topic")
    return Plan(
        topic=facts.name,
        before=before,
        after=after,
        partitioner=facts.shown.partitioner,
        ordered_groups=(*facts.ordered_groups, *consumers),
        unordered_groups=tuple(group for group in others if group not in consumers),
        refusals=tuple(refusals),
        warnings=_warnings(facts, before),
    )


def _refused_now(known: Repartition | None) -> list[str]:
    if known is None or not known.runs:
        return []
    return [f"it goes from {known.before} to {known.after} partitions now: {known.phase.value}"]


def _refused_count(before: int, after: int, there: int) -> list[str]:
    if after <= before:
        return [f"it has {before} partitions: Kafka takes none away"]
    if after % before:
        least, next_one = after - after % before, after - after % before + before
        nearest = f"{next_one}" if least == before else f"{least} or {next_one}"
        return [f"{after} is no multiple of its {before} partitions: {nearest} is"]
    if after < there:
        return [f"{there - before} more partitions are hidden since an abort: at least {there}"]
    if after > TOPIC_PARTITIONS_MAX:
        return [f"at most {TOPIC_PARTITIONS_MAX} partitions"]
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
    if facts.shown.strays:
        at, key = facts.shown.strays[0]
        found.append(
            "its producers use another partitioner than murmur2 or crc32, or several: partition"
            f" {at} has key {key[:32]!r}"
        )
    return found


def _refused_groups(facts: TopicFacts, unordered: Collection[str]) -> list[str]:
    return [
        f"group {group} is unreliable: the order of its keys is not kept"
        for group in facts.unreliable_groups
        if group not in unordered
    ]


def _warnings(facts: TopicFacts, before: int) -> tuple[str, ...]:
    found = [
        "consumers that commit no position (Spark, assigned partitions) are not seen here: the"
        " order of their keys is not kept"
    ]
    if facts.shown.partitioner is None and not facts.shown.strays:
        why = "it has one partition" if before == 1 else "it has no records with a key"
        found.append(f"which partitioner its producers use cannot be told: {why}")
    return tuple(found)
