"""The offsets file of a Spark Structured Streaming checkpoint (version v1), one per batch:

    v1
    {"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{...}}
    {"topic":{"0":23,"1":7}}

One line of JSON for each source of the query; `-` for a source without offsets. Only queries with
one source, Kafka's, can move.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

VERSION: Final = "v1"


class MalformedCheckpoint(ValueError):
    """The file is not of this form; the text says why."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`metadata`: the second line, whose settings Spark takes over. `offsets`: the next ones to
    read, by topic and partition.
    """

    metadata: str
    offsets: Mapping[tuple[str, int], int]

    def at(self, offsets: Mapping[tuple[str, int], int]) -> Checkpoint:
        return replace(self, offsets=offsets)


def read_offsets_file(text: str) -> Checkpoint:
    """Raises MalformedCheckpoint."""
    lines = text.splitlines()
    if not lines or lines[0] != VERSION:
        raise MalformedCheckpoint(f"begins with {lines[0] if lines else ''!r:.20}, not {VERSION}")
    if len(lines) != 3:
        raise MalformedCheckpoint(f"has {len(lines) - 2} sources: one, Kafka's, is expected")
    try:
        json.loads(lines[1])
        topics: Any = json.loads(lines[2])
        offsets = {
            (topic, int(partition)): int(offset)
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise MalformedCheckpoint("its source is not Kafka's") from error
    if any(offset < 0 for offset in offsets.values()):
        raise MalformedCheckpoint("has offsets that are no places in a log")
    return Checkpoint(lines[1], offsets)


def offsets_file(checkpoint: Checkpoint) -> str:
    return "\n".join((VERSION, checkpoint.metadata, starting_offsets(checkpoint)))


def starting_offsets(checkpoint: Checkpoint) -> str:
    """As Spark's option `startingOffsets` takes it."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(checkpoint.offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics, separators=(",", ":"))
