"""The comparison of two clusters by origin, on logs with one difference of each kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from gateway.embedded.kafka import KafkaCluster
from keyway.clusters.config import ClustersConfig, load
from keyway.clusters.core.copies import COPY_HEADER, Copy, Origin, Stood, encode
from keyway.clusters.core.tree import ClusterName, Flags
from spark.links.verify import compare, comparison_text
from tests.rig.kafka import create_topic
from tests.rig.several_clusters import send

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.filterwarnings("ignore")]

TIMESTAMP_MS = 1_700_000_000_000
TOPIC = "compared"


@pytest.fixture
def config(kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]) -> ClustersConfig:
    """Two clusters of one Kafka, which differ by the names of their topics."""
    run = fresh_name("verify")
    path = tmp_path / "clusters.yaml"
    places = [
        {
            "name": name,
            "bootstrap_servers": kafka.bootstrap_servers,
            "topic_pattern": f"{run}-{name}-{{topic}}",
        }
        for name in ("a", "b")
    ]
    path.write_text(
        yaml.safe_dump({"clusters": places, "tree": {"level": 1, "children": ["a", "b"]}})
    )
    found = load(path)
    for name in ("a", "b"):
        create_topic(kafka.bootstrap_servers, topic_of(found, name), partitions=2)
    return found


def topic_of(config: ClustersConfig, name: str) -> str:
    return str(config.cluster(name).topic_names().back(TOPIC))


def fresh(number: int, partition: int = 0) -> dict[str, Any]:
    value = b"%d" % number
    return {"key": b"k", "value": value, "partition": partition, "timestamp": TIMESTAMP_MS}


def copied(record: dict[str, Any], offset: int) -> dict[str, Any]:
    """As the link writes a record of `a`, at `offset` of its partition there."""
    origin = Origin(ClusterName("a"), TOPIC, record["partition"], offset)
    stood = Stood(TOPIC, record["timestamp"], record["key"], record["value"])
    header = encode(Copy(Flags(1), origin), stood)
    return {**record, "headers": [(COPY_HEADER, header)]}


def test_logs_that_interleave_otherwise_are_alike(
    spark: SparkSession, kafka: KafkaCluster, config: ClustersConfig
) -> None:
    records = [fresh(at, partition) for partition in (0, 1) for at in range(20)]
    send(kafka.bootstrap_servers, topic_of(config, "a"), records)
    copies = [copied(record, int(record["value"])) for record in records]
    send(kafka.bootstrap_servers, topic_of(config, "b"), [*copies[20:], *copies[:20]])
    found = compare(spark, config, "a", "b", TOPIC)
    assert found["alike"], comparison_text(found)
    assert [side["records"] for side in found["clusters"].values()] == [40, 40]


def test_each_difference_is_counted_and_named(
    spark: SparkSession, kafka: KafkaCluster, config: ClustersConfig
) -> None:
    records = [fresh(at) for at in range(30)]
    send(kafka.bootstrap_servers, topic_of(config, "a"), records)
    copies = [copied(record, at) for at, record in enumerate(records)]
    altered = copied({**records[4], "value": b"altered"}, 4)
    log = [copies[0], copies[2], copies[1], copies[3], altered, copies[5], copies[5]]
    send(kafka.bootstrap_servers, topic_of(config, "b"), [*log, *copies[18:], fresh(99)])
    steps: list[str] = []
    found = compare(spark, config, "a", "b", TOPIC, steps.append)
    a, b = found["clusters"]["a"], found["clusters"]["b"]
    nothing = {"count": 0, "examples": []}
    assert (a["records"], a["twice"], a["out_of_order"]) == (30, nothing, nothing)
    assert a["missing"] == {"count": 1, "examples": [f"0-19-b/{TOPIC}"]}
    assert b["records"] == 20
    assert b["twice"] == {"count": 1, "examples": [f"0-5-a/{TOPIC}"]}
    assert b["out_of_order"] == {"count": 1, "examples": [f"0-1-a/{TOPIC}"]}
    assert b["missing"]["count"] == 12
    assert len(b["missing"]["examples"]) == 10, "a few of them"
    assert set(b["missing"]["examples"]) < {f"0-{at}-a/{TOPIC}" for at in range(6, 18)}
    assert found["altered"] == {"count": 1, "examples": [f"0-4-a/{TOPIC}"]}
    assert not found["alike"]
    assert len(steps) > 1


@pytest.mark.deep
def test_an_empty_side_lacks_all_and_two_empty_ones_are_alike(
    spark: SparkSession, kafka: KafkaCluster, config: ClustersConfig
) -> None:
    assert compare(spark, config, "a", "b", TOPIC)["alike"]
    send(kafka.bootstrap_servers, topic_of(config, "a"), [fresh(1), fresh(2)])
    found = compare(spark, config, "a", "b", TOPIC)
    assert found["clusters"]["b"]["missing"]["count"] == 2
    assert found["clusters"]["b"]["records"] == 0
    assert not found["alike"]
