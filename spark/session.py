"""A SparkSession with Kafka's source, in the versions Keyway is tested with.

The connector comes from Maven Central on first use, into build/ivy-spark of a checkout or
~/.cache/keyway/ivy-spark. `python -m spark.session` fetches it before that: `make setup` of a
checkout does so, and the image with Spark, whose jobs need no network but Kafka's.

A JVM of this machine starts from an archive of classes, if spark/class_archive.py has written one.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

from py4j.java_gateway import JavaClass, JavaPackage, JVMView
from pyspark.sql import SparkSession

from spark.quiet_start import quiet_start

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"  # of pyspark 4.0.0, and no other
# pyspark's own jars have them all.
EXCLUDES = (
    "com.google.code.findbugs:jsr305",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.lz4:lz4-java",
    "org.scala-lang.modules:scala-parallel-collections_2.13",
    "org.slf4j:slf4j-api",
    "org.xerial.snappy:snappy-java",
)

_CHECKOUT = Path(__file__).resolve().parent.parent
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "keyway"
_FILES = _CHECKOUT / "build" if (_CHECKOUT / "pyproject.toml").exists() else _CACHE
IVY = _FILES / "ivy-spark"
ARCHIVE = _FILES / "spark" / "classes.jsa"
QUIET_ARCHIVE = "-Xlog:cds=off -Xlog:cds+dynamic=off"  # of classes that it does not hold

# Spark runs regular expressions over the code it generates, which recurse deeply: with Java's usual
# 1 MiB of stack a query ended with StackOverflowError.
_STACK = "-Xss8m"
# A quarter of the CPU time of a link's first million records went into Java's compiler C2, and
# most of that into code that plans and starts. With ten times its thresholds C2 takes only code
# that every record goes through.
_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
_JAVA = f"{_STACK} {_COMPILER}"
# No collection beside the work, and less code where references are written. Nobody waits for an
# answer of this JVM while it collects. A JVM that is given two collectors does not start.
_COLLECTOR = "-XX:+UseParallelGC"
_COLLECTOR_CHOSEN = re.compile(r"-XX:\+Use\w+GC\b")
_JAVA_VARIABLES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")

JARS = "connector.txt"  # the connector's version, and a jar a line
# Of links and pipelines. The driver's callbacks, one per batch, run in threads of their
# own; a batch is one job.
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    # With the default of 256 MB a task of large records holds them three times over.
    "spark.sql.execution.arrow.maxBytesPerBatch": "4194304",
    "spark.sql.streaming.stopTimeout": "60000",
    "spark.cleaner.periodicGC.interval": "5min",
    # A metric that Kafka's source computes for its UI: one more request to Kafka a batch.
    "spark.sql.streaming.metricsEnabled": "false",
    # The usual one starts twenty processes a batch (`readlink`, `chmod`), to move files into their
    # places so that no other process sees half of one. Nothing reads a checkpoint after its query.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
    ),
}


class _Remembering:
    """Java's classes by name. py4j asks the JVM each time Python names one. To tell a class from a
    package, the JVM looks into some 300 jars of Spark, once for every import it was told. Each
    batch of a query names a dozen: that was four fifths of what the JVM did for Python.

    What was found becomes an attribute here, and `__getattr__` is for those that are missing.
    """

    def __getattr__(self, name: str) -> object:
        found = super().__getattr__(name)  # type: ignore[misc]
        if type(found) is JavaPackage:
            found.__class__ = _Package
        if isinstance(found, JavaClass | JavaPackage):
            self.__dict__[name] = found
        return found


class _Package(_Remembering, JavaPackage): ...  # type: ignore[misc]


class _View(_Remembering, JVMView): ...  # type: ignore[misc]


def kafka_session(
    name: str, *, master: str | None = "local[2]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Builds (or returns the running) session; `settings` win over those set here. `master` None:
    as spark-submit says, which then also brings the connector (`--packages`).

    Raises pyspark's own errors: no Java, or the connector cannot be fetched.
    """
    # Workers must be of this very Python; another one may be `python3` on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    alone = {} if master is None else _alone()
    chosen = {**_everywhere(), **alone, **(settings or {})}
    if master is not None:
        builder = builder.master(master)
    with ivy_alone() if master is not None else nullcontext(), quiet_start():
        if master is not None:
            chosen |= _connector()
        for setting, value in chosen.items():
            builder = builder.config(setting, value)
        session: SparkSession = builder.getOrCreate()
        _look_up_once(session)
        if master is not None:
            _remember_jars()
        session.sparkContext.setLogLevel("ERROR")
    return session


