"""Spark's Kafka source, unmodified, reads topics through the gateway: batch, ranges, streaming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from gateway.embedded.kafka import KafkaCluster
from keyway.clusters.config import Cluster, Sasl
from spark.flights import flights_per_carrier, read_topic
from spark.streaming.kafka import source_settings
from tests.rig.kafka import produce, read_partition

# pyspark's sockets are closed by the collector, at any time and in any test.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),
]

PARTITIONS = 3
Place = tuple[int, int, bytes | None, bytes | None]


@pytest.fixture
def filled(kafka: KafkaCluster, topic: Callable[..., str]) -> str:
    name = topic(partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        records = [
            (
                None if at % 10 == 0 else f"k{at % 7}".encode(),
                f'{{"carrier": "C{at % 3}"}}'.encode(),
            )
            for at in range(partition * 100 + 200)
        ]
        produce(kafka.bootstrap_servers, name, records, partition=partition)
    return name


def in_kafka(kafka: KafkaCluster, name: str) -> list[Place]:
    return [
        (partition, offset, key, value)
        for partition in range(PARTITIONS)
        for offset, key, value in read_partition(kafka.bootstrap_servers, name, partition)
    ]


def in_spark(records: DataFrame) -> list[Place]:
    rows = records.select("partition", "offset", "key", "value").collect()
    return sorted(
        (
            row["partition"],
            row["offset"],
            None if row["key"] is None else bytes(row["key"]),
            bytes(row["value"]),
        )
        for row in rows
    )


@pytest.mark.parametrize("password", ["plain", "pässwörd€😀", 'quo"te\\', "line\nfeed;"])
def test_kafka_s_own_parser_reads_the_password_that_was_given(
    spark: SparkSession, password: str
) -> None:
    sasl = Sasl(username="kärl", password=SecretStr(password))
    cluster = Cluster(name="c1", bootstrap_servers="127.0.0.1:1", sasl=sasl)
    given = source_settings(cluster)["kafka.sasl.jaas.config"]
    kafka = spark._jvm.org.apache.kafka.common  # type: ignore[union-attr]
    settings = spark._jvm.java.util.HashMap()  # type: ignore[union-attr]
    settings.put("sasl.jaas.config", kafka.config.types.Password(given))
    entries = kafka.security.JaasContext.loadClientContext(settings).configurationEntries()
    read = entries.get(0).getOptions()
    assert (read.get("username"), read.get("password")) == ("kärl", password)


def test_batch_has_every_record_as_it_is_in_kafka(
    spark: SparkSession, kafka: KafkaCluster, front: str, filled: str
) -> None:
    found = in_spark(read_topic(spark, front, filled))
    assert len(found) == 200 + 300 + 400
    assert found == in_kafka(kafka, filled)


def test_batch_of_an_offset_range(spark: SparkSession, front: str, filled: str) -> None:
    def offsets(first: int, second: int) -> str:
        return f'{{"{filled}": {{"0": {first}, "1": {second}, "2": {second}}}}}'

    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", front)
        .option("subscribe", filled)
        .option("startingOffsets", offsets(50, 150))
        .option("endingOffsets", offsets(60, 155))
        .option("failOnDataLoss", "true")
        .load()
    )
    places = [(partition, offset) for partition, offset, _, _ in in_spark(records)]
    assert places == [(0, at) for at in range(50, 60)] + [
        (partition, at) for partition in (1, 2) for at in range(150, 155)
    ]


def test_aggregate_of_the_demo(spark: SparkSession, front: str, filled: str) -> None:
    rows = flights_per_carrier(read_topic(spark, front, filled)).collect()
    expected = {f"C{rest}": 0 for rest in range(3)}
    for partition in range(PARTITIONS):
        for at in range(partition * 100 + 200):
            expected[f"C{at % 3}"] += 1
    assert {row["carrier"]: row["count"] for row in rows} == expected


@pytest.mark.deep
def test_stream_goes_on_where_its_checkpoint_ended(
    spark: SparkSession, kafka: KafkaCluster, front: str, filled: str, tmp_path: Path
) -> None:
    def run_to_the_end() -> None:
        stream = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", front)
            .option("subscribe", filled)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "250")
            .load()
            .select("partition", "offset", "key", "value")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert stream.awaitTermination(600), "the stream did not reach the end"
        finally:
            stream.stop()

    def written() -> list[Place]:
        return in_spark(spark.read.parquet(str(tmp_path / "out")))

    run_to_the_end()
    assert written() == in_kafka(kafka, filled)
    produce(kafka.bootstrap_servers, filled, [(b"late", b"{}")] * 5, partition=1)
    run_to_the_end()
    found = written()
    assert found == in_kafka(kafka, filled)
    assert sum(key == b"late" for _, _, key, _ in found) == 5


def test_stock_sink_writes_through_the_gateway(
    spark: SparkSession, kafka: KafkaCluster, front: str, topic: Callable[..., str]
) -> None:
    name = topic(partitions=PARTITIONS)
    numbers = spark.range(500)
    (
        numbers.select(
            (col("id") % 11).cast("string").alias("key"), col("id").cast("string").alias("value")
        )
        .write.format("kafka")
        .option("kafka.bootstrap.servers", front)
        .option("topic", name)
        .save()
    )
    written = in_kafka(kafka, name)
    assert sorted(int(value or b"") for *_, value in written) == list(range(500))
    assert all(int(value or b"") % 11 == int(key or b"") for _, _, key, value in written)
