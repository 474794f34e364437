"""Sessions of one checkout start one after the other, and look up each class of Java once."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow
import pytest
from py4j import protocol
from py4j.clientserver import ClientServerConnection
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import ForeachBatchFunction

from spark import session
from spark.session import ivy_alone

LOOK_UP = protocol.REFLECTION_COMMAND_NAME + protocol.REFL_GET_UNKNOWN_SUB_COMMAND_NAME


def test_two_starts_do_not_share_ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "IVY", tmp_path / "ivy")
    asks, starts = threading.Event(), threading.Event()

    def second() -> None:
        asks.set()
        with ivy_alone():
            starts.set()

    thread = threading.Thread(target=second)
    with ivy_alone():
        thread.start()
        assert asks.wait(60)
        assert not starts.wait(0.2)
    assert starts.wait(60)
    thread.join(10)


def test_fetched_jars_are_used_if_they_are_of_this_version_and_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_session(*_: object, **__: object) -> None:
        raise AssertionError("it fetches again")

    monkeypatch.setattr(session, "IVY", tmp_path)
    monkeypatch.setattr(session, "kafka_session", no_session)
    jar = tmp_path / "connector.jar"
    jar.touch()
    known = tmp_path / session.JARS
    known.write_text(f"{session.CONNECTOR}\n{jar}")
    session.main()
    assert capsys.readouterr().err == ""
    known.write_text(f"{session.CONNECTOR}\n{jar}\n{tmp_path}/another.jar")
    with pytest.raises(AssertionError, match="it fetches again"):
        session.main()
    known.write_text(f"org.apache.spark:an-older-connector:1\n{jar}")
    with pytest.raises(AssertionError, match="it fetches again"):
        session.main()
    assert "fetching" in capsys.readouterr().err


@pytest.mark.parametrize(
    "variable", ["SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"]
)
def test_a_chosen_collector_is_left_alone(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM that was given two did not start."""
    for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    option = "spark.driver.extraJavaOptions"
    assert "-XX:+UseParallelGC" in session._alone()[option]
    monkeypatch.setenv(variable, "-Xmx1g -XX:+UseZGC -XX:-UseSerialGC")
    assert "GC" not in session._alone()[option]
    monkeypatch.setenv(variable, "-Xmx1g -XX:-UseSerialGC")
    assert "-XX:+UseParallelGC" in session._alone()[option]


def test_an_archive_of_classes_is_used_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java would tell of one that is named and missing."""
    option = "spark.driver.extraJavaOptions"
    monkeypatch.setattr(session, "ARCHIVE", tmp_path / "classes of a session.jsa")
    assert "SharedArchiveFile" not in session._alone()[option]
    session.ARCHIVE.touch()
    assert f'"-XX:SharedArchiveFile={session.ARCHIVE}"' in session._alone()[option]


def test_the_connector_is_on_the_class_path(spark: SparkSession) -> None:
    """So nothing copies its jars, and the archive has its classes."""
    system = spark._jvm.java.lang.ClassLoader.getSystemClassLoader()  # type: ignore[union-attr]
    name = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
    assert system.loadClass(name).getName() == name


def test_a_session_maps_the_archive_of_this_checkout(spark: SparkSession) -> None:
    """Java says nothing of one that does not fit its class path, and starts slowly."""
    assert session.ARCHIVE.exists(), "make setup writes it"
    jvm = spark._jvm
    assert jvm is not None
    pid = jvm.java.lang.ProcessHandle.current().pid()
    assert str(session.ARCHIVE) in Path(f"/proc/{pid}/maps").read_text()


def _same(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    yield from batches


def test_a_batch_looks_up_no_class_that_the_one_before_has(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    send = ClientServerConnection.send_command

    def listened(connection: ClientServerConnection, command: str) -> object:
        if command.startswith(LOOK_UP):
            asked.append(command.split("\n")[2])
        return send(connection, command)

    monkeypatch.setattr(ClientServerConnection, "send_command", listened)

    def batch(rows: DataFrame, _number: int) -> None:
        assert rows.mapInArrow(_same, "id bigint").schema.names == ["id"]

    call = ForeachBatchFunction(spark, batch).call
    frame = spark.range(1)._jdf
    call(frame, 0)
    asked.clear()
    call(frame, 1)
    assert asked == []
    spark._jvm.java.util.UUID.randomUUID()  # type: ignore[union-attr]
    assert any("java.util" in name for name in asked), "nothing was listened to"
    asked.clear()
    spark._jvm.java.util.UUID.randomUUID()  # type: ignore[union-attr]
    assert asked == []


@pytest.mark.filterwarnings("ignore:.*unclosed:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # `collect` closes no socket
def test_workers_are_forked_from_a_process_without_zip_files(spark: SparkSession) -> None:
    """These hold no compiled code, so that each start compiles pyspark."""

    def look(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import sys

        zips = [path for path in sys.path if path.endswith("pyspark.zip")]
        spec = sys.modules["__main__"].__spec__
        for _ in batches:
            told = {"zips": [len(zips)], "daemon": [spec.name if spec else ""]}
            yield pyarrow.RecordBatch.from_pydict(told)

    (found,) = (
        spark.range(1, numPartitions=1).mapInArrow(look, "zips bigint, daemon string").collect()
    )
    assert tuple(found) == (0, "spark.worker_daemon")
