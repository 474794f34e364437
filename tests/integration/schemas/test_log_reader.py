"""`_schemas` on a real Kafka that compacts it, or deletes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient

from gateway.embedded.kafka import KafkaCluster
from schema_dist.core.contents import Contents
from schema_dist.core.model import SchemaVersion
from schema_dist.core.records import compatibility_record, mode_record, schema_key, schema_record
from schema_dist.errors import AwayError, LogError
from schema_dist.log_reader import LogReader
from tests.rig.kafka import create_topic, produce, read_partition
from tests.rig.patience import wait_until
from tests.rig.schema_registry.history import record
from tests.rig.schema_registry.site import version

pytestmark = pytest.mark.integration

COMPACTING = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "100",
    "delete.retention.ms": "100",
}
NOOP = b'{"keytype":"NOOP","magic":0}'


def test_before_and_after_compaction(kafka: KafkaCluster, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("_schemas")
    create_topic(kafka.bootstrap_servers, topic, config=COMPACTING)
    kept, gone, back, moved = (
        version(f"{name}-value", 1, at, record(name))
        for at, name in enumerate(("kept", "gone", "back", "moved"), start=1)
    )
    history = [
        *(schema_record(live, deleted=False) for live in (kept, gone, back, moved)),
        *(schema_record(dead, deleted=True) for dead in (gone, back)),
        (schema_key(gone), None),
        schema_record(back, deleted=False),
        (schema_key(moved), None),
        schema_record(replace(moved, id=back.id, schema=back.schema), deleted=False),
        *(compatibility_record("kept-value", level) for level in ("FULL", "NONE", "FORWARD")),
        compatibility_record("back-value", "FULL"),
        compatibility_record("back-value", None),
        mode_record("kept-value", "READONLY"),
        mode_record("back-value", "IMPORT"),
        mode_record("back-value", None),
    ]
    follower, later = (
        LogReader({"bootstrap.servers": kafka.bootstrap_servers}, topic) for _ in range(2)
    )

    def write(*records: tuple[bytes, bytes | None]) -> None:
        produce(kafka.bootstrap_servers, topic, records)

    def compacted() -> bool:
        """Each key once, and no tombstone; of those before the newest segment."""
        write((NOOP, b"{}"))  # a new segment: the cleaner leaves the last one alone
        left = [
            entry for entry in read_partition(kafka.bootstrap_servers, topic, 0) if entry[1] != NOOP
        ]
        keys = {key for _, key, value in left if value is not None}
        return len(keys) == len(left)

    def held(contents: Contents) -> dict[str, object]:
        versions = {stored.place: stored for stored in contents.versions()}
        return {
            "versions": versions,
            "compatibility": contents.compatibility,
            "modes": contents.modes,
        }

    async def read(reader: LogReader) -> dict[str, object]:
        return held(await reader.read())

    try:
        write(*history)
        before = asyncio.run(read(follower))
        assert before == {
            "versions": {
                kept.place: kept,
                back.place: back,
                moved.place: replace(moved, id=back.id, schema=back.schema),
            },
            "compatibility": {"kept-value": "FORWARD"},
            "modes": {"kept-value": "READONLY"},
        }
        wait_until(compacted, what="compaction", deadline_s=120)
        assert asyncio.run(read(later)) == before  # gaps, and no tombstone any more
        assert asyncio.run(read(follower)) == before  # goes on in a log with gaps
    finally:
        follower.close()
        later.close()


def versions_in(reader: LogReader) -> list[SchemaVersion]:
    """In their order; none while Kafka deletes the topic."""
    try:
        return sorted(asyncio.run(reader.read()).versions(), key=lambda found: found.version)
    except (AwayError, LogError):
        return []


def test_a_log_that_is_made_anew_is_read_anew(
    kafka: KafkaCluster, fresh_name: Callable[[str], str]
) -> None:
    topic, server = fresh_name("_schemas"), kafka.bootstrap_servers
    old = [version("old-value", at, at, record("Old")) for at in (1, 2, 3)]
    new = version("new-value", 1, 1, record("New"))
    create_topic(server, topic)
    produce(server, topic, [schema_record(made, deleted=False) for made in old])
    reader = LogReader({"bootstrap.servers": server}, topic)

    try:
        assert versions_in(reader) == old
        admin = AdminClient({"bootstrap.servers": server})
        admin.delete_topics([topic])[topic].result(30)
        wait_until(lambda: versions_in(reader) == [], what="the topic's end", deadline_s=60)
        create_topic(server, topic)
        produce(server, topic, [schema_record(new, deleted=False)])
        wait_until(lambda: versions_in(reader) == [new], what="the new contents", deadline_s=60)
    finally:
        reader.close()


def test_a_log_that_is_made_anew_and_as_long_as_before_is_read_anew(
    kafka: KafkaCluster, fresh_name: Callable[[str], str]
) -> None:
    """As after a restore, while this process could not reach the cluster."""
    topic, server = fresh_name("_schemas"), kafka.bootstrap_servers
    old, new = (
        [version(f"{name}-value", at, at, record(name)) for at in (1, 2, 3)]
        for name in ("Old", "New")
    )
    create_topic(server, topic)
    produce(server, topic, [schema_record(made, deleted=False) for made in old])
    reader = LogReader({"bootstrap.servers": server}, topic)

    try:
        for _ in range(2):
            assert versions_in(reader) == old
        admin = AdminClient({"bootstrap.servers": server})
        admin.delete_topics([topic])[topic].result(30)
        gone = AdminClient({"bootstrap.servers": server})
        wait_until(
            lambda: topic not in gone.list_topics(timeout=30).topics,
            what="the topic's end",
            deadline_s=60,
        )
        create_topic(server, topic)
        produce(server, topic, [schema_record(made, deleted=False) for made in new])
        wait_until(lambda: versions_in(reader) == new, what="the new contents", deadline_s=60)
    finally:
        reader.close()
