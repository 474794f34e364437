"""A topic with a message that is small on the wire and too large when decompressed."""

from __future__ import annotations

from gateway.core.wire.records import BODY_BYTES_MAX
from gateway.embedded.kafka import KafkaCluster
from tests.rig.kafka import produce

INFLATING: dict[str, str | int] = {
    "compression.type": "zstd",
    "message.max.bytes": 1_000_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
}


def with_a_bomb(kafka: KafkaCluster, topic: str) -> None:
    """Offsets 0 and 1, the large one at 2, then 3 and 4; Kafka takes it, for it is small."""
    where = kafka.bootstrap_servers
    produce(where, topic, [(b"a", b"0"), (b"b", b"1")], partition=0)
    produce(where, topic, [(b"a", bytes(BODY_BYTES_MAX))], partition=0, config=INFLATING)
    produce(where, topic, [(b"a", b"3"), (b"b", b"4")], partition=0)
    log = kafka.brokers[0].directory / "data" / f"{topic}-0" / f"{0:020}.log"
    assert len(log.read_bytes().rstrip(b"\0")) < 64 * 1024
