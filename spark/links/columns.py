"""The copy header in Spark's own columns: judged, and written anew. Plain Python's counterpart is
keyway/clusters/core/copies.py; tests/spark/test_columns.py holds both against each other.

Nothing here leaves the JVM. A record's row goes through three states:

    Kafka source   key value topic partition offset timestamp headers
    judged         + timestamp_ms, flags, origin, doubts; headers without the copy headers
    sealed         + copy: the new header, null where the record is not copied at this level
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from keyway.clusters.core.copies import (
    COPY_HEADER,
    FLAGS_AT,
    NO_TOPIC_ID,
    ORIGIN_AT,
    PATTERN,
    SEAL_AT,
    VERSION,
)
from keyway.clusters.core.limits import COPY_HEADER_BYTES_MAX, COPY_HEADERS_MAX
from keyway.clusters.core.seals import SEAL_DIGITS
from keyway.clusters.core.tree import Distributor
from keyway.clusters.core.trust import Seals
from spark.links.lookup import Lookup

# Java's `$` would also match before a line break at the end.
_PATTERN = PATTERN.removesuffix("$") + r"\z"
_HEADERS = "array<struct<key:string,value:binary>>"


def judged(records: DataFrame, lookup: Lookup) -> DataFrame:
    """`records` as Spark's Kafka source gives them, with headers.

    `topic` stays the source's; `logical_topic` is added. `origin` is the end of a header of this
    version, from the separator behind the seal on.
    """
    logical_topic = F.col("named")
    records = records.withColumn("named", lookup.logical(F.col("topic")))
    if lookup.seals.secrets:
        records = records.withColumn("keys", lookup.keys())
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
        _found(headers, logical_topic, lookup.seals).alias("found"),
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
            F.conv(_cut(believed, FLAGS_AT, 8), 16, 10).cast("bigint"),
            F.lit(0).cast("bigint"),
        ).alias("flags"),
        F.when(
            F.substring(believed, 1, 1) == "1",
            F.concat(F.lit(f"-{NO_TOPIC_ID}"), _cut(believed, ORIGIN_AT - 1)),
        )
        .otherwise(_cut(believed, ORIGIN_AT - 1))
        .alias("origin"),
        F.when(has_copies, F.col("found")["copies"] - believed.isNotNull().cast("int"))
        .otherwise(F.lit(0))
        .alias("doubts"),
    )


def _found(headers: Column, logical_topic: Column, seals: Seals) -> Column:
    """For a record with copy headers: their number, the text of the one that is believed, and the
    other headers. Null for records without copy headers, which are nearly all.

    Spark interprets functions of arrays, and makes a whole row before and after a step that has
    one. So they all stand in one expression of one step. `transform` gives a name to a value within
    it.
    """

    def judge(copies: Column) -> Column:
        sealed_here = F.filter(
            F.slice(copies, 1, COPY_HEADERS_MAX),
            lambda header: _fits(header["value"], logical_topic, seals),
        )
        return F.struct(
            F.size(copies).alias("copies"),
            F.try_element_at(sealed_here, F.lit(1))["value"].cast("string").alias("believed"),
            F.filter(headers, lambda header: header["key"] != COPY_HEADER).alias("others"),
        )

    copies = F.filter(headers, lambda header: header["key"] == COPY_HEADER)
    has_copies = F.array_contains(headers["key"], COPY_HEADER)
    return F.when(has_copies, F.transform(F.array(copies), judge)[0])


def sealed(rows: DataFrame, distributor: Distributor, lookup: Lookup) -> DataFrame:
    """`rows` as `judged` gives them, perhaps transformed since: a transform may change key, value,
    headers and `logical_topic`, null for a row that it has filtered out. The origin is what the
    record was before. A row that is not copied keeps nothing but its place and its doubts.
    """
    back = F.col("origin").isNotNull() & F.col("origin").rlike(_from(distributor.allowed))
    masked = F.col("flags").bitwiseAND(F.lit(int(distributor.mask))) != 0
    copied = F.col("logical_topic").isNotNull() & ~masked & ~back
    # Of a record without a believed header, as nearly all are, these are always the same digits.
    flags = F.when(F.col("flags") == 0, F.lit(f"{int(distributor.bit):08x}")).otherwise(
        _hex(F.col("flags").bitwiseOR(F.lit(int(distributor.bit))), 8)
    )
    fresh = F.concat(
        F.lit("-"),
        lookup.topic_id(F.col("topic")),
        F.lit("-"),
        F.col("partition").cast("string"),
        F.lit("-"),
        F.col("offset").cast("string"),
        F.lit(f"-{distributor.source}/"),
        lookup.logical(F.col("topic")),
    )
    rows = rows.withColumn("flags", F.when(copied, flags)).withColumn(
        "origin", F.coalesce("origin", fresh)
    )
    claimed = F.concat("flags", "origin")
    if lookup.seals.secrets:
        rows = rows.withColumn("keys", lookup.keys())
        seal = _keyed(0, claimed, F.col("logical_topic"), F.col("timestamp_ms"))
    else:
        seal = _checksum(F.lit(""), claimed, F.col("logical_topic"), F.col("timestamp_ms"))
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


def _from(clusters: Iterable[str]) -> str:
    """The origins of these clusters, as Distributor.would_go_back asks for them."""
    names = "|".join(re.escape(name) for name in clusters)
    return rf"^-.{{{len(NO_TOPIC_ID)}}}-[0-9]+-[0-9]+-({names})/"


def _fits(value: Column, logical_topic: Column, seals: Seals) -> Column:
    """Whether a header is well-formed and sealed for the row it stands on."""
    text = value.cast("string")
    place = logical_topic, F.unix_millis("timestamp")
    claimed = F.concat(_cut(text, FLAGS_AT, 8), _cut(text, ORIGIN_AT - 1))
    keys = range(len(seals.secrets))
    plain = [_checksum(F.lit(""), claimed, *place)] if seals.checksums_believed else []
    first = [_checksum(F.get(F.col("keys")["text"], F.lit(key)), claimed, *place) for key in keys]
    second = [_keyed(key, claimed, *place) for key in keys]
    seal = _cut(text, SEAL_AT, SEAL_DIGITS)
    return (
        (F.length(value) <= COPY_HEADER_BYTES_MAX)
        & text.rlike(_PATTERN)
        & F.when(F.substring(text, 1, 1) == "1", seal.isin(*plain, *first)).otherwise(
            seal.isin(*plain, *second)
        )
    )


def _keyed(at: int, claimed: Column, logical_topic: Column, timestamp_ms: Column) -> Column:
    """HMAC-SHA-256 with the secret at `at` of the column `keys`, of the text that
    keyway/clusters/core/seals.py says. 16 hex digits.
    """
    lengths = (
        F.coalesce(F.length(column), F.lit(-1)).cast("string") for column in ("key", "value")
    )
    words = (claimed, logical_topic, timestamp_ms.cast("string"), *lengths, F.lit(""))
    inner = F.concat(
        F.get(F.col("keys")["inner"], F.lit(at)),
        F.concat_ws(" ", *words).cast("binary"),
        F.coalesce("key", F.lit(b"")),
        F.coalesce("value", F.lit(b"")),
    )
    outer = F.concat(F.get(F.col("keys")["outer"], F.lit(at)), F.unhex(F.sha2(inner, 256)))
    return F.substring(F.sha2(outer, 256), 1, SEAL_DIGITS)


def _checksum(
    secret: Column, claimed: Column, logical_topic: Column, timestamp_ms: Column
) -> Column:
    """16 hex digits. The fields, and how null is marked, as in keyway/clusters/core/seals.py."""
    return _hex(
        F.xxhash64(
            secret,
            claimed,
            logical_topic,
            timestamp_ms,
            F.coalesce(F.length("key"), F.lit(-1)),
            "key",
            F.coalesce(F.length("value"), F.lit(-1)),
            "value",
        ),
        SEAL_DIGITS,
    )


def _cut(text: Column, at: int, chars: int = COPY_HEADER_BYTES_MAX) -> Column:
    """`at` is counted from 0, unlike SQL's."""
    return F.substring(text, at + 1, chars)


def _hex(number: Column, digits: int) -> Column:
    return F.lpad(F.lower(F.hex(number)), digits, "0")
