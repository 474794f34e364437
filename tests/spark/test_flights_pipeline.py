"""The flights data set through one pipeline, killed on the way: masked, in local time, by carrier.

The oracle computes every record with the standard library alone.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession

from demo.flights import Flight, load, read_flights
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import kill_child, start_child
from spark.pipelines.config import load_pipeline
from spark.pipelines.run import PipelineRun
from tests.rig.gateway_process import REPOSITORY
from tests.rig.patience import wait_until
from tests.spark.test_pipeline_run import committed

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),
]

FLIGHTS = 6_000
PARTITIONS = 2
STARTED_S_MAX = 300.0  # Spark's start, on a machine that does other things, too
KEY = "only-for-this-test"
PAGE = REPOSITORY / "docs" / "transform-records.md"
TOPICS = {"UA": "united", "B6": "partners", "DL": "partners"}


def expected(flight: Flight) -> tuple[str, bytes | None, bytes]:
    """Topic, key and value as bytes: fields that no step names keep their spelling."""

    def masked(text: str) -> str:
        return hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()[:16]

    text = flight.value.decode()
    tail = json.loads(text)["tailnum"]
    if tail is not None:
        text = text.replace(f'"tailnum": "{tail}"', f'"tailnum": "{masked(tail)}"')
    at = datetime.fromisoformat(json.loads(text)["time_hour"])
    local = at.astimezone(ZoneInfo("America/New_York")).strftime("%Y-%m-%d %H:%M %Z")
    text = re.sub(r'"time_hour": "[^"]*"', f'"time_hour": "{local}"', text)
    text = text.replace('"dest": ', '"destination": ')
    text = re.sub(r' "(hour|minute)": \d+,', "", text)
    key = None if flight.key is None else masked(flight.key.decode()).encode()
    return TOPICS.get(flight.carrier, "others"), key, text.encode()


def pipeline(directory: Path, front: str, topic: str) -> Path:
    """The one of the documents, on topics of this test, in small batches."""
    (text,) = re.findall(r"^# flights.yaml\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    text = text.replace("topic: flights}", "topic: flights, records_per_batch_max: 1500}")
    text = re.sub(r"\bflights(?=[-}]|, rec)", topic, text).replace("127.0.0.1:9192", front)
    file = directory / "flights.yaml"
    file.write_text(text)
    return file


def test_every_flight_once_though_the_first_run_is_killed(
    spark: SparkSession,
    kafka: KafkaCluster,
    front: str,
    topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLIGHTS_KEY", KEY)
    flights = read_flights(flights_max=FLIGHTS)
    name = topic(partitions=PARTITIONS)
    first_part = FLIGHTS * 3 // 4  # the rest comes after the kill, so that there is work left
    load(front, name, flights[:first_part], lambda _count: None)
    file = pipeline(tmp_path, front, name)
    log = tmp_path / "run.log"
    command = [sys.executable, "-m", "spark.pipelines.cli", "run", str(file)]
    first = start_child(command, log=log, cwd=REPOSITORY, env=dict(os.environ))
    try:
        wait_until(
            lambda: "records written" in log.read_text() or first.poll() is not None,
            what="records written by the first run",
            deadline_s=STARTED_S_MAX,
        )
        assert first.poll() is None, log.read_text()
    finally:
        kill_child(first)
    load(front, name, flights[first_part:], lambda _count: None)
    second = PipelineRun(spark, load_pipeline(file), stop=threading.Event())
    second.run(once=True)
    assert 0 < second.counts.written < FLIGHTS, "the first run was killed with work left"

    there = Counter(
        (end, message.key(), message.value())
        for end in ("united", "partners", "others")
        for message in committed(kafka, f"{name}-{end}")
    )
    assert there == Counter(expected(flight) for flight in flights)
    assert committed(kafka, f"{name}-sick") == []
