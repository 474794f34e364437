"""A Spark batch that compares one topic on two clusters, record by record, by origin.

Every record has an origin: the one in its believed copy header, or its own place if it is fresh. So
the two logs can hold the same records in different interleavings and still be alike. Told apart:

    missing        an origin that only one of the two has
    twice          an origin more than once on one cluster
    altered        the same origin with another timestamp, key, value or header
    out of order   a record behind a later one of the same origin cluster and partition

A pipeline alters records on purpose: with one in the configuration, altered records are counted,
and the topics are alike nevertheless.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from keyway.clusters.config import Cluster, ClustersConfig, ConfigError
from keyway.clusters.core.copies import NO_TOPIC_ID
from keyway.clusters.core.names import Unfit
from keyway.terminal.progress import Progress, Step, no_step
from spark.links.sealing import COLUMNS, JUDGED_DDL, Named, judging
from spark.session import kafka_session, tasks_told
from spark.streaming.kafka import source_settings

Json = dict[str, Any]
EXAMPLES_MAX = 10
# By name: the condition on a row of `_by_origin`. One of null is as good as false.
_DIFFERENCES = {
    "twice_first": "of_first > 1",
    "twice_second": "of_second > 1",
    "missing_first": "of_first = 0",
    "missing_second": "of_second = 0",
    "altered": "at_first != at_second",
}


def verify_topic(
    config: ClustersConfig, first: str, second: str, topic: str, *, master: str, progress: Progress
) -> Json:
    """Starts a session for `compare`. Raises ConfigError for a name that no cluster has."""
    for name in (first, second):
        config.cluster(name)
    progress.step("starting Spark")
    session = kafka_session("keyway-verify", master=master)
    progress.detail = partial(tasks_told, session)
    try:
        return compare(session, config, first, second, topic, progress.step)
    finally:
        progress.detail = None
        session.stop()


def compare(
    session: SparkSession,
    config: ClustersConfig,
    first: str,
    second: str,
    topic: str,
    step: Step = no_step,
) -> Json:
    """Counts and the first origins of everything that differs; `alike` if nothing does. Two passes:
    one over the records by origin, one in the order of their logs.
    """
    sides = {"first": first, "second": second}
    told = [
        records_of(session, config, config.cluster(name), topic).withColumn("side", F.lit(side))
        for side, name in sides.items()
    ]
    records = told[0].union(told[1]).cache()
    origins = _by_origin(records).cache()
    behind = _out_of_order(records).cache()
    try:
        step(f"reading {topic} of {first} and {second}")
        counts = origins.agg(
            *(F.sum(f"of_{side}").alias(f"of_{side}") for side in sides),
            *(
                F.count_if(F.expr(condition)).alias(name)
                for name, condition in _DIFFERENCES.items()
            ),
        ).first()
        assert counts is not None
        listed = {
            name: _listed(origins.filter(condition), counts[name])
            for name, condition in _DIFFERENCES.items()
        }
        step("looking for records out of order")
        late = {row["side"]: row["count"] for row in behind.groupBy("side").count().collect()}
        found: Json = {"topic": topic, "clusters": {}}
        for side, name in sides.items():
            found["clusters"][name] = {
                "records": counts[f"of_{side}"] or 0,
                "twice": listed[f"twice_{side}"],
                "out_of_order": _listed(behind.filter(F.col("side") == side), late.get(side, 0)),
                "missing": listed[f"missing_{side}"],
            }
    finally:
        for cached in (behind, origins, records):
            cached.unpersist()
    found["altered"] = listed["altered"]
    found["transformed"] = config.messages.pipeline is not None
    altered = found["altered"]["count"] and not found["transformed"]
    found["alike"] = not altered and not any(
        side[what]["count"]
        for side in found["clusters"].values()
        for what in ("twice", "out_of_order", "missing")
    )
    return found


def records_of(
    session: SparkSession, config: ClustersConfig, cluster: Cluster, topic: str
) -> DataFrame:
    """Columns origin, cluster, origin_partition, origin_offset, partition, offset, content (a hash
    of everything that is kept) of all committed records. Raises ConfigError.
    """
    name = cluster.topic_names().back(topic)
    if isinstance(name, Unfit):
        raise ConfigError(f"no topic {topic} on {cluster.name}: {name}")
    records = (
        session.read.format("kafka")
        .options(**source_settings(cluster))
        .option("subscribe", name)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option("includeHeaders", "true")
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    judged = judging({name: Named(topic, "")}, config.seals())
    rows = records.select(*COLUMNS).mapInArrow(judged, JUDGED_DDL)
    own = F.concat("partition", F.lit("-"), "offset", F.lit(f"-{cluster.name}/{topic}"))
    # Without the topic id, which copies of version 1 do not tell.
    copied = F.substring("origin", len(NO_TOPIC_ID) + 2, 400)
    rows = rows.withColumn("origin", F.coalesce(copied, own))
    return rows.select(
        "origin",
        F.regexp_extract("origin", r"^\d+-\d+-(.+)/", 1).alias("cluster"),
        F.regexp_extract("origin", r"^(\d+)-", 1).cast("int").alias("origin_partition"),
        F.regexp_extract("origin", r"^\d+-(\d+)-", 1).cast("bigint").alias("origin_offset"),
        "partition",
        "offset",
        F.xxhash64(
            "timestamp_ms",
            F.coalesce(F.length("key"), F.lit(-1)),
            "key",
            F.coalesce(F.length("value"), F.lit(-1)),
            "value",
            F.size("headers"),
            F.transform("headers", lambda header: header["key"]),
            F.transform(
                "headers", lambda header: F.coalesce(F.hex(header["value"]), F.lit("null"))
            ),
        ).alias("content"),
    )


def _by_origin(records: DataFrame) -> DataFrame:
    """A row for each origin: how often each side has it, and its content there."""
    here = {side: F.col("side") == side for side in ("first", "second")}
    return records.groupBy("origin").agg(
        *(F.count_if(on_side).alias(f"of_{side}") for side, on_side in here.items()),
        *(
            F.min(F.when(on_side, F.col("content"))).alias(f"at_{side}")
            for side, on_side in here.items()
        ),
    )


def _out_of_order(records: DataFrame) -> DataFrame:
    """The records that stand behind a later record of the same origin cluster and partition."""
    log = Window.partitionBy("side", "cluster", "origin_partition", "partition").orderBy("offset")
    latest = F.max("origin_offset").over(log.rowsBetween(Window.unboundedPreceding, -1))
    return records.withColumn("latest", latest).filter("origin_offset < latest")


def _listed(records: DataFrame, count: int) -> Json:
    """The count, and the first origins."""
    few = records.select("origin").limit(EXAMPLES_MAX).collect() if count else []
    return {"count": count, "examples": [row["origin"] for row in few]}


def comparison_text(found: Json) -> str:
    """The comparison as text, for people."""
    lines = []
    for name, side in found["clusters"].items():
        lines.append(f"{name}: {side['records']} records of {found['topic']}")
        for what in ("missing", "twice", "out_of_order"):
            lines += _differing(what.replace("_", " "), side[what])
    by_pipeline = " (a pipeline is configured)" if found["transformed"] else ""
    lines += _differing(f"altered{by_pipeline}", found["altered"])
    return "\n".join([*lines, "alike" if found["alike"] else "not alike"])


def _differing(what: str, listed: Json) -> list[str]:
    if not listed["count"]:
        return []
    return [f"  {what}: {listed['count']}, such as {', '.join(listed['examples'][:3])}"]
