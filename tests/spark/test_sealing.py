"""No text that Spark makes of a batch of a link shows its secret."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from keyway.clusters.core.tree import ClusterName, Distributor, Level
from keyway.clusters.core.trust import Seals
from spark.links.sealing import JUDGED_DDL, Named, Sealing, judging

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

SECRET = "a secret of a link"
THERE = (ClusterName("there"),)
SCHEMA = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary,"
    " headers array<struct<key:string,value:binary>>"
)


def test_no_plan_shows_the_secret(spark: SparkSession) -> None:
    """Spark's web page and event logs are made of these texts, in all their modes."""
    row = "'orders', 3, 4L, timestamp_millis(5), cast('k' as binary), cast('v' as binary), null"
    names = [part.split()[0] for part in SCHEMA.split(", ")]
    records = spark.sql(f"select * from values ({row}) as rows({', '.join(names)})")
    records = records.withColumn("headers", records["headers"].cast(SCHEMA.split()[-1]))
    seals, topics = Seals((SECRET,)), {"orders": Named("orders", "")}
    judged = records.mapInArrow(judging(topics, seals), JUDGED_DDL)
    sealing = Sealing(topics, seals, Distributor(ClusterName("here"), Level(2), THERE, THERE))
    written = records.mapInArrow(sealing.sealed, "copy binary")
    modes = spark._jvm.org.apache.spark.sql.execution.ExplainMode  # type: ignore[union-attr]
    for frame in (judged, written):
        query: Any = frame._jdf.queryExecution()
        texts = [str(query.toString())] + [
            str(query.explainString(modes.fromString(mode)))
            for mode in ("simple", "extended", "codegen", "cost", "formatted")
        ]
        assert not any(SECRET in text for text in texts)
    (row_found,) = judged.collect()
    assert (row_found["offset"], row_found["timestamp_ms"], row_found["doubts"]) == (4, 5, 0)
