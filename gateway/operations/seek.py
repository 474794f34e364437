"""An operator moves the positions of a group: planned first, then executed.

The plan is made from the log as it is now. A partition that cannot be moved (no leader, an offset
outside of the log) has its own error, and the others go on. The move itself is that of
AlterShareGroupOffsets (group_offsets.py): refused while the group has members, in Kafka first, then
in the store under a new fence, so that nothing stale comes back.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from gateway.core.cluster.topology import Topic, TopicPartition
from gateway.core.wire.errors import ErrorCode, error_name
from gateway.operations.errors import PartitionUnknown
from gateway.operations.group_offsets import GroupOffsets, Partition
from gateway.operations.limits import SEEK_ANSWER_S_MAX, SEEK_PARTITIONS_AT_ONCE
from gateway.upstream.cluster import EARLIEST, LATEST
from gateway.upstream.errors import UpstreamError
from gateway.upstream.requests import offsets_at_leader
from gateway.windows.start_position import isolation_of

SeekTo = Literal["earliest", "latest", "offset", "timestamp", "shift"]


@dataclass(frozen=True, slots=True)
class SeekTarget:
    """`value`: the offset, the Unix time in ms, or the records to shift by; by `to`."""

    to: SeekTo
    value: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """The change of one partition's position. `old` None: the group has no position there. `new`
    None: it stays, and `error` says why.
    """

    topic: str
    partition: int
    old: int | None
    new: int | None = None
    error: str | None = None
    topic_id: bytes = b""


@dataclass(frozen=True, slots=True)
class _Log:
    """A partition's bounds, and the offset at the target's timestamp (-1: none so late)."""

    start: int
    end: int
    at_timestamp: int


@dataclass(frozen=True, slots=True)
class Seeks:
    offsets: GroupOffsets

    async def plan(
        self,
        group: str,
        target: SeekTarget,
        topic: str | None = None,
        partitions: Sequence[int] | None = None,
        *,
        own_topics: bool = False,
    ) -> list[Move]:
        """The moves, by topic and partition; without `topic`, of all topics that the group has a
        position in or subscribes to. `own_topics`: any other topic is as one that is not there: a
        plan tells the bounds of its logs. Raises GroupUnknown, PartitionUnknown (for a `topic` that
        is not there), StateUnavailable.
        """
        known = await self.offsets.require(group)
        positions = await self.offsets.positions(group)
        own = {name for name, _ in positions} | {*known.topics()}
        if own_topics and topic is not None and topic not in own:
            raise PartitionUnknown(f"there is no topic {topic!r}")
        names = own if topic is None else {topic}
        topics = await self.offsets.named_topics(sorted(names))
        if topic is not None and topic not in topics:
            raise PartitionUnknown(f"there is no topic {topic!r}")
        moves: list[Move] = []
        for name in sorted(names):
            found = topics.get(name)
            if found is None:
                moves += _gone(name, positions)
            else:
                chosen = sorted(found.partitions) if partitions is None else sorted({*partitions})
                moves += await self._plan_topic(group, target, found, chosen, positions)
        return moves

    async def execute(self, group: str, moves: Sequence[Move]) -> list[Move]:
        """Makes the moves that have no error; each has its own outcome. Raises GroupInUse,
        GroupUnknown, StateUnavailable.
        """
        wanted = {
            TopicPartition(move.topic, move.topic_id, move.partition): move.new
            for move in moves
            if move.new is not None
        }
        results = await self.offsets.set_positions(group, wanted) if wanted else {}
        return [_done(move, results) for move in moves]

    # --------------------------------------------------------------------------------------- inside

    async def _plan_topic(
        self,
        group: str,
        target: SeekTarget,
        topic: Topic,
        partitions: Sequence[int],
        positions: Mapping[Partition, object],
    ) -> list[Move]:
        moves: list[Move] = []
        for at in range(0, len(partitions), SEEK_PARTITIONS_AT_ONCE):
            asked = partitions[at : at + SEEK_PARTITIONS_AT_ONCE]
            logs = await self._logs(
                group, target, topic, [p for p in asked if p in topic.partitions]
            )
            for partition in asked:
                position = positions.get((topic.name, partition))
                old = getattr(position, "offset", None)
                move = Move(topic.name, partition, old, topic_id=topic.topic_id)
                moves.append(_planned(move, logs.get(partition, "no such partition"), target))
        return moves

    async def _logs(
        self, group: str, target: SeekTarget, topic: Topic, partitions: Sequence[int]
    ) -> dict[int, _Log | str]:
        """Text: why nothing is known of the partition."""
        isolation = isolation_of(self.offsets.windows.dependencies.settings.of(group))
        starts = await self._offsets_at(topic, partitions, EARLIEST, isolation)
        ends = await self._offsets_at(topic, partitions, LATEST, isolation)
        times: dict[int, int | str] = {}
        if target.to == "timestamp":
            times = await self._offsets_at(topic, partitions, target.value, isolation)
        logs: dict[int, _Log | str] = {}
        for partition in partitions:
            start, end, at = starts[partition], ends[partition], times.get(partition, -1)
            fault = next((found for found in (start, end, at) if isinstance(found, str)), None)
            if fault is not None:
                logs[partition] = fault
            elif isinstance(start, int) and isinstance(end, int) and isinstance(at, int):
                logs[partition] = _Log(start, end, at)
        return logs

    async def _offsets_at(
        self, topic: Topic, partitions: Iterable[int], timestamp: int, isolation: int
    ) -> dict[int, int | str]:
        """Text: the error of that partition."""
        by_leader: dict[int, list[int]] = {}
        found: dict[int, int | str] = {}
        for partition in partitions:
            leader = topic.partitions[partition].leader
            if leader in self.offsets.upstream.topology.brokers:
                by_leader.setdefault(leader, []).append(partition)
            else:
                found[partition] = "it has no leader now"
        for leader, led in by_leader.items():
            places = [(topic.name, partition) for partition in led]
            try:
                async with asyncio.timeout(SEEK_ANSWER_S_MAX):
                    answers = await offsets_at_leader(
                        self.offsets.upstream, leader, places, timestamp, isolation
                    )
            except (UpstreamError, TimeoutError) as error:
                fault = f"broker {leader}: {str(error) or 'no answer in time'}"
                found.update(dict.fromkeys(led, fault))
                continue
            for partition in led:
                code, offset = answers.get((topic.name, partition), (ErrorCode.NONE, -1))
                found[partition] = offset if code == 0 else error_name(code)
        return found


def shown_positions(moves: Iterable[Move]) -> str:
    """A digest of the positions that a plan shows. Another one: somebody has moved them since."""
    text = "".join(f"{move.topic} {move.partition} {move.old}\n" for move in moves)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _gone(topic: str, positions: Iterable[Partition]) -> list[Move]:
    partitions = sorted(partition for name, partition in positions if name == topic)
    return [Move(topic, partition, None, error="the topic is gone") for partition in partitions]


def _planned(move: Move, log: _Log | str, target: SeekTarget) -> Move:
    if isinstance(log, str):
        return replace(move, error=log)
    new = _place(move.old, log, target)
    return replace(move, error=new) if isinstance(new, str) else replace(move, new=new)


def _place(old: int | None, log: _Log, target: SeekTarget) -> int | str:
    """Text: why there is none."""
    match target.to:
        case "earliest":
            return log.start
        case "latest":
            return log.end
        case "timestamp":
            return log.end if log.at_timestamp < 0 else log.at_timestamp
        case "offset":
            if log.start <= target.value <= log.end:
                return target.value
            return f"offset {target.value} is not between {log.start} and {log.end}"
        case "shift":
            if old is None:
                return "the group has no position there to shift"
            return min(max(old + target.value, log.start), log.end)
        case _:
            assert_never(target.to)


def _done(move: Move, results: Mapping[TopicPartition, ErrorCode]) -> Move:
    if move.new is None:
        return move
    code = results[TopicPartition(move.topic, move.topic_id, move.partition)]
    return move if code is ErrorCode.NONE else replace(move, new=None, error=error_name(code))
