"""`keyway pipeline run`: topic to topics behind a gateway, exactly once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from gateway.embedded.kafka import KafkaCluster
from spark.pipelines.config import Pipeline, load_pipeline
from spark.pipelines.run import GROUP_PREFIX, Counts, PipelineRun, RunError
from spark.streaming.kafka import KafkaSide
from spark.streaming.orders import Writing
from spark.transforms.frames import ORIGIN_HEADER, REASON_HEADER
from tests.rig.kafka import create_topic, log_end

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),
]

PARTITIONS = 2
PIPELINE = """\
name: NAME
quarantine: NAME-sick
source: {bootstrap_servers: "FRONT", topic: NAME, start: START}
target: {topic: NAME-masked}
steps:
  - mask: {paths: [tail], hmac: {key_env: MASK_KEY}}
  - filter: {drop: [{path: n, equals: 3}]}
  - route: {rules: [{path: n, equals: 4, topic: NAME-fours}]}
"""


@pytest.fixture
def name(topic: Callable[..., str]) -> str:
    return topic(partitions=PARTITIONS)


@pytest.fixture
def made(
    tmp_path: Path, front: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Pipeline]:
    monkeypatch.setenv("MASK_KEY", "sixteen byte key")

    def make(text: str = PIPELINE, start: str = "earliest") -> Pipeline:
        file = tmp_path / "p.yaml"
        for word, value in (("NAME", name), ("FRONT", front), ("START", start)):
            text = text.replace(word, value)
        file.write_text(text)
        return load_pipeline(file)

    return make


def send(kafka: KafkaCluster, topic: str, numbers: range, *, partition: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in numbers:
        producer.produce(
            topic,
            b'{"n": %d.0, "tail": "N%d"}' % (number, number) if number != 5 else b"no json",
            b"key-%d" % number,
            partition,
            timestamp=1_357_034_400_000 + number,
            headers=[("b", b"2"), ("a", None), ("b", b"\0")],
        )
    assert producer.flush(30) == 0


def committed(kafka: KafkaCluster, topic: str) -> list[Message[bytes, bytes]]:
    """Every committed record, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found, ended = [], 0
    while ended < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None, "no answer within 30 s"
        if message.error() is None:
            found.append(message)
        else:
            ended += 1
    consumer.close()
    return sorted(found, key=lambda read: (read.partition() or 0, read.offset() or 0))


def run(spark: SparkSession, pipeline: Pipeline) -> PipelineRun:
    query = PipelineRun(spark, pipeline, stop=threading.Event())
    query.run(once=True)
    return query


def test_every_record_is_where_it_belongs_once(
    spark: SparkSession, kafka: KafkaCluster, made: Callable[..., Pipeline], name: str
) -> None:
    send(kafka, name, range(6), partition=0)
    send(kafka, name, range(10, 13), partition=1)
    first = run(spark, made())
    assert (first.counts.written, first.counts.filtered, first.counts.quarantined) == (8, 1, 1)
    again = run(spark, made())
    assert (again.counts.written, again.counts.again) == (0, 0), "it goes on behind its position"
    send(kafka, name, range(6, 8), partition=0)
    assert run(spark, made()).counts.written == 2

    masked = committed(kafka, f"{name}-masked")
    assert [(message.partition(), message.key()) for message in masked] == [
        *((0, b"key-%d" % number) for number in (0, 1, 2, 6, 7)),
        *((1, b"key-%d" % number) for number in (10, 11, 12)),
    ]
    for message in masked:
        number = int((message.key() or b"").removeprefix(b"key-"))
        assert message.timestamp()[1] == 1_357_034_400_000 + number
        assert message.headers() == [("b", b"2"), ("a", None), ("b", b"\0")]
        value = json.loads(message.value() or b"")
        assert len(value["tail"]) == 32
        assert (message.value() or b"").startswith(b'{"n": %d.0, "tail": "' % number)
    (four,) = committed(kafka, f"{name}-fours")
    assert (four.partition(), four.key()) == (0, b"key-4")
    (sick,) = committed(kafka, f"{name}-sick")
    assert (sick.partition(), sick.key(), sick.value()) == (0, b"key-5", b"no json")
    *kept, reason, origin = sick.headers() or []
    assert kept == [("b", b"2"), ("a", None), ("b", b"\0")]
    assert reason == (REASON_HEADER, b"not JSON at character 1")
    assert origin[0] == ORIGIN_HEADER
    assert json.loads(origin[1] or b"")["offset"] == 5


