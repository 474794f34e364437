"""The copy header in Spark's own columns: judged, and written anew. Plain Python's counterpart is
clusters/core/copies.py; tests/spark/test_columns.py holds both against each other.

Nothing here leaves the JVM. A record's row goes through three states:

    Kafka source   key value topic partition offset timestamp headers
    judged         + timestamp_ms, flags, origin, doubts; headers without the copy headers
    sealed         + copy: the new header, null where the record is not copied at this level
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from clusters.core.copies import COPY_HEADER, PATTERN, VERSION
from clusters.core.limits import COPY_HEADER_BYTES_MAX, COPY_HEADERS_MAX
from clusters.core.tree import Distributor

# Java's `$` would also match before a line break at the end.
_PATTERN = PATTERN.removesuffix("$") + r"\z"
_HEADERS = "array<struct<key:string,value:binary>>"
# Where the fields of a header are, counted from 1 as SQL does.
_FLAGS_AT, _SEAL_AT, _ORIGIN_AT = 3, 12, 28


def judged(records: DataFrame, *, logical: Mapping[str, str], secret: str) -> DataFrame:
    """`records` as Spark's Kafka source gives them, with headers. `logical`: the logical name of
    every topic among them.

    `topic` stays the source's; `logical_topic` is added. `origin` is the header's end, from the
    separator behind the seal on.
    """
    logical_topic = _mapped(F.col("topic"), logical)
    headers = records["headers"]  # By name it could also be the one below.
    rows = records.select(
        "topic",
        logical_topic.alias("logical_topic"),
        "partition",
        "offset",
        # 0 means "now" to librdkafka, so the first millisecond is written as the second.
        F.greatest(F.unix_millis("timestamp"), F.lit(1)).alias("timestamp_ms"),
        "key",
        "value",
        F.coalesce(headers, F.array().cast(_HEADERS)).alias("headers"),
        _found(headers, logical_topic, secret).alias("found"),
    )
    believed = F.col("found")["believed"]
    has_copies = F.col("found").isNotNull()
    return rows.select(
        "topic",
        "logical_topic",
        "partition",
        "offset",
        "timestamp_ms",
        "key",
        "value",
        F.when(has_copies, F.col("found")["others"]).otherwise(F.col("headers")).alias("headers"),
        F.coalesce(
            F.conv(F.substring(believed, _FLAGS_AT, 8), 16, 10).cast("bigint"),
            F.lit(0).cast("bigint"),
        ).alias("flags"),
        F.substring(believed, _ORIGIN_AT, COPY_HEADER_BYTES_MAX).alias("origin"),
        F.when(has_copies, F.col("found")["copies"] - believed.isNotNull().cast("int"))
        .otherwise(F.lit(0))
        .alias("doubts"),
    )


def _found(headers: Column, logical_topic: Column, secret: str) -> Column:
    """Of a record with copy headers: their number, the text of the believed one, and the other
    headers. Null for the records without, nearly all.

    Spark interprets functions of arrays, and makes a whole row before and after a step that has
    one: so they stand in one expression of one step. `transform` names a value within it.
    """

    def judge(copies: Column) -> Column:
        sealed_here = F.filter(
            F.slice(copies, 1, COPY_HEADERS_MAX),
            lambda it: _fits(it["value"], logical_topic, secret),
        )
        return F.struct(
            F.size(copies).alias("copies"),
            F.try_element_at(sealed_here, F.lit(1))["value"].cast("string").alias("believed"),
            F.filter(headers, lambda it: it["key"] != COPY_HEADER).alias("others"),
        )

    copies = F.filter(headers, lambda it: it["key"] == COPY_HEADER)
    has_copies = F.array_contains(headers["key"], COPY_HEADER)
    return F.when(has_copies, F.transform(F.array(copies), judge)[0])


def sealed(rows: DataFrame, distributor: Distributor, *, secret: str) -> DataFrame:
    """`rows` as `judged` gives them, perhaps transformed since: a transform may change key, value,
    headers and `logical_topic`, null for a row that it has filtered out. A row that is not copied
    keeps nothing but its place and its doubts.
    """
    copied = (F.col("flags").bitwiseAND(F.lit(int(distributor.mask))) == 0) & F.col(
        "logical_topic"
    ).isNotNull()
    # Of a record without a believed header, as nearly all are, these are always the same digits.
    flags = F.when(F.col("flags") == 0, F.lit(f"{int(distributor.bit):08x}")).otherwise(
        _hex(F.col("flags").bitwiseOR(F.lit(int(distributor.bit))), 8)
    )
    fresh = F.concat(
        F.lit("-"),
        F.col("partition").cast("string"),
        F.lit("-"),
        F.col("offset").cast("string"),
        F.lit(f"-{distributor.source}/"),
        F.col("logical_topic"),
    )
    rows = rows.withColumn("flags", F.when(copied, flags)).withColumn(
        "origin", F.coalesce("origin", fresh)
    )
    claimed = F.concat("flags", "origin")
    seal = _seal(claimed, secret, F.col("logical_topic"), F.col("timestamp_ms"))
    copy = F.concat(F.lit(f"{VERSION}-"), "flags", F.lit("-"), seal, "origin")
    kept = F.col("flags").isNotNull()
    return rows.select(
        "topic",
        "logical_topic",
        "partition",
        "offset",
        "timestamp_ms",
        F.when(kept, F.col("key")).alias("key"),
        F.when(kept, F.col("value")).alias("value"),
        F.when(kept, F.col("headers")["key"]).alias("header_names"),
        F.when(kept, F.col("headers")["value"]).alias("header_values"),
        copy.cast("binary").alias("copy"),
        "doubts",
    )


def _fits(value: Column, logical_topic: Column, secret: str) -> Column:
    """Whether a header is well-formed and sealed for the row it stands on."""
    text = value.cast("string")
    claimed = F.concat(
        F.substring(text, _FLAGS_AT, 8), F.substring(text, _ORIGIN_AT, COPY_HEADER_BYTES_MAX)
    )
    seal = _seal(claimed, secret, logical_topic, F.unix_millis("timestamp"))
    return (
        (F.length(value) <= COPY_HEADER_BYTES_MAX)
        & text.rlike(_PATTERN)
        & (F.substring(text, _SEAL_AT, 16) == seal)
    )


def _seal(claimed: Column, secret: str, logical_topic: Column, timestamp_ms: Column) -> Column:
    """16 hex digits. The fields, and how null is marked, as in clusters/core/copies.py."""
    return _hex(
        F.xxhash64(
            F.lit(secret),
            claimed,
            logical_topic,
            timestamp_ms,
            F.coalesce(F.length("key"), F.lit(-1)),
            "key",
            F.coalesce(F.length("value"), F.lit(-1)),
            "value",
        ),
        16,
    )


def _hex(number: Column, digits: int) -> Column:
    return F.lpad(F.lower(F.hex(number)), digits, "0")


def _mapped(topic: Column, names: Mapping[str, str]) -> Column:
    """The value of `names` for a topic; the topic itself where it is called the same."""
    renamed = {name: other for name, other in names.items() if name != other}
    if not renamed:
        return topic
    pairs = [F.lit(part) for item in renamed.items() for part in item]
    return F.coalesce(F.element_at(F.create_map(*pairs), topic), topic)
