"""An archive of the classes that a session loads: its JVM then starts with half the CPU.

Java maps it instead of reading, verifying and linking thousands of classes anew (class data
sharing, JEP 350). `python -m spark.class_archive` writes it: `make setup` of a checkout does so,
and the image with Spark. Java itself checks that an archive fits its version and the class path.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from threading import Event
from typing import Any

import pyarrow
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark.session import ARCHIVE, QUIET_ARCHIVE, kafka_session

WRITING_S_MAX = 600.0  # until the archive is whole; 15 s on an idle machine
QUERY_S_MAX = 60.0  # for its first batch
_NOBODY = "127.0.0.1:1"  # answers no client of Kafka


def make_archive() -> None:
    """Runs a session with queries like those of links, and keeps its classes."""
    # The connector's jars stand on the class path only of sessions that do not fetch them.
    subprocess.run([sys.executable, "-m", "spark.session"], check=True)
    part = ARCHIVE.with_suffix(".part")
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    for old in (ARCHIVE, part):  # Java adds nothing to an archive it starts from.
        old.unlink(missing_ok=True)
    options = f'{QUIET_ARCHIVE} -XX:TieredStopAtLevel=1 "-XX:ArchiveClassesAtExit={part}"'
    os.environ["SPARK_SUBMIT_OPTS"] = options
    session = kafka_session("keyway-archive", settings={"spark.sql.shuffle.partitions": "2"})
    with tempfile.TemporaryDirectory(prefix="keyway-archive-") as checkpoint:
        _query(session, checkpoint)
    session.stop()
    context = SparkContext._gateway
    assert context is not None
    context.shutdown()
    context.proc.stdin.close()  # the driver's JVM ends with the process that started it
    with suppress(subprocess.TimeoutExpired, FileNotFoundError):
        context.proc.wait(WRITING_S_MAX)
        with part.open("rb") as written:
            os.fsync(written.fileno())  # Java dies of an archive that a power failure cuts short.
        part.replace(ARCHIVE)


def _query(session: SparkSession, checkpoint: str) -> None:
    numbers = session.range(1_000).selectExpr("id % 7 as k", "cast(id as string) as text", "id")
    numbers.groupBy("k").sum("id").collect()
    numbers.selectExpr("xxhash64(text) as h", "k").orderBy("h").limit(5).collect()
    headers = "array(named_struct('key', text, 'value', cast(text as binary))) as headers"
    records = numbers.selectExpr("id", "text", "cast(text as binary) as value", headers)
    records.mapInArrow(_same, records.schema).collect()
    rows = session.readStream.format("rate").load()
    done = Event()

    def batch(frame: DataFrame, _number: int) -> None:
        frame.mapInArrow(_same, frame.schema).collect()
        done.set()

    query = rows.writeStream.foreachBatch(batch).start(checkpointLocation=checkpoint)
    done.wait(QUERY_S_MAX)
    query.stop()
    java: Any = session._jvm
    java.org.apache.kafka.common.protocol.ApiKeys.values()  # loads the classes of all messages
    reader = session.read.format("kafka").option("kafka.bootstrap.servers", _NOBODY)
    reader = reader.option("kafka.default.api.timeout.ms", 500)
    reader = reader.option("kafka.request.timeout.ms", 400).option("fetchOffset.numRetries", 1)
    with suppress(Py4JJavaError, PySparkException):
        reader.option("subscribe", "none").load().collect()


def _same(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    yield from batches


def main() -> int:
    """Writes the archive. Its absence costs only time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make_archive()
    if not ARCHIVE.exists():
        sys.stderr.write("keyway: Java wrote no archive of classes: Spark starts slower\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
