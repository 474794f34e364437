"""The topics that a link copies, their start positions, and the reasons for the others.

Pure: the answers of both clusters are handed in. A topic that cannot be copied stops with a reason;
the others go on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

EARLIEST = 0
UNKNOWN_EPOCH = -1
MIN_IN_SYNC = "min.insync.replicas"
UNREADABLE = "unreadable"  # among a topic's configs: why they cannot be read
_NONE: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as its cluster describes it. `configs`: effective values by name."""

    name: str
    topic_id: str
    partitions: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Tail:
    """Where committed records of a log end, and the epoch of the leader that said so."""

    end: int
    epoch: int = UNKNOWN_EPOCH

    def is_of_another_leader(self, epoch: int) -> bool:
        """Only then the log may have lost records that were read under `epoch`."""
        return epoch not in (UNKNOWN_EPOCH, self.epoch) and self.epoch != UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True)
class Position:
    """How far a partition is copied, the id of the topic that it was copied from, and the last
    switch of the link's target that the writer knew of. `epoch`: of a leader of the source that had
    all records up to `offset` (KIP-320); UNKNOWN_EPOCH in positions of earlier versions, and in
    those that somebody has set.
    """

    offset: int
    topic_id: str
    generation: int = 0
    epoch: int = UNKNOWN_EPOCH

    def epoch_at(self, topic: Topic) -> int:
        """Epochs of a topic's earlier life tell nothing."""
        return self.epoch if self.topic_id == topic.topic_id else UNKNOWN_EPOCH

    @property
    def metadata(self) -> str:
        """The metadata of the commit."""
        return f"{self.topic_id};{self.generation}" if self.generation else self.topic_id

    @classmethod
    def of(cls, offset: int, metadata: str | None, epoch: int | None = None) -> Position:
        topic_id, _, generation = (metadata or "").partition(";")
        last = int(generation) if generation.isdecimal() else 0
        return cls(offset, topic_id, last, UNKNOWN_EPOCH if epoch is None else epoch)


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy from the YAML's `messages`. `stop`: the topic stops with a reason; else it goes
    on. `partitions_max`: of a topic, where its rows must fit a record.
    """

    create_topics: bool
    stop_on_gap: bool
    stop_on_recreated: bool
    partitions_max: int | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """The target lacks the topic, and it is to be created."""


@dataclass(frozen=True, slots=True)
class Grown:
    """The source has had more partitions since the topic was first copied, and the target is to get
    them too.
    """


@dataclass(frozen=True, slots=True)
class Stopped:
    """The topic is not copied. By partition, where that is the reason: `gaps`: records lost;
    `beyond`: positions beyond the end of the log.
    """

    reason: str
    gaps: Mapping[int, int] = field(default_factory=dict)
    beyond: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Copied:
    """The topic is copied from `starts` on, by partition. `gaps`: records that were deleted before
    they were copied, which the policy allows.
    """

    starts: Mapping[int, int]
    gaps: Mapping[int, int]


def compare(
    source: Topic, target: Topic | None, policy: Policy, *, copied_before: bool = False
) -> Stopped | Missing | Grown | None:
    """Whether two topics can be kept alike at all; None: they can."""
    if policy.partitions_max is not None and source.partitions > policy.partitions_max:
        return Stopped(
            f"it has {source.partitions} partitions: a link copies topics of up to"
            f" {policy.partitions_max}"
        )
    for side, where in ((source, "here"), (target, "on the target")):
        if side is not None and (why := side.configs.get(UNREADABLE)) is not None:
            return Stopped(f"its configs {where} cannot be read: {why}")
    if target is None:
        if policy.create_topics:
            return Missing()
        return Stopped("the target has no such topic, and create_topics is false")
    if target.partitions < source.partitions and copied_before and policy.create_topics:
        return Grown()
    if target.partitions != source.partitions:
        return Stopped(
            f"it has {source.partitions} partitions here and {target.partitions} on the target:"
            " records would change their partition"
        )
    if target.configs.get("message.timestamp.type") == "LogAppendTime":
        return Stopped(
            "message.timestamp.type is LogAppendTime on the target: timestamps would be lost"
        )
    here, there = (int(side.configs.get("max.message.bytes", "0")) for side in (source, target))
    if here > there > 0:
        return Stopped(
            f"max.message.bytes is {there} on the target and {here} here: large records would be"
            " refused"
        )
    return None


def start(
    source: Topic,
    positions: Mapping[int, Position],
    log_starts: Mapping[int, int],
    log_ends: Mapping[int, int],
    policy: Policy,
    found_beyond: Mapping[int, int] = _NONE,
    cut: Collection[int] = (),
) -> Copied | Stopped:
    """Where the copying of a topic goes on. `positions`: of partitions that were copied before; a
    new partition begins at its log's start. `log_ends` must be younger than the positions.
    `found_beyond`: positions that were beyond the end of the log when it was looked at last; `cut`:
    partitions whose log has lost records before the position, and may have others there now.
    """
    recreated = [
        partition
        for partition, position in positions.items()
        if position.topic_id and position.topic_id != source.topic_id
    ]
    if recreated and policy.stop_on_recreated:
        old = positions[recreated[0]]
        return Stopped(
            f"it was deleted and created again (topic id {old.topic_id}, now {source.topic_id}):"
            " records of the old one that were not copied are lost"
        )
    beyond = {
        partition: position.offset
        for partition, position in positions.items()
        if partition not in recreated
        and partition in log_ends
        and (
            position.offset > log_ends[partition]
            or partition in cut
            # The log has grown since. A position without a topic id was set by somebody.
            or (position.topic_id and position.offset == found_beyond.get(partition))
        )
    }
    if beyond:  # No policy: nobody knows which of the records there now were copied.
        listed = ", ".join(
            f"{offset} of partition {partition} (the log ends at {log_ends[partition]})"
            for partition, offset in beyond.items()
        )
        return Stopped(
            f"its position is, or was, beyond the end of the log: {listed}; the log was cut, or"
            " somebody has set the position",
            beyond=beyond,
        )
    starts: dict[int, int] = {}
    gaps: dict[int, int] = {}
    for partition in range(source.partitions):
        log_start = log_starts.get(partition, EARLIEST)
        position = positions.get(partition)
        if position is None or partition in recreated:
            starts[partition] = log_start
            continue
        starts[partition] = max(position.offset, log_start)
        if position.offset < log_start:
            gaps[partition] = log_start - position.offset
    if gaps and policy.stop_on_gap:
        listed = ", ".join(f"{count} of partition {partition}" for partition, count in gaps.items())
        return Stopped(f"records were deleted before they were copied: {listed}", gaps)
    return Copied(starts, gaps)
