"""The end of a pipeline's batches and queries, without Spark."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.pipelines import run
from spark.pipelines.config import load_pipeline
from spark.pipelines.run import PipelineRun, _Work
from spark.streaming.core.survey import Topic
from spark.streaming.orders import Partition, Result

FILE = """\
name: short
quarantine: sick
source: {bootstrap_servers: "127.0.0.1:1", topic: flights}
target: {topic: flights-short}
steps:
  - drop: {paths: [hour]}
"""
WORK = _Work(Topic("flights", "id", 2, {}), "flights", {0: 0, 1: 0})
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
