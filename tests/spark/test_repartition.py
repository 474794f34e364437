"""A Spark streaming query while its topic grows: of each key, no record comes in an earlier
micro-batch than the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from gateway.embedded.kafka import KafkaCluster
from tests.chaos.crowd import IDEMPOTENT
from tests.rig.clients.keyed_producers import KeyedProducer
from tests.rig.gateway_process import DIRECT, GatewayProcess
from tests.rig.kafka import produce
from tests.rig.patience import wait_until
from tests.rig.repartitions import MURMUR2, key_for, repartition, wait_for_phase

pytestmark = [
    pytest.mark.spark,
    pytest.mark.deep,
    pytest.mark.integration,
    pytest.mark.skipif(DIRECT, reason="Kafka itself has no repartition"),
    pytest.mark.filterwarnings("ignore"),  # pyspark's sockets are closed by the collector
]

SETTLE_MS = 10_000


@pytest.fixture
def node(kafka: KafkaCluster, tmp_path: Path) -> Iterator[GatewayProcess]:
    pace = {
        "adoption_timeout_ms": 1_000,
        "settle_ms": SETTLE_MS,
        "delivery_timeout_ms": 2 * SETTLE_MS,
    }
    with GatewayProcess(tmp_path, kafka.bootstrap_servers, repartition=pace) as process:
        yield process


def test_each_key_in_the_order_of_batches(
    spark: SparkSession, node: GatewayProcess, topic: Callable[..., str], tmp_path: Path
) -> None:
    """A stock producer, and a key whose earlier record arrives after the later one, as a batch
    that is sent again does.
    """
    name = topic(partitions=4)
    late, partition = key_for(5, 8), 1
    batches: dict[str, dict[int, tuple[int, int]]] = {}  # by key and number: batch, partition

    def take(frame: DataFrame, batch: int) -> None:
        for row in frame.select("key", "value", "partition").collect():
            number = int(bytes(row["value"]))
            of_key = batches.setdefault(bytes(row["key"]).decode(), {})
            of_key.setdefault(number, (batch, row["partition"]))

    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", node.bootstrap)
    source = source.option("subscribe", name).option("startingOffsets", "earliest")
    source = source.option("kafka.metadata.max.age.ms", "500")
    writing = source.load().writeStream.foreachBatch(take)
    writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writing.trigger(processingTime="200 milliseconds").start()

    def played() -> int:
        return -1 if query.lastProgress is None else int(query.lastProgress["batchId"])

    producer = KeyedProducer.librdkafka(node.bootstrap, name, 1_000, 60, 100, *IDEMPOTENT)
    try:
        wait_until(lambda: len(batches) == 60, what="records of all keys", deadline_s=120)
        repartition(node, name, partitions=8, execute=True)
        wait_for_phase(node, name, "open")
        produce(node.bootstrap, name, [(late, b"1")], partition=5, config=MURMUR2)
        begun = played() + 2  # the next one may have its ends already
        wait_until(lambda: played() >= begun, what="one batch more", deadline_s=60)
        produce(node.bootstrap, name, [(late, b"0")], partition=partition, config=MURMUR2)
        wait_until(lambda: len(batches.get(late.decode(), {})) == 2, what="both", deadline_s=60)
        wait_for_phase(node, name, "finished", within_s=120)
        sent = producer.end() | {late.decode(): 2}
        total = sum(sent.values())
        wait_until(
            lambda: sum(map(len, batches.values())) == total, what="all records", deadline_s=60
        )
    finally:
        producer.kill()
        query.stop()
    assert {at for of_key in batches.values() for _, at in of_key.values()} == set(range(8))
    for key, count in sent.items():
        in_order = [batches[key][number][0] for number in range(count)]
        assert in_order == sorted(in_order), f"{key}: {batches[key]}"