@pytest.mark.deep
def test_the_group_shows_the_pipeline_s_lag(
    spark: SparkSession, kafka: KafkaCluster, made: Callable[..., Pipeline], name: str
) -> None:
    send(kafka, name, range(6), partition=0)
    run(spark, made())
    group = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": GROUP_PREFIX + name}
    )
    (where,) = group.committed([TopicPartition(name, 0)], 30)
    group.close()
    assert where.offset == log_end(kafka.bootstrap_servers, name, 0) == 6


def test_a_log_that_ends_in_aborted_records_leaves_no_lag_and_no_loss(
    spark: SparkSession, kafka: KafkaCluster, made: Callable[..., Pipeline], name: str
) -> None:
    send(kafka, name, range(3), partition=0)
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name}
    producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(name, b"aborted", partition=partition)
    producer.flush(60)
    producer.abort_transaction(60)
    assert run(spark, made()).counts.written == 3
    ends = [log_end(kafka.bootstrap_servers, name, number) for number in range(PARTITIONS)]
    with KafkaSide(made().config.target_cluster()).consumer(GROUP_PREFIX + name) as group:
        found = group.committed([TopicPartition(name, number) for number in range(PARTITIONS)], 30)
    assert [position.offset for position in found] == ends == [5, 2]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    deleted = [TopicPartition(name, number, end) for number, end in enumerate(ends)]
    for answer in admin.delete_records(deleted).values():
        answer.result(30)
    send(kafka, name, range(6, 8), partition=1)
    assert run(spark, made()).counts.written == 2


@pytest.mark.deep
def test_latest_leaves_out_what_was_there_and_nothing_after(
    spark: SparkSession, kafka: KafkaCluster, made: Callable[..., Pipeline], name: str
) -> None:
    send(kafka, name, range(3), partition=0)
    assert run(spark, made(start="latest")).counts.written == 0
    send(kafka, name, range(6, 8), partition=0)
    send(kafka, name, range(8, 9), partition=1)
    assert run(spark, made(start="latest")).counts.written == 3


@pytest.mark.deep
def test_it_goes_on_while_it_runs_and_stops_when_told(
    spark: SparkSession, kafka: KafkaCluster, made: Callable[..., Pipeline], name: str
) -> None:
    stop = threading.Event()
    written: list[int] = []
    arrived = threading.Event()

    def changed(counts: Counts) -> None:
        written.append(counts.written)
        arrived.set()

    query = PipelineRun(spark, made(), stop=stop, changed=changed)
    send(kafka, name, range(2), partition=0)
    thread = threading.Thread(target=lambda: query.run(once=False), daemon=True)
    thread.start()
    assert arrived.wait(120)
    arrived.clear()
    send(kafka, name, range(6, 8), partition=1)
    assert arrived.wait(120)
    stop.set()
    thread.join(120)
    assert not thread.is_alive()
    assert written[-1] == 4
    assert len(committed(kafka, f"{name}-masked")) == 4


@pytest.mark.deep
def test_a_topic_with_fewer_partitions_is_refused_before_anything_is_read(
    spark: SparkSession, kafka: KafkaCluster, made: Callable[..., Pipeline], name: str
) -> None:
    create_topic(kafka.bootstrap_servers, f"{name}-fours", partitions=1)
    with pytest.raises(
        RunError, match=r"p\.yaml:4: topic .*-fours: it has 2 partitions here and 1"
    ):
        run(spark, made())


def test_records_deleted_before_they_were_read_stop_it(
    spark: SparkSession, kafka: KafkaCluster, made: Callable[..., Pipeline], name: str
) -> None:
    send(kafka, name, range(2), partition=0)
    run(spark, made())
    send(kafka, name, range(6, 9), partition=0)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    (deleted,) = admin.delete_records([TopicPartition(name, 0, 4)]).values()
    deleted.result(30)
    with pytest.raises(RunError, match="2 of partition 0; to go on, delete or reset"):
        run(spark, made())


@pytest.mark.deep
def test_a_task_that_ends_before_its_range_leaves_nothing_out(
    spark: SparkSession,
    kafka: KafkaCluster,
    made: Callable[..., Pipeline],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after half a minute at a slow target: here each task ends with its first transaction."""
    count, whole = 6_000, PipelineRun._writing

    def short(pipeline: PipelineRun, work: Any, ends: Any) -> Writing:
        return replace(whole(pipeline, work, ends), task_bytes_max=1)

    monkeypatch.setattr(PipelineRun, "_writing", short)
    send(kafka, name, range(10, 10 + count), partition=0)
    send(kafka, name, range(20, 30), partition=1)
    done = run(spark, made())
    assert (done.counts.written, done.counts.again) == (count + 10, 0)
    masked = committed(kafka, f"{name}-masked")
    keys = [message.key() for message in masked if message.partition() == 0]
    assert keys == [b"key-%d" % number for number in range(10, 10 + count)]
