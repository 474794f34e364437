"""Spark's own Kafka connector: a batch, a range of it, a stream that goes on, a sink."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from spark.session import kafka_session
from tests.conformance.suites.compared import Verdicts
from tests.conformance.suites.ecosystem import LINES, PARTITIONS, read, send, topics
from tests.conformance.suites.front import Front
from tests.conformance.suites.programs import verdicts

VALUES = Counter(line.encode() for line in LINES)


class SparkJobs:
    def __init__(self, front: Front, session: SparkSession) -> None:
        self.front, self.session = front, session
        client = {"bootstrap.servers": front.bootstrap, **front.java()}
        self._kafka = {f"kafka.{name}": value for name, value in client.items()}

    def _filled(self, name: str) -> str:
        topics(self.front, name)
        send(self.front, name, LINES)
        return name

    def _written(self, topic: str) -> Counter[bytes]:
        return Counter(value for _, value in read(self.front, topic) if value is not None)

    def _rows(self, topic: str) -> DataFrame:
        source = self.session.read.format("kafka").options(**self._kafka)
        return source.option("subscribe", topic).load()  # all of it, as it is now

    def batch(self) -> None:
        rows = self._rows(self._filled("spark-batch"))
        found = rows.select("partition", "offset", "value").collect()
        assert Counter(bytes(row["value"]) for row in found) == VALUES
        places = {(row["partition"], row["offset"]) for row in found}
        assert len(places) == len(LINES)

    def offset_range(self) -> None:
        topic = self._filled("spark-range")
        some = {str(number): at for number, at in enumerate((3, 4, 5, 6))}
        none = dict.fromkeys(map(str, range(PARTITIONS)), 1)
        rows = (
            self.session.read.format("kafka")
            .options(**self._kafka)
            .option("subscribe", topic)
            .option("startingOffsets", _offsets(topic, none))
            .option("endingOffsets", _offsets(topic, some))
            .load()
        )
        assert rows.count() == sum(some.values()) - PARTITIONS

    def stream(self) -> None:
        """Stopped, and begun again from its checkpoint: each record once."""
        topic = self._filled("spark-stream")
        target = "spark-stream-out"
        topics(self.front, target)
        checkpoint = self.front.directory / "checkpoint"
        self._streamed(topic, target, checkpoint)
        assert self._written(target) == VALUES
        send(self.front, topic, ["of later"])
        self._streamed(topic, target, checkpoint)
        assert self._written(target) == VALUES + Counter([b"of later"])

    def _streamed(self, topic: str, target: str, checkpoint: Path) -> None:
        source = (
            self.session.readStream.format("kafka")
            .options(**self._kafka)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 250)
            .load()
        )
        query = (
            source.select("key", "value")
            .writeStream.format("kafka")
            .options(**self._kafka)
            .option("topic", target)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(600), "the stream has not ended"

    def sink(self) -> None:
        topic, target = self._filled("spark-sink"), "spark-sink-out"
        topics(self.front, target)
        (
            self._rows(topic)
            .select(col("key"), col("value"))
            .write.format("kafka")
            .options(**self._kafka)
            .option("topic", target)
            .save()
        )
        assert self._written(target) == VALUES


def _offsets(topic: str, places: dict[str, int]) -> str:
    inner = ", ".join(f'"{partition}": {at}' for partition, at in places.items())
    return f'{{"{topic}": {{{inner}}}}}'


def spark_jobs(front: Front, only: Sequence[str]) -> Verdicts:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pyspark's own sockets
        session = kafka_session("conformance", master="local[2]")
        try:
            jobs = SparkJobs(front, session)
            checks: dict[str, Callable[[], None]] = {
                "batch": jobs.batch,
                "range of offsets": jobs.offset_range,
                "stream, stopped and begun again": jobs.stream,
                "sink": jobs.sink,
            }
            chosen = [(name, check) for name, check in checks.items() if not only or name in only]
            return verdicts(chosen, (PySparkException, Py4JError))
        finally:
            session.stop()
