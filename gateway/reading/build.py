"""Reading as a part of the node: the reader of records and the writer of dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.core.cluster.busiest_topics import BusiestTopics
from gateway.group_log import GroupLog
from gateway.part import Part, Trouble
from gateway.reading.dead_letters import DeadLetters
from gateway.reading.metrics import ReaderCollector, TopicCollector
from gateway.reading.reader import Reader
from gateway.upstream.build import UpstreamRoom


@dataclass(frozen=True, slots=True)
class ReadingRoom:
    reader: Reader
    dead_letters: DeadLetters
    delivered_by_topic: BusiestTopics


def build(
    upstream: UpstreamRoom, group_log: GroupLog, now_ms: Callable[[], int]
) -> Part[ReadingRoom]:
    reader = Reader(upstream.cluster)
    dead_letters = DeadLetters(upstream.cluster, reader.records, group_log, now_ms)
    delivered = BusiestTopics()

    async def troubles() -> Sequence[Trouble]:
        return reading_troubles(reader.failing.failing_partitions())

    return Part(
        name="reading",
        room=ReadingRoom(reader, dead_letters, delivered),
        collectors=(
            ReaderCollector(reader.records.counts, reader.failing.failing_partitions),
            TopicCollector(reader.records.read_by_topic, delivered),
        ),
        troubles=troubles,
        warnings=dead_letters.warnings,
        background=(reader.run,),
        stop=dead_letters.close,
    )


def reading_troubles(failing_partitions: int) -> list[Trouble]:
    if not failing_partitions:
        return []
    return [Trouble(f"{failing_partitions} partitions cannot be read")]
