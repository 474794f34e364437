"""Bytes by topic of plain clients, beside the logs of a real Kafka: a log is the record batches
that its producers sent, byte for byte.

librdkafka and Java name topics by id in their newest requests, aiokafka by name in old ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, TopicPartition

from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce
from tests.rig.operating import metrics
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

PARTITIONS = 2
WAIT_S = 120.0
Topic = Callable[..., str]


class Librdkafka:
    def __init__(self, gateway: GatewayProcess, _programs: JavaPrograms) -> None:
        self._front = gateway.bootstrap

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        records = [(b"%d" % at, value) for at, value in enumerate(values)]
        produce(self._front, topic, records, config={"compression.type": "lz4"})

    def read(self, topic: str, count: int) -> None:
        consumer = Consumer({"bootstrap.servers": self._front, "group.id": "topic-bytes"})
        consumer.assign([TopicPartition(topic, at, 0) for at in range(PARTITIONS)])
        read = []

        def all_read() -> bool:
            read.extend(consumer.consume(1_000, 0.2))
            return len(read) >= count

        wait_until(all_read, what=f"{count} records", deadline_s=WAIT_S)
        assert not [message.error() for message in read if message.error() is not None]
        consumer.close()


class Aiokafka:
    def __init__(self, gateway: GatewayProcess, _programs: JavaPrograms) -> None:
        self._front = gateway.bootstrap

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        async def work() -> None:
            async with AIOKafkaProducer(bootstrap_servers=self._front) as producer:
                for at, value in enumerate(values):
                    await producer.send(topic, value, partition=at % PARTITIONS)

        asyncio.run(work())

    def read(self, topic: str, count: int) -> None:
        async def work() -> None:
            async with AIOKafkaConsumer(bootstrap_servers=self._front) as consumer:
                places = [AioTopicPartition(topic, at) for at in range(PARTITIONS)]
                consumer.assign(places)
                for place in places:
                    consumer.seek(place, 0)
                for _ in range(count):
                    await asyncio.wait_for(consumer.getone(), WAIT_S)

        asyncio.run(work())


class Java:
    def __init__(self, gateway: GatewayProcess, programs: JavaPrograms) -> None:
        self._front = gateway.bootstrap
        self._programs = programs

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        lines = "".join(f"{value.decode()}\n" for value in values)
        self._programs.console_producer(self._front, topic, lines, seconds_max=WAIT_S)

    def read(self, topic: str, count: int) -> None:
        self._programs.run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", self._front, "--topic", topic, "--from-beginning"),
            *("--max-messages", str(count), "--timeout-ms", "100000"),
            seconds_max=WAIT_S,
        )


@pytest.fixture(scope="module")
def gateway(
    kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """One with room for the topics of these tests among those that are shown."""
    directory = tmp_path_factory.mktemp("topic-bytes")
    with GatewayProcess(directory, kafka.bootstrap_servers) as process:
        yield process


def sample(direction: str, topic: str) -> str:
    return f'keyway_topic_{direction}_bytes_total{{topic="{topic}"}}'


def log_bytes(kafka: KafkaCluster, topic: str) -> int:
    """Record batches in the log of the topic, as its producers sent them."""
    data = kafka.brokers[0].directory / "data"
    logs = [data / f"{topic}-{at}" / f"{0:020}.log" for at in range(PARTITIONS)]
    return sum(log.stat().st_size for log in logs)


@pytest.mark.parametrize("kind", [Librdkafka, Aiokafka, Java])
def test_counters_are_the_bytes_of_the_logs(
    kind: type[Librdkafka | Aiokafka | Java],
    kafka: KafkaCluster,
    gateway: GatewayProcess,
    java_programs: JavaPrograms,
    topic: Topic,
) -> None:
    client, first_client = kind(gateway, java_programs), Librdkafka(gateway, java_programs)
    sizes = {topic(partitions=PARTITIONS): 20, topic(partitions=PARTITIONS): 300}  # of a value
    for name in sizes:
        first_client.send(name, [b"a first one"])
        first_client.read(name, 1)
    shown = metrics(gateway)  # from this scrape on each topic counts by itself
    for name in sizes:
        assert (shown[sample("produced", name)], shown[sample("fetched", name)]) == (0, 0)
    for name, size in sizes.items():
        first = log_bytes(kafka, name)
        client.send(name, [b"%0*d" % (size, at) for at in range(500)])
        client.read(name, 501)
        after = metrics(gateway)
        whole = log_bytes(kafka, name)
        assert after[sample("produced", name)] == whole - first > 0
        assert after[sample("fetched", name)] == whole
    assert after[sample("produced", "other")] == shown[sample("produced", "other")]
    assert after[sample("fetched", "other")] == shown[sample("fetched", "other")]
