"""`python -m spark.flights BOOTSTRAP TOPIC OUT [--told]`: flights per carrier, by Spark's own Kafka
source.

An ordinary batch job: that there is a gateway at BOOTSTRAP is nothing it would know. Writes a JSON
object of carrier -> flights to OUT. With --told its session starts, and it reads once a line comes
on its standard input; without a line it reads nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, get_json_object

from spark.session import kafka_session


def read_topic(session: SparkSession, bootstrap_servers: str, topic: str) -> DataFrame:
    """The whole topic as it is now, columns as Spark's Kafka source gives them."""
    return (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )


def flights_per_carrier(records: DataFrame) -> DataFrame:
    """Columns carrier, count; ordered by carrier."""
    carrier = get_json_object(col("value").cast("string"), "$.carrier").alias("carrier")
    return records.select(carrier).groupBy("carrier").count().orderBy("carrier")


def main(bootstrap_servers: str, topic: str, out: Path, *, told: bool = False) -> None:
    session = kafka_session("keyway-flights")
    try:
        if told and not sys.stdin.readline():
            return
        rows = flights_per_carrier(read_topic(session, bootstrap_servers, topic)).collect()
        out.write_text(json.dumps({row["carrier"]: row["count"] for row in rows}))
    finally:
        session.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), told="--told" in sys.argv[4:])
