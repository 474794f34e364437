"""Spark's Kafka source, as links and pipelines use it: committed records of named partitions."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from keyway.clusters.config import Cluster
from spark.streaming.kafka import source_settings
from spark.streaming.orders import Partition


def following(
    session: SparkSession, cluster: Cluster, starts: Mapping[Partition, int], rows_max: int
) -> DataFrame:
    """The records of these places, with those that come. `rows_max`: of one batch."""
    reader = session.readStream.format("kafka").options(**_from(cluster, starts))
    return reader.option("maxOffsetsPerTrigger", rows_max).load()


def between(
    session: SparkSession,
    cluster: Cluster,
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int],
) -> DataFrame:
    """The records of these places, up to `ends`."""
    reader = session.read.format("kafka").options(**_from(cluster, {at: starts[at] for at in ends}))
    return reader.option("endingOffsets", json.dumps(_by_topic(ends))).load()


def _from(cluster: Cluster, starts: Mapping[Partition, int]) -> dict[str, str]:
    offsets = _by_topic(starts)
    partitions = {topic: [int(number) for number in of] for topic, of in offsets.items()}
    return {
        **source_settings(cluster),
        "assign": json.dumps(partitions),
        "startingOffsets": json.dumps(offsets),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "kafka.isolation.level": "read_committed",
        "kafka.allow.auto.create.topics": "false",
    }


def _by_topic(offsets: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        found.setdefault(topic, {})[str(partition)] = offset
    return found
