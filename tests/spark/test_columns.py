"""The copy header in Spark's columns is the same as in plain Python, for every kind of record."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from clusters.core.copies import COPY_HEADER, Copy, Origin, Stood, encode, judge
from clusters.core.limits import COPY_HEADERS_MAX
from clusters.core.tree import ClusterName, Distributor, Flags, Level
from spark.columns import judged, sealed

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCHEMA = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary,"
    " headers array<struct<key:string,value:binary>>"
)
SECRET = "a secret"
LEVEL_2 = Distributor(
    ClusterName("here"), Level(2), (ClusterName("there"),), (ClusterName("there"),)
)
TARGET_TOPIC = "orders"

Headers = list[tuple[str, bytes | None]]


def record(draw: random.Random, offset: int) -> tuple[Stood, Headers]:
    """A record with headers of every kind: true, inherited, forged, malformed, foreign."""
    fields = (None, b"", b"k", bytes(range(256)), draw.randbytes(draw.randrange(100)))
    stood = Stood(
        TARGET_TOPIC,
        draw.choice((0, 1, -1, 1_700_000_000_000 + offset, 2**41)),
        draw.choice(fields),
        draw.choice(fields),
    )
    flags = Flags(draw.choice((0, 1, 2, 4, 0x8000_0000, 0xFFFF_FFFC)))
    copy = Copy(flags, Origin(ClusterName("far-1"), "orders", 3, 4711))
    good = encode(copy, stood, secret=SECRET)
    inherited = encode(copy, Stood("input", 5, b"x", b"y"), secret=SECRET)
    candidates: Headers = [
        (COPY_HEADER, good),
        (COPY_HEADER, inherited),
        (COPY_HEADER, good.replace(b"1-", b"2-", 1)),
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


def test_spark_judges_and_seals_as_python_does(spark: SparkSession) -> None:
    draw = random.Random(7)
    records = [record(draw, offset) for offset in range(500)]
    rows = spark.createDataFrame(
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
    known = judged(rows, logical={"acme-orders": TARGET_TOPIC}, secret=SECRET)
    found = sealed(known, LEVEL_2, secret=SECRET).orderBy("offset").collect()
    believed = copied = 0
    for row, (offset, (stood, headers)) in zip(found, enumerate(records), strict=True):
        verdict = judge(headers, stood, secret=SECRET)
        believed += verdict.copy is not None
        assert row["doubts"] == len(verdict.doubts), (stood, headers)
        copy = verdict.copy or Copy(Flags(0), Origin(ClusterName("here"), TARGET_TOPIC, 3, offset))
        flags = LEVEL_2.flags_of_copy(copy.flags)
        if flags is None:
            assert (row["copy"], row["key"], row["value"]) == (None, None, None)
            continue
        copied += 1
        written = Stood(TARGET_TOPIC, max(stood.timestamp_ms, 1), stood.key, stood.value)
        assert bytes_of(row["copy"]) == encode(Copy(flags, copy.origin), written, secret=SECRET)
        assert (row["timestamp_ms"], bytes_of(row["key"]), bytes_of(row["value"])) == (
            written.timestamp_ms,
            stood.key,
            stood.value,
        )
        others = [(name, value) for name, value in headers if name != COPY_HEADER]
        values = [bytes_of(it) for it in row["header_values"]]
        assert list(zip(row["header_names"], values, strict=True)) == others
    assert 60 < believed < 400
    assert 200 < copied < 480


def bytes_of(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
