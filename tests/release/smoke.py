"""A node of an installed Keyway: a record goes in and comes out through it."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import ShareConsumer

from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic, produce
from tests.rig.operating import health
from tests.rig.patience import wait_until

UP_S_MAX = 60.0


def serves(command: Path, upstream: str, directory: Path) -> None:
    """Raises AssertionError."""
    topic = f"release-{directory.parent.name}"
    create_topic(upstream, topic, partitions=1)
    groups = [{"match": "*", "auto_offset_reset": "earliest"}]
    with GatewayProcess(directory, upstream, groups=groups, command=(str(command),)) as node:
        wait_until(lambda: health(node)[1]["status"] == "up", what="up", deadline_s=UP_S_MAX)
        produce(node.bootstrap, topic, [(b"k", b"v")], partition=0)
        assert _taken(node.bootstrap, topic) == [b"v"]
    assert "Traceback" not in node.log_text()


def _taken(bootstrap: str, topic: str) -> list[bytes | None]:
    """What a stock share consumer gets first."""
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": topic})
    consumer.subscribe([topic])
    got: list[bytes | None] = []

    def polled() -> bool:
        got.extend(record.value() for record in consumer.poll(timeout=1.0))
        return bool(got)

    try:
        wait_until(polled, what="a record", deadline_s=UP_S_MAX)
    finally:
        consumer.close()
    return got
