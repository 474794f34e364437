"""Transforms as Spark runs them: columns of the Kafka source in, the same columns out."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from spark.transforms.core.masks import Secret, hmac_masked
from spark.transforms.core.plan import Plan
from spark.transforms.core.steps import Condition, Filter, Hmac, Mask, Route, Rule, Step
from spark.transforms.frames import ORIGIN_HEADER, REASON_HEADER, marked

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore"),
]

KEY = Secret(b"sixteen byte key")
AT = datetime(2013, 1, 1, 10, 0, 0, 123456, tzinfo=UTC)
COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int, headers array<struct<key:string,value:binary>>"
)


def plan(*steps: Step) -> Plan:
    return Plan(name="p", steps=steps, quarantine="sick", secrets={"KEY": KEY})


def mask(path: str, **more: Any) -> Mask:
    return Mask(paths=(path,), hmac=Hmac(key_env="KEY"), **more)  # type: ignore[arg-type]


def records(
    spark: SparkSession, *values: bytes | None, headers: Any = None, key: bytes | None = b"k"
) -> DataFrame:
    rows = [
        (key, value, "t", at % 3, 1_000 + at, AT, 0, headers) for at, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, COLUMNS)


def by_offset(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: int(row["offset"]))


def test_columns_that_no_step_names_are_as_they_were(spark: SparkSession) -> None:
    headers = [("b", b"\0\xff"), ("a", None), ("b", b"2")]
    values = [b'{"a":"x"}', b'{"n":1.0}', None]
    before = records(spark, *values, headers=headers)
    after = marked(before, plan(mask("a")))
    assert after.schema == before.schema
    digest = str(hmac_masked("x", KEY, 32)).encode()
    for row, other, value in zip(
        by_offset(before), by_offset(after), [b'{"a":"%s"}' % digest, *values[1:]], strict=True
    ):
        assert {**row.asDict(), "value": value} == other.asDict()


def test_filtered_rows_are_marked(spark: SparkSession) -> None:
    only_ones = Filter(keep=(Condition(path="n", equals=1),))  # type: ignore[arg-type]
    before = records(spark, b'{"n":1}', b'{"n":2}', b'{"n":1.0}')
    after = by_offset(marked(before, plan(only_ones)))
    assert [row["topic"] for row in after] == ["t", None, "t"]


def test_a_link_gets_the_topic_in_a_column_of_its_own(spark: SparkSession) -> None:
    route = Route(rules=(Rule(path="n", equals=1, topic="ones"),))  # type: ignore[arg-type]
    before = records(spark, b'{"n":1}', b'{"n":2}', b'{"n":3}').selectExpr(
        "*", "'logical' AS logical_topic", "7L AS flags"
    )
    gone = Filter(drop=(Condition(path="n", equals=3),))  # type: ignore[arg-type]
    after = by_offset(marked(before, plan(route, gone), destination="logical_topic"))
    assert [(row["topic"], row["logical_topic"], row["flags"]) for row in after] == [
        ("t", "ones", 7),
        ("t", "logical", 7),
        ("t", None, 7),
    ]


@pytest.mark.parametrize("headers", [None, [], [("mine", b"1"), ("mine", None)]])
def test_quarantine_keeps_the_record_and_adds_why(
    spark: SparkSession, headers: list[tuple[str, bytes | None]] | None
) -> None:
    before = records(spark, b'{"a":"x"}', b"no json", headers=headers)
    after = by_offset(marked(before, plan(mask("b"), mask("a"))))
    (good, sick) = after
    assert good["topic"] == "t"
    assert [tuple(header) for header in good["headers"] or ()] == (headers or [])
    (_, original) = by_offset(before)
    assert {**sick.asDict(), "topic": "t", "headers": original["headers"]} == original.asDict()
    assert sick["topic"] == "sick"
    *kept, reason, origin = ((header["key"], header["value"]) for header in sick["headers"])
    assert kept == (headers or [])
    assert (reason[0], bytes(reason[1])) == (REASON_HEADER, b"not JSON at character 1")
    assert origin[0] == ORIGIN_HEADER
    assert json.loads(origin[1]) == {
        "topic": "t",
        "partition": 1,
        "offset": 1_001,
        "pipeline": "p",
        "step": 1,
    }


def test_records_without_headers_are_refused(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="no column headers"):
        marked(records(spark, b"{}").drop("headers"), plan(mask("a")))


def test_a_secret_is_not_in_the_plan_that_spark_shows(spark: SparkSession) -> None:
    frame = marked(records(spark, b"{}"), plan(mask("a")))
    shown: str = frame._jdf.queryExecution().toString()
    assert "mapInArrow" in shown.replace("MapInArrow", "mapInArrow")
    assert "sixteen" not in shown


def test_workers_do_not_need_the_environment(spark: SparkSession) -> None:
    assert "KEY" not in os.environ
    (row,) = marked(records(spark, b'{"a":"x"}'), plan(mask("a"))).collect()
    assert json.loads(row["value"]) == {"a": hmac_masked("x", KEY, 32)}
