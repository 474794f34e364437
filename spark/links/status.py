"""A compacted topic on every cluster with the state of its links and the target that an operator
has switched them to. Anybody with access to the cluster can show it.

Keys are text, values are JSON objects:

    link/<link>              target, generation, state, error, seals, updated_ms
    topic/<link>/<topic>     state, reason, a row per partition, and positions that are owed
    switch/<link>            target, generation, rewind: the operator's wish
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from keyway.kafka.compacted import CompactedTopic
from spark.streaming.core.limits import LEFT_OUT_NAMED_MAX
from spark.streaming.core.survey import UNKNOWN_EPOCH, Position
from spark.streaming.kafka import KafkaSide

log = structlog.get_logger("keyway.links")

LINK, TOPIC, SWITCH = "link", "topic", "switch"
LEFT = "left"  # the state of a topic that the link followed once; its positions are kept a while
Json = dict[str, Any]


@dataclass(slots=True)
class PartitionStatus:
    """Counts since the link exists; `position` and `log_end` are offsets of the source."""

    position: int = -1
    epoch: int = UNKNOWN_EPOCH  # of the source's leader when it was reached
    log_end: int = -1
    lag_records: int = 0
    lag_s: float = 0.0  # age of the last copied record while there are others behind it
    copied: int = 0
    skipped: int = 0  # by flags: on another way to the target, or there already
    repeats: int = 0  # written twice (at_least_once after a crash), by origin
    doubts: int = 0  # copy headers that were not believed
    left_out: int = 0  # refused by the target: skipped, or among the dead letters
    last_left_out: str = ""  # the offset of the last of these, and the target's words; of some only
    gap: int = 0  # records that were deleted before they were copied
    last_timestamp_ms: int = -1
    waits_since_ms: int = 0  # no position was committed since, and records wait; 0: none waits
    gap_at: int = -1  # the position behind which the last gap began, and its records
    gap_counted: int = 0
    open_at: int = -1  # the open transaction that the link waits for begins there; -1: none
    beyond: int = -1  # a position that was beyond the end of the log: the topic waits for another


@dataclass(slots=True)
class TopicStatus:
    """One topic of one link. `owed`: the positions of partitions that the target lacked when the
    link was switched to it. They count there once it has them.
    """

    state: str = "running"  # or stopped, left
    reason: str = ""
    topic_id: str = ""
    target_id: str = ""  # of the target's topic
    left_ms: int = 0  # since when it is left, or was still there when it was asked for
    partitions: dict[int, PartitionStatus] = field(default_factory=dict)
    owed: Mapping[int, Position] = field(default_factory=dict)

    @property
    def never_begun(self) -> bool:
        """It has been stopped since the link knows it."""
        begun = self.target_id or any(row.position >= 0 for row in self.partitions.values())
        return self.state == "stopped" and not begun

    def as_json(self) -> Json:
        """The same as `asdict`, which takes ten times as long."""
        rows = {
            number: {name: getattr(row, name) for name in PartitionStatus.__slots__}
            for number, row in self.partitions.items()
        }
        named = [row for row in rows.values() if row["last_left_out"]]
        for row in named[LEFT_OUT_NAMED_MAX:]:
            row["last_left_out"] = ""  # `left_out` counts them all
        texts = {name: getattr(self, name) for name in ("state", "reason", "topic_id", "target_id")}
        owed = {number: (at.offset, at.topic_id, at.epoch) for number, at in self.owed.items()}
        more = {"owed": owed} if owed else {}
        return {**texts, "left_ms": self.left_ms, "partitions": rows, **more}

    def copy(self) -> TopicStatus:
        rows = {number: copy(row) for number, row in self.partitions.items()}
        return replace(self, partitions=rows)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> TopicStatus:
        """Ignores fields of other versions."""
        rows = {
            int(number): PartitionStatus(
                **{name: row[name] for name in PartitionStatus.__slots__ if name in row}
            )
            for number, row in value.get("partitions", {}).items()
        }
        texts = {
            name: str(value.get(name, "")) for name in ("state", "reason", "topic_id", "target_id")
        }
        owed = {
            int(number): Position(int(offset), str(topic_id), epoch=int(epoch))
            for number, (offset, topic_id, epoch) in value.get("owed", {}).items()
        }
        return cls(**texts, left_ms=int(value.get("left_ms", 0)), partitions=rows, owed=owed)


class StatusTopic:
    """The status topic of one cluster. Raises KafkaException if the cluster does not answer."""

    def __init__(self, side: KafkaSide, name: str) -> None:
        # A row for each partition of a topic: all of PARTITIONS_MAX must fit Kafka's 1 MiB.
        self._topic = CompactedTopic(side.settings, name, compression="zstd")
        self._found: dict[str, bytes] = {}
        self._skipped = 0  # records that nobody can read

    def exists(self) -> bool:
        return self._topic.exists()

    def ensure(self) -> bool:
        """Creates the topic unless it exists. Returns whether it did."""
        return self._topic.ensure()

    def publish(self, records: Mapping[str, Json | None]) -> None:
        """None in place of a value removes the key from the topic."""
        self._topic.write(
            (key.encode(), None if value is None else json.dumps(value).encode())
            for key, value in records.items()
        )

    def read(self, prefix: str = "") -> dict[str, Json]:
        """The newest value of every key that begins with `prefix`; the topic must exist. Only new
        records are fetched.
        """
        self._topic.read(self._take)
        found = self._found.items()
        return {key: json.loads(value) for key, value in found if key.startswith(prefix)}

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        """A record that nobody can read changes nothing; the first one is logged."""
        if key is None:
            return
        try:
            name = key.decode()
            if value:
                _require_readable(name, json.loads(value))
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            if not self._skipped:
                log.warning(
                    "status_record_skipped", topic=self._topic.name, key=str(key), why=repr(error)
                )
            self._skipped += 1
            return
        if value:
            self._found[name] = value
        else:
            self._found.pop(name, None)


def _require_readable(key: str, value: Json) -> None:
    """Raises what a reader of the record would meet."""
    kind = key.partition("/")[0]
    if kind == TOPIC:
        TopicStatus.of(value)
    elif kind == SWITCH:
        _ = value["target"], value["generation"] > 0, value["rewind"]
    else:
        value.get("generation")
