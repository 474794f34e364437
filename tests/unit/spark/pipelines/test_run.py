"""The end of a pipeline's batches and queries, without Spark."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.pipelines import run
from spark.pipelines.config import load_pipeline
from spark.pipelines.run import PipelineRun, _Work
from spark.streaming.core.survey import Position, Tail, Topic
from spark.streaming.limits import COMMITTED_AGAIN_S
from spark.streaming.orders import Partition, Result, Writing

FILE = """\
name: short
quarantine: sick
source: {bootstrap_servers: "127.0.0.1:1", topic: flights}
target: {topic: flights-short}
steps:
  - drop: {paths: [hour]}
"""
WORK = _Work(Topic("flights", "id", 2, {}), "flights", {0: 0, 1: 0})
PLACE = ("flights", 0)
ENDS: dict[Partition, int] = {("flights", 0): 100, ("flights", 1): 100}


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineRun:
    (tmp_path / "pipeline.yaml").write_text(FILE)
    monkeypatch.setattr(run, "passed", lambda *_: [])
    loaded = load_pipeline(tmp_path / "pipeline.yaml")
    return PipelineRun(cast(SparkSession, None), loaded, stop=threading.Event())


def result(partition: int, position: int) -> Result:
    counted = dict.fromkeys(("copied", "skipped", "already"), 0)
    place = {"topic": "flights", "partition": partition, "position": position}
    return {**counted, **place, "refused": None}


class Query:
    """`active`: whether its batch is still at work."""

    def __init__(self, *, active: bool, stops: bool = True) -> None:
        self.isActive = active
        self.stops = stops

    def exception(self) -> None:
        """It did not fail."""

    def stop(self) -> None:
        if not self.stops:
            raise _StopTimedOut


class _StopTimedOut(Py4JJavaError):  # type: ignore[misc]
    """As Spark's `stop` after `stopTimeout`, without a JVM."""

    def __init__(self) -> None:
        """No exception of Java."""

    def __str__(self) -> str:
        return "java.util.concurrent.TimeoutException: Stream Execution thread did not stop"


class Side:
    """The source of a pipeline that has no position, and its target. Another process of it sets one
    right after this one has looked.
    """

    def __init__(self) -> None:
        self.committed: dict[Partition, Position] = {}

    def topics(self, _names: object) -> dict[str, Topic]:
        return {"flights": WORK.topic}

    def positions(self, _group: str, _places: object) -> dict[Partition, Position]:
        found = dict(self.committed)
        self.committed[PLACE] = Position(7, "id")
        return found

    def tails(self, places: list[Partition]) -> dict[Partition, Tail]:
        return dict.fromkeys(places, Tail(9))

    def set_positions(
        self,
        _group: str,
        positions: dict[Partition, Position],
        stood: dict[Partition, Position] | None = None,
    ) -> None:
        if stood is not None and any(self.committed.get(at) != stood.get(at) for at in positions):
            raise KafkaException(KafkaError(KafkaError._STATE, "positions have moved meanwhile"))
        self.committed |= positions

    def log_starts(self, places: list[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(places, 0)

    def cut(self, *_: object) -> set[Partition]:
        return set()


def test_two_processes_that_begin_at_the_latest_record_leave_none_out(
    pipeline: PipelineRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one set the first one's position forward, past records that nobody had read."""
    latest = pipeline._source_section.model_copy(update={"start": "latest"})
    monkeypatch.setattr(pipeline, "_source_section", latest)
    side = Side()
    for name in ("_source", "_target"):
        monkeypatch.setattr(pipeline, name, side)
    with pytest.raises(KafkaException, match="moved meanwhile"):
        pipeline._work()
    assert pipeline._work().starts == {0: 7, 1: 0}


@pytest.mark.parametrize("active", [False, True])
def test_a_task_that_ended_before_its_range_needs_another_query(
    pipeline: PipelineRun, *, active: bool
) -> None:
    """Its target is slow. Spark's next batch begins behind the range: the rest was left out."""
    query = cast(StreamingQuery, Query(active=active))
    pipeline._settle(WORK, ENDS, [result(0, 100), result(1, 40)])
    assert pipeline._reached == {("flights", 0): 100, ("flights", 1): 40}
    assert pipeline._watch(query, WORK) is False, "it is not done, also with --once"
    pipeline._batch(WORK, ENDS, cast(DataFrame, None))  # of the old query: it does nothing


def test_a_batch_whose_tasks_came_to_their_ends_goes_on(pipeline: PipelineRun) -> None:
    pipeline._settle(WORK, ENDS, [result(0, 100), result(1, 100)])
    assert pipeline._watch(cast(StreamingQuery, Query(active=False)), WORK) is True


def test_positions_of_partitions_that_rest_are_committed_again(
    pipeline: PipelineRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka forgot them after a week, and the pipeline began anew, in silence."""
    now_s, commits = 10.0, list[list[int]]()

    def committed(writing: Writing, places: list[Partition]) -> list[Result]:
        assert writing.again
        commits.append([partition for _, partition in places])
        return [result(partition, 5) for _, partition in places]

    monkeypatch.setattr(run, "passed", committed)
    monkeypatch.setattr(run, "monotonic", lambda: now_s)
    pipeline._reached = {("flights", partition): 5 for partition in range(3)}
    pipeline._commit_again(WORK, 3)
    assert commits.pop() == [0, 1, 2], "as it begins: it may have been away for long"
    now_s += COMMITTED_AGAIN_S / 2
    pipeline._account([result(1, 8)])
    pipeline._commit_again(WORK, 3)
    now_s += COMMITTED_AGAIN_S / 2
    with pipeline._busy:
        pipeline._commit_again(WORK, 3)
    assert not commits, "a batch goes first"
    pipeline._commit_again(WORK, 1)
    pipeline._commit_again(WORK, 1)
    pipeline._commit_again(WORK, 1)
    assert commits == [[0], [2]]
    now_s += COMMITTED_AGAIN_S / 2
    pipeline._commit_again(WORK, 3)
    assert commits[2:] == [[1]]


def test_a_batch_that_outlives_its_query_is_waited_for(pipeline: PipelineRun) -> None:
    """The error of `stop` ended the process."""
    told: list[str] = []
    query: Any = Query(active=True, stops=False)

    def waits(fault: str) -> None:
        told.append(fault)
        query.isActive = False

    pipeline._waits = waits
    pipeline._end(query)
    assert told == ["TimeoutException: Stream Execution thread did not stop"]
    pipeline._stop.set()  # the process ends, and with it the tasks
    query.isActive = True
    pipeline._waits = told.append
    pipeline._end(cast(StreamingQuery, SimpleNamespace(stop=query.stop, isActive=True)))
