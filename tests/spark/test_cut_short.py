"""A batch that Spark cannot read to its end, in real workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from time import sleep

import pytest
from py4j.protocol import Py4JJavaError
from pyarrow import RecordBatch
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from gateway.embedded.kafka import KafkaCluster
from spark.streaming.orders import RESULT_DDL, Writing
from spark.streaming.produce import copying
from tests.rig.kafka import read_partition
from tests.rig.patience import wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),
]

RECORDS, VALUE_BYTES = 2_000, 10_000  # of a partition: more than goes between JVM and worker
ARROW = "spark.sql.execution.arrow.maxRecordsPerBatch"
ROW = """
    'source' as topic, cast(id div {records} as int) as partition, id % {records} as offset,
    '{to}' as to, 1700000000000L as timestamp_ms, cast(null as binary) as key,
    cast(repeat('x', {bytes}) as binary) as value, cast(array() as array<string>) as header_names,
    cast(array() as array<binary>) as header_values, cast(null as binary) as copy, 0 as doubts
"""


def slowly(end: Path, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """As of a slow target. Makes the file `end` behind the rows of partition 0. The other partition
    waits until that one is at work: on a busy machine it failed before.
    """
    partition = None
    begun = end.with_name("begun")
    for batch in batches:
        partition = batch.column("partition")[0].as_py()
        if partition == 0:
            begun.touch()
        wait_until(begun.exists, what="a batch of partition 0", deadline_s=60)
        sleep(0.1)
        yield batch
    if partition == 0:
        end.touch()


def test_the_rest_of_a_batch_that_cannot_be_read_is_not_passed(
    spark: SparkSession,
    kafka: KafkaCluster,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """The task of another partition fails, and Spark ends this one. Its worker took what it had got
    for the whole batch, and committed the end of the range.
    """
    to = topic(partitions=2)
    orders = Writing(
        group=fresh_name("link"),
        client={"bootstrap.servers": kafka.bootstrap_servers},
        targets={"source": to},
        topic_ids={"source": "id"},
        expected={},
        ends={("source", partition): RECORDS for partition in (0, 1)},
        exactly_once=True,
        transaction_timeout_ms=60_000,
    )
    text = ROW.format(records=RECORDS, to=to, bytes=VALUE_BYTES)
    rows = spark.sql(f"select {text} from range(0, {2 * RECORDS}, 1, 2)")
    is_bad = (F.col("partition") == 1) & (F.col("offset") == 500)
    fails = F.raise_error(F.lit("the broker is away")).cast("int")
    cut = rows.withColumn("doubts", F.when(is_bad, fails).otherwise(F.col("doubts")))
    end = tmp_path / "end"
    before = spark.conf.get(ARROW)
    spark.conf.set(ARROW, "100")
    try:
        with pytest.raises((PySparkException, Py4JJavaError), match="the broker is away"):
            cut.mapInArrow(copying(orders, partial(slowly, end)), RESULT_DDL).collect()
        wait_until(end.exists, what="the end of the task that was not at fault", deadline_s=60)
        results = rows.mapInArrow(copying(orders), RESULT_DDL).collect()
    finally:
        spark.conf.set(ARROW, str(before))
    assert [result["position"] for result in results] == [RECORDS, RECORDS]
    for partition in (0, 1):
        assert len(read_partition(kafka.bootstrap_servers, to, partition)) == RECORDS
