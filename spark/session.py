"""A SparkSession with Kafka's source, in the versions Keyway is tested with.

The connector comes from Maven Central on first use, into build/ivy-spark of a checkout or
~/.ivy2.5.2.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"  # of pyspark 4.0.0, and no other
# pyspark's own jars have both.
EXCLUDES = (
    "com.google.code.findbugs:jsr305",
    "org.scala-lang.modules:scala-parallel-collections_2.13",
)

_CHECKOUT = Path(__file__).resolve().parent.parent
# None: Spark's own default, in the home folder.
IVY = _CHECKOUT / "build" / "ivy-spark" if (_CHECKOUT / "pyproject.toml").exists() else None


def kafka_session(
    name: str, *, master: str | None = "local[2]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Builds (or returns the running) session; `settings` win over what is set here. `master` None:
    as spark-submit says.

    Raises what pyspark raises: no Java, or the connector cannot be fetched.
    """
    # Workers must be of the same Python, whatever `python3` is on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for setting, value in {**_defaults(), **(settings or {})}.items():
        builder = builder.config(setting, value)
    with ivy_alone():
        session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def ivy_alone() -> Iterator[None]:
    """Sessions of a checkout start one after the other: Spark's Ivy has no lock of its own, and two
    that both fetch the connector would write the same files.
    """
    if IVY is None:
        yield
        return
    IVY.mkdir(parents=True, exist_ok=True)
    with (IVY / "keyway.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _defaults() -> dict[str, str]:
    defaults = {
        "spark.jars.packages": CONNECTOR,
        "spark.jars.excludes": ",".join(EXCLUDES),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if IVY is not None:
        defaults["spark.jars.ivy"] = str(IVY)
        defaults["spark.sql.warehouse.dir"] = str(IVY.parent / "spark-warehouse")
    return defaults
