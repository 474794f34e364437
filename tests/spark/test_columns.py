"""The copy header in Spark's columns is the same as in plain Python, for every kind of record."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from keyway.clusters.core.copies import COPY_HEADER, Copy, Origin, Stood, encode, judge
from keyway.clusters.core.limits import COPY_HEADERS_MAX
from keyway.clusters.core.seals import checksum, pads
from keyway.clusters.core.tree import ClusterName, Distributor, Flags, Level
from keyway.clusters.core.trust import CHECKSUM, Seals
from spark.links.columns import judged, sealed
from spark.links.lookup import Named, lookup

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCHEMA = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary,"
    " headers array<struct<key:string,value:binary>>"
)
TOPIC_ID = "q7GdPzq4RbC5nTZ0m9Zx-_"
# By name: no secret, one, and the change from an older one or from none at all.
SEALS = {
    "none": CHECKSUM,
    "one": Seals(("a secret",)),
    "rotation": Seals(("a secret", "an older secret of more than 64 bytes: " + "x" * 64)),
    "first": Seals(("a secret",), checksums=True),
}
LEVEL_2 = Distributor(
    ClusterName("here"), Level(2), (ClusterName("there.1"),), (ClusterName("there.1"),)
)
TARGET_TOPIC = "orders"

Headers = list[tuple[str, bytes | None]]


def record(draw: random.Random, offset: int, seals: Seals) -> tuple[Stood, Headers]:
    """A record with headers of every kind: true, inherited, forged, malformed, foreign."""
    fields = (None, b"", b"k", bytes(range(256)), draw.randbytes(draw.randrange(100)))
    stood = Stood(
        TARGET_TOPIC,
        draw.choice((0, 1, -1, 1_700_000_000_000 + offset, 2**41)),
        draw.choice(fields),
        draw.choice(fields),
    )
    flags = Flags(draw.choice((0, 1, 2, 4, 0x8000_0000, 0xFFFF_FFFC)))
    topic_id = draw.choice(("", TOPIC_ID))
    cluster = ClusterName(draw.choice(("far-1", "far-1", "far-1", "there.1", "thereX1")))
    copy = Copy(flags, Origin(cluster, "orders", 3, 4711, topic_id))
    good = encode(copy, stood, seals=seals)
    inherited = encode(copy, Stood("input", 5, b"x", b"y"), seals=seals)
    oldest = Seals(seals.secrets[-1:])
    candidates: Headers = [
        (COPY_HEADER, good),
        (COPY_HEADER, inherited),
        (COPY_HEADER, encode(copy, stood, seals=oldest)),
        (COPY_HEADER, encode(copy, stood)),
        *((COPY_HEADER, version_1(copy, stood, secret)) for secret in ("", *seals.secrets)),
        (COPY_HEADER, good.replace(b"2-", b"3-", 1)),
        (COPY_HEADER, good.replace(b"2-", b"1-", 1)),
        (COPY_HEADER, good + b"\n"),
        (COPY_HEADER, b"\xff\xfe\x00"),
        (COPY_HEADER, b"x" * 500),
        (COPY_HEADER, None),
        ("Keyway-Copy", good),
        ("other", None),
        ("other", b"\x00\xff"),
    ]
    headers: Headers = draw.choices(candidates, k=draw.randrange(5))
    if draw.random() < 0.02:
        headers = [*[(COPY_HEADER, b"bad")] * COPY_HEADERS_MAX, (COPY_HEADER, good)]
    return stood, headers


def version_1(copy: Copy, stood: Stood, secret: str) -> bytes:
    """As it was written before: without a topic id, the secret in the checksum."""
    claimed = f"{copy.flags:08x}-{copy.origin}"
    return f"1-{claimed[:8]}-{checksum(claimed, stood, secret):016x}-{copy.origin}".encode()


def frame(spark: SparkSession, records: list[tuple[Stood, Headers]]) -> DataFrame:
    return spark.createDataFrame(
        [
            (
                "acme-orders",
                3,
                offset,
                EPOCH + timedelta(milliseconds=stood.timestamp_ms),
                stood.key,
                stood.value,
                headers or None,
            )
            for offset, (stood, headers) in enumerate(records)
        ],
        SCHEMA,
    )


@pytest.mark.parametrize("name", SEALS)
def test_spark_judges_and_seals_as_python_does(spark: SparkSession, name: str) -> None:
    seals = SEALS[name]
    draw = random.Random(7)
    records = [record(draw, offset, seals) for offset in range(500)]
    # librdkafka writes ids in another alphabet than Kafka's tools.
    names = {"acme-orders": Named(TARGET_TOPIC, TOPIC_ID.replace("-", "+").replace("_", "/"))}
    known = lookup(spark, names, seals)
    found = sealed(judged(frame(spark, records), known), LEVEL_2, known).orderBy("offset").collect()
    believed = copied = went_back = 0
    for row, (offset, (stood, headers)) in zip(found, enumerate(records), strict=True):
        verdict = judge(headers, stood, seals=seals)
        believed += verdict.copy is not None
        assert row["doubts"] == len(verdict.doubts), (stood, headers)
        copy = verdict.copy or Copy(
            Flags(0), Origin(ClusterName("here"), TARGET_TOPIC, 3, offset, TOPIC_ID)
        )
        flags = LEVEL_2.flags_of_copy(copy.flags)
        if flags is None or LEVEL_2.would_go_back(copy.origin.cluster):
            went_back += flags is not None
            assert (row["copy"], row["key"], row["value"]) == (None, None, None)
            continue
        copied += 1
        written = Stood(TARGET_TOPIC, max(stood.timestamp_ms, 1), stood.key, stood.value)
        assert bytes_of(row["copy"]) == encode(Copy(flags, copy.origin), written, seals=seals)
        assert (row["timestamp_ms"], bytes_of(row["key"]), bytes_of(row["value"])) == (
            written.timestamp_ms,
            stood.key,
            stood.value,
        )
        others = [(name, value) for name, value in headers if name != COPY_HEADER]
        values = [bytes_of(value) for value in row["header_values"]]
        assert list(zip(row["header_names"], values, strict=True)) == others
    assert 60 < believed < 400
    assert 200 < copied < 480
    assert went_back


def test_the_origin_is_the_topic_before_a_pipeline_routed_the_record(spark: SparkSession) -> None:
    """Two topics that are routed into one would else have the same origins."""
    names = {"acme-orders": Named(TARGET_TOPIC, TOPIC_ID)}
    known = lookup(spark, names, CHECKSUM)
    rows = judged(frame(spark, [(Stood(TARGET_TOPIC, 1, b"k", b"v"), [])]), known)
    routed = rows.withColumn("logical_topic", F.lit("all-orders"))
    (row,) = sealed(routed, LEVEL_2, known).collect()
    copy = Copy(Flags(2), Origin(ClusterName("here"), TARGET_TOPIC, 3, 0, TOPIC_ID))
    assert bytes_of(row["copy"]) == encode(copy, Stood("all-orders", 1, b"k", b"v"))


@pytest.mark.deep
def test_many_topics_are_all_found(spark: SparkSession) -> None:
    names = {
        f"acme-{number}": Named(f"topic-{number}", f"{number:022d}") for number in range(2_000)
    }
    known = lookup(spark, names, CHECKSUM)
    topic = F.concat(F.lit("acme-"), F.col("id"))
    rows = spark.range(2_000).select("id", known.logical(topic), known.topic_id(topic)).collect()
    assert [tuple(row)[1:] for row in sorted(rows)] == [
        (f"topic-{number}", f"{number:022d}") for number in range(2_000)
    ]


def test_no_plan_shows_the_secret(spark: SparkSession) -> None:
    """Spark's web page and event logs are made of these texts, in all their modes."""
    known = lookup(spark, {"acme-orders": Named(TARGET_TOPIC, TOPIC_ID)}, SEALS["rotation"])
    rows = judged(frame(spark, [(Stood(TARGET_TOPIC, 1, b"k", b"v"), [])]), known)
    written = sealed(rows, LEVEL_2, known)
    assert len(written.collect()) == 1
    query: Any = written._jdf.queryExecution()
    modes = spark._jvm.org.apache.spark.sql.execution.ExplainMode  # type: ignore[union-attr]
    names = ("simple", "extended", "codegen", "cost", "formatted")
    texts = [str(query.explainString(modes.fromString(name))) for name in names]
    assert all("sha2" in text for text in texts)
    for text in (*texts, str(query.toString())):
        for secret in SEALS["rotation"].secrets:
            for shown in (secret, secret[:16], pads(secret)[0].hex()[:16], str(pads(secret)[0])):
                assert shown.lower() not in text.lower()


def bytes_of(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
