"""What a status topic holds that no link has written."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import cast

import pyarrow
import pytest
from structlog.testing import capture_logs

from keyway.clusters.config import Cluster
from keyway.kafka.compacted import CompactedTopic
from spark.links.status import PartitionStatus, StatusTopic, TopicStatus
from spark.streaming.core.limits import (
    LEFT_OUT_CHARS_MAX,
    LEFT_OUT_NAMED_MAX,
    PARTITIONS_MAX,
)
from spark.streaming.core.survey import Position
from spark.streaming.kafka import KafkaSide

Row = dict[str, object]


class Log:
    """Records that a read finds."""

    name = "_keyway-links"

    def __init__(self) -> None:
        self.records: list[tuple[bytes | None, bytes | None]] = []

    def read(self, take: Callable[[bytes | None, bytes | None], object]) -> None:
        for key, value in self.records:
            take(key, value)
        self.records = []


def status_on(log: Log) -> StatusTopic:
    cluster = Cluster(name="c1", bootstrap_servers="127.0.0.1:1")
    found = StatusTopic(KafkaSide(cluster), log.name)
    found._topic = cast(CompactedTopic, log)
    return found


SWITCH = {"target": "c2", "generation": 7, "rewind": False}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"switch/c1-level-1", b"not JSON"),
        (b"switch/c1-level-1", b"[1]"),
        (b"switch/c1-level-1", b'{"target": "c2"}'),
        (b"switch/c1-level-1", b'{"target": "c2", "generation": "8", "rewind": false}'),
        (b"switch/c1-level-1", b"[" * 100_000),
        (b"topic/c1-level-1/flights", b'{"partitions": 3}'),
        (b"link/c1-level-1", b'"text"'),
        (b"\xff", b"{}"),
    ],
)
def test_a_record_that_nobody_can_read_changes_nothing(key: bytes, value: bytes) -> None:
    """It ended the link, and so did each start after it."""
    rows: dict[str, Row] = {
        "switch/c1-level-1": SWITCH,
        "topic/c1-level-1/flights": {"state": "running", "partitions": {"0": {"position": 4}}},
        "link/c1-level-1": {"target": "c2", "generation": 1},
    }
    log = Log()
    status = status_on(log)
    log.records = [(name.encode(), json.dumps(row).encode()) for name, row in rows.items()]
    assert status.read() == rows
    with capture_logs() as logs:
        log.records = [(key, value), (b"switch/other", json.dumps(SWITCH).encode()), (key, value)]
        assert status.read() == {**rows, "switch/other": SWITCH}
    (told,) = logs
    assert (told["event"], told["topic"], told["key"]) == (
        "status_record_skipped",
        log.name,
        str(key),
    )
    log.records = [(b"switch/c1-level-1", None), (None, b"x")]
    assert status.read("switch/") == {"switch/other": SWITCH}


KAFKA_BYTES_MAX = 1_048_576  # of a record, compressed
COUNTED = (
    "lag_records",
    "copied",
    "skipped",
    "repeats",
    "doubts",
    "gap",
    "gap_counted",
    "left_out",
)
OFFSETS = ("position", "log_end", "gap_at", "last_timestamp_ms", "waits_since_ms")


def test_the_widest_topic_fits_a_record_with_every_count() -> None:
    """Kafka refused it once the partitions had other counts, and no topic was copied any more."""
    figures = Random(1)
    topic = TopicStatus(topic_id="here", target_id="there")
    topic.owed = {
        at: Position(figures.randrange(10**9), "here", epoch=at) for at in range(PARTITIONS_MAX)
    }
    for at in range(PARTITIONS_MAX):
        row = topic.partitions[at] = PartitionStatus(epoch=at, lag_s=figures.randrange(10**6) / 8)
        for name in COUNTED:
            setattr(row, name, figures.randrange(10**6))
        for name in OFFSETS:
            setattr(row, name, figures.randrange(10**9))
        row.last_left_out = f"offset {figures.randrange(10**9)}: ".ljust(LEFT_OUT_CHARS_MAX, "?")
    told = json.dumps(topic.as_json()).encode()
    written = StatusTopic(KafkaSide(Cluster(name="c1", bootstrap_servers="127.0.0.1:1")), "links")
    codec = written._topic._compression
    assert len(pyarrow.compress(told, codec=codec, asbytes=True)) < 0.95 * KAFKA_BYTES_MAX


def test_of_many_refusals_some_are_told_in_words_and_all_are_counted() -> None:
    topic = TopicStatus()
    for at in range(LEFT_OUT_NAMED_MAX + 5):
        topic.partitions[at] = PartitionStatus(left_out=at + 1, last_left_out=f"offset {at}: why")
    rows = TopicStatus.of(json.loads(json.dumps(topic.as_json()))).partitions
    assert [row.left_out for row in rows.values()] == [at + 1 for at in range(len(rows))]
    named = [row.last_left_out for row in rows.values() if row.last_left_out]
    assert named == [f"offset {at}: why" for at in range(LEFT_OUT_NAMED_MAX)]
    assert topic.partitions[LEFT_OUT_NAMED_MAX].last_left_out, "the link itself keeps it"
