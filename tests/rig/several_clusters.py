"""Several single-broker Kafkas, each behind a gateway of its own, and the links between them on one
Spark session.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from gateway.embedded.kafka import KafkaCluster
from keyway.clusters.config import ClustersConfig, load
from keyway.clusters.core.copies import COPY_HEADER, Copy, Origin, Stood, judge
from keyway.clusters.core.tree import FRESH, ClusterName
from keyway.clusters.core.trust import CHECKSUM, Seals
from spark.links.turns import run_links
from spark.streaming.read_back import headers_of
from tests.rig.gateway_process import GatewayProcess
from tests.rig.patience import wait_until

ARRIVED_S_MAX = 600.0
QUICK = {"trigger_interval_ms": 100}


@dataclass(frozen=True, slots=True)
class Found:
    """A record as it stands on one cluster. `copy` is None for a fresh one."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]  # without the copy header
    copy: Copy | None

    def origin(self, cluster: str, topic: str) -> Origin:
        if self.copy is not None:
            return self.copy.origin
        return Origin(ClusterName(cluster), topic, self.partition, self.offset)

    @property
    def flags(self) -> int:
        return FRESH if self.copy is None else self.copy.flags


@dataclass(slots=True)
class Clusters:
    """`kafkas` and `gateways` by name; `path` is the YAML."""

    kafkas: dict[str, KafkaCluster]
    gateways: dict[str, GatewayProcess]
    directory: Path
    path: Path = field(init=False)

    def write(
        self,
        tree: Mapping[str, Any],
        *,
        of_cluster: Mapping[str, Mapping[str, Any]] | None = None,
        **sections: Any,
    ) -> ClustersConfig:
        """`of_cluster`: more fields of a cluster, by its name."""
        names = names_in(tree)
        messages = {
            **QUICK,
            "state_directory": str(self.directory / "state"),
            **sections.pop("messages", {}),
        }
        content = {
            "clusters": [
                {
                    "name": name,
                    "bootstrap_servers": self.gateways[name].bootstrap,
                    **(of_cluster or {}).get(name, {}),
                }
                for name in names
            ],
            "tree": tree,
            "messages": messages,
            **sections,
        }
        self.path = self.directory / "clusters.yaml"
        self.path.write_text(yaml.safe_dump(content))
        return load(self.path)

    def front(self, name: str) -> str:
        return self.gateways[name].bootstrap


def names_in(node: Any) -> list[str]:
    if isinstance(node, str):
        return [node]
    return [name for child in node["children"] for name in names_in(child)]


@contextmanager
def clusters(
    names: Sequence[str], directory: Path, prepare: Callable[[Clusters], object] = lambda _: None
) -> Iterator[Clusters]:
    """`prepare` runs before the gateways start and read their files."""
    with ExitStack() as started:
        kafkas = {
            name: started.enter_context(KafkaCluster(1, share_groups=False)) for name in names
        }
        gateways = {
            name: GatewayProcess(directory / name, kafkas[name].bootstrap_servers) for name in names
        }
        made = Clusters(kafkas, gateways, directory)
        prepare(made)
        for process in gateways.values():
            process.spawn()
            started.callback(process.kill)
        for process in gateways.values():
            process.wait_ready()
        yield made


@contextmanager
def running(
    session: SparkSession, config: ClustersConfig, *names: str, level: int | None = None
) -> Iterator[threading.Event]:
    """The links of the named clusters, until the block ends."""
    stop = threading.Event()
    ended: list[BaseException] = []

    def run(name: str) -> None:
        try:
            run_links(session, config, ClusterName(name), level=level, stop=stop)
        except BaseException as error:
            ended.append(error)
            raise

    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    try:
        yield stop
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not ended, ended
    assert not any(thread.is_alive() for thread in threads)


def producer_of(front: str) -> Producer:
    return Producer({"bootstrap.servers": front, "linger.ms": 5})


def send(front: str, topic: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Each a call of `Producer.produce`; returns when all are acknowledged."""
    send_by(producer_of(front), topic, records)


def send_by(producer: Producer, topic: str, records: Sequence[Mapping[str, Any]]) -> None:
    failed: list[str] = []

    def told(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    for record in records:
        producer.produce(topic, on_delivery=told, **record)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed, failed[:3]


def read(front: str, topic: str, partitions: int = 1, *, seals: Seals = CHECKSUM) -> list[Found]:
    """All committed records of a topic, by partition and offset; none if it does not exist."""
    consumer = Consumer(
        {
            "bootstrap.servers": front,
            "group.id": "tests-read",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found: list[Found] = []
    try:
        if topic not in consumer.list_topics(timeout=120).topics:
            return found  # the link has not created it yet
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        left = partitions
        while left:
            message = consumer.poll(30)
            assert message is not None, f"no answer from {front}"
            error = message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF", error
                left -= 1
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            stood = Stood(topic, message.timestamp()[1], message.key(), message.value())
            headers = headers_of(message)
            found.append(
                Found(
                    partition,
                    offset,
                    stood.timestamp_ms,
                    stood.key,
                    stood.value,
                    tuple(header for header in headers if header[0] != COPY_HEADER),
                    judge(headers, stood, seals=seals).copy,
                )
            )
    finally:
        consumer.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def wait_for(front: str, topic: str, count: int, partitions: int = 1) -> list[Found]:
    """Waits until the topic has `count` records and returns all of it: the caller looks whether it
    has too many."""
    last: list[Found] = []

    def arrived() -> bool:
        last[:] = read(front, topic, partitions)
        return len(last) >= count

    try:
        wait_until(
            arrived,
            what=f"{count} records in {topic} at {front}",
            deadline_s=ARRIVED_S_MAX,
            every_s=0.3,  # each look reads the whole topic
        )
    except TimeoutError as error:
        raise AssertionError(f"{len(last)} of {count} records of {topic} at {front}") from error
    return last
