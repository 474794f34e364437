"""A streaming query on A goes on on B, from a checkpoint that was translated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from gateway.embedded.kafka import KafkaCluster
from offsets.cli import app
from tests.rig.kafka import create_topic
from tests.rig.offset_clusters import PlainLink, produce_at, write_config

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),
]
BASE = 1_700_000_000_000
TOPIC = "flights"


@pytest.fixture
def other(kafka: KafkaCluster) -> Iterator[dict[str, str]]:
    with KafkaCluster(1) as second:
        yield {"A": kafka.bootstrap_servers, "B": second.bootstrap_servers}


def run_query(spark: SparkSession, bootstrap: str, checkpoint: Path, topic: str) -> set[str]:
    """All there is now, as batches of a few records; the values."""
    seen: set[str] = set()

    def take(rows: DataFrame, _batch: int) -> None:
        seen.update(row["value"] for row in rows.selectExpr("cast(value as string)").collect())

    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 20)
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    return seen


def test_a_query_goes_on_on_the_other_cluster(
    spark: SparkSession, other: dict[str, str], tmp_path: Path
) -> None:
    for address in other.values():
        create_topic(address, TOPIC, partitions=2)
    link = PlainLink(("A", other["A"]), other["B"])
    back = PlainLink(("B", other["B"]), other["A"])
    for at in (0, 1):
        lines = [(BASE + number, b"a%d-%d" % (at, number)) for number in range(30)]
        produce_at(other["B"], TOPIC, [(BASE, b"b%d" % at)], partition=at)
        produce_at(other["A"], TOPIC, lines, partition=at)
        link.copy(TOPIC, at)
        back.copy(TOPIC, at)
    on_a = run_query(spark, other["A"], tmp_path / "on-a", TOPIC)
    assert len(on_a) == 62
    for at in (0, 1):  # written on both sides meanwhile
        produce_at(other["A"], TOPIC, [(BASE + 99, b"later-a%d" % at)], partition=at)
        produce_at(other["B"], TOPIC, [(BASE + 99, b"later-b%d" % at)], partition=at)
        link.copy(TOPIC, at)
    words = ["spark-checkpoint", str(write_config(tmp_path, other)), str(tmp_path / "on-a")]
    words += ["--from", "A", "--to", "B"]
    printed = CliRunner().invoke(app, words)
    assert printed.exit_code == 0, printed.output
    assert json.loads(printed.stdout) == {TOPIC: {"0": 31, "1": 31}}
    moved = tmp_path / "on-b"
    written = CliRunner().invoke(app, [*words, "--write", str(moved)])
    assert written.exit_code == 0, written.output
    again = CliRunner().invoke(app, [*words, "--write", str(moved)])
    assert (again.exit_code, "is not empty" in again.output) == (2, True)

    on_b = run_query(spark, other["B"], moved, TOPIC)
    assert on_b == {f"later-{name}{at}" for name in "ab" for at in (0, 1)}
    produce_at(other["B"], TOPIC, [(BASE + 100, b"last")])
    assert run_query(spark, other["B"], moved, TOPIC) == {"last"}, "it is an ordinary checkpoint"
    link.close()
    back.close()


def test_what_is_no_checkpoint_is_named(other: dict[str, str], tmp_path: Path) -> None:
    config = str(write_config(tmp_path, other))
    for folder, reason in ((tmp_path / "nothing", "no Spark checkpoint"), (tmp_path, "no Spark")):
        words = ["spark-checkpoint", config, str(folder), "--from", "A", "--to", "B"]
        result = CliRunner().invoke(app, words)
        assert (result.exit_code, reason in result.output) == (2, True)
