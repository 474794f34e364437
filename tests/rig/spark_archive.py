"""Writes the archive of classes from which the tests' Spark sessions start (spark_jvm.py)."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings

from pyspark import SparkContext
from pyspark.sql import DataFrame

from spark.session import kafka_session
from tests.rig.spark_jvm import QUICK, archive_file

WRITING_S_MAX = 180.0  # until the archive is whole; 15 s on an idle machine


def make_archive() -> None:
    """Runs a session with queries like those of the tests, and keeps its classes."""
    archive = archive_file()
    part = archive.with_suffix(".part")
    archive.parent.mkdir(parents=True, exist_ok=True)
    for old in (archive, part):
        old.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join((*QUICK, f"-XX:ArchiveClassesAtExit={part}"))
    with tempfile.TemporaryDirectory(prefix="keyway-archive-") as directory:
        _query(directory)
    context = SparkContext._gateway
    assert context is not None
    context.shutdown()
    context.proc.stdin.close()  # the driver's JVM ends with the process that started it
    context.proc.wait(WRITING_S_MAX)
    if part.exists():
        part.replace(archive)


def _query(directory: str) -> None:
    session = kafka_session("keyway-archive", settings={"spark.sql.shuffle.partitions": "2"})
    numbers = session.range(1_000).selectExpr("id % 7 as k", "cast(id as string) as text", "id")
    numbers.groupBy("k").sum("id").collect()
    numbers.selectExpr("sha2(text, 256) as h", "k").orderBy("h").limit(5).collect()
    stream = session.readStream.format("rate").load()
    query = stream.writeStream.foreachBatch(_count).start(
        checkpointLocation=f"{directory}/checkpoint"
    )
    query.processAllAvailable()
    query.stop()
    session.stop()


def _count(frame: DataFrame, _batch: int) -> None:
    frame.count()


def main() -> int:
    """`python -m tests.rig.spark_archive`: writes the archive. Its absence costs only time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make_archive()
    if not archive_file().exists():
        sys.stderr.write("keyway: Java wrote no archive of Spark's classes: tests start slower\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