def _look_up_once(session: SparkSession) -> None:
    view = session.sparkContext._jvm  # all of pyspark reaches Java through it
    if type(view) is JVMView:
        view.__class__ = _View


def tasks_told(session: SparkSession) -> str:
    """How far the running stage is; empty between two stages."""
    tracker = session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage_id) for stage_id in tracker.getActiveStageIds()]
    done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
    of = sum(stage.numTasks for stage in stages if stage is not None)
    return f"{done} of {of} tasks" if of else ""


@contextmanager
def ivy_alone() -> Iterator[None]:
    """Local sessions start one after the other: Spark's Ivy has no lock of its own, and two that
    both fetch the connector would write the same files.
    """
    IVY.mkdir(parents=True, exist_ok=True)
    with (IVY / "keyway.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _everywhere() -> dict[str, str]:
    return {
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": _JAVA,
        "spark.executor.extraJavaOptions": _JAVA,
    }


def _alone() -> dict[str, str]:
    """Of a session on this machine alone."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    java = [_JAVA]
    if not any(
        _COLLECTOR_CHOSEN.search(os.environ.get(variable, "")) for variable in _JAVA_VARIABLES
    ):
        java.append(_COLLECTOR)
    if ARCHIVE.exists():  # Java says nothing of one that does not fit, and does without.
        java.append(f'{QUIET_ARCHIVE} "-XX:SharedArchiveFile={ARCHIVE}"')
    settings["spark.driver.extraJavaOptions"] = " ".join(java)
    settings["spark.python.daemon.module"] = "spark.worker_daemon"
    settings["spark.sql.warehouse.dir"] = str(IVY.parent / "spark-warehouse")
    return settings


def _connector() -> dict[str, str]:
    """The connector's jars if an earlier session has fetched them, or else where to fetch them
    from: Ivy takes seconds to find out that it has them all. On the class path nothing copies them,
    and their classes are in the archive.
    """
    fetch = {"spark.jars.packages": CONNECTOR, "spark.jars.excludes": ",".join(EXCLUDES)}
    if jars := _fetched_jars(IVY / JARS):
        return {"spark.driver.extraClassPath": os.pathsep.join(jars)}
    return {**fetch, "spark.jars.ivy": str(IVY)}


def _fetched_jars(known: Path) -> list[str]:
    """The jars listed in `known`; empty if one is missing, or if they belong to another version."""
    if not known.exists():
        return []
    connector, *jars = known.read_text().splitlines()
    return jars if connector == CONNECTOR and all(Path(jar).exists() for jar in jars) else []


def _remember_jars() -> None:
    """Only after a session has started is it sure that all jars are there."""
    if _fetched_jars(IVY / JARS):
        return
    jars = sorted(str(jar) for jar in (IVY / "jars").glob("*.jar"))
    (IVY / JARS).write_text("\n".join([CONNECTOR, *jars]))


def main() -> None:
    """`python -m spark.session` fetches the connector unless it is there."""
    if _fetched_jars(IVY / JARS):
        return
    sys.stderr.write("keyway: fetching Spark's Kafka connector\n")
    kafka_session("keyway-setup", master="local[1]").stop()


if __name__ == "__main__":
    main()
