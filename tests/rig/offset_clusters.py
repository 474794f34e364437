"""Two or three clusters between which offsets follow: their YAML, a plain link, a stock group.

`PlainLink` stands in for message distribution where a test must decide on each copy and its time:
it copies committed records in their order, with the true header of a copied record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from keyway.clusters.config import ClustersConfig, load
from keyway.clusters.core.copies import (
    COPY_HEADER,
    Copy,
    Origin,
    Stood,
    as_in_headers,
    encode,
    judge,
)
from keyway.clusters.core.tree import ClusterName, Flags
from offsets.client import ClusterClient
from offsets.core.plan import Committed, Refusal
from offsets.service import Service
from tests.rig.patience import wait_until

ANSWER_S_MAX = 30.0
TREES: dict[int, Any] = {
    2: {"level": 1, "children": ["A", "B"]},
    3: {"level": 2, "children": ["A", {"level": 1, "children": ["B", "C"]}]},
}


def write_config(
    directory: Path,
    bootstraps: Mapping[str, str],
    *,
    clusters: Mapping[str, Mapping[str, Any]] | None = None,
    **offsets: Any,
) -> Path:
    """The YAML of the clusters A and B (and C). `clusters`: more settings of one cluster each."""
    body = {
        "clusters": [
            {"name": name, "bootstrap_servers": address, **(clusters or {}).get(name, {})}
            for name, address in bootstraps.items()
        ],
        "tree": TREES[len(bootstraps)],
        "groups": {"include": ["*"]},
        "offsets": {
            "interval_ms": 100,
            "refresh_ms": 300,
            "empty_ms": 0,
            "state_directory": str(directory / "state"),
            **offsets,
        },
    }
    path = directory / "clusters.yaml"
    path.write_text(yaml.safe_dump(body, sort_keys=False))
    return path


class Services:
    """A service for each cluster, in this process; a test decides when a round is. Close it."""

    def __init__(self, config: ClustersConfig, names: Iterable[str] | None = None) -> None:
        self.config = config
        self.by_name = {
            name: Service(config, name) for name in names or [one.name for one in config.clusters]
        }

    @classmethod
    def of(cls, path: Path) -> Services:
        return cls(load(path))

    def until(self, done: Callable[[], bool], *, what: str, deadline_s: float = 60) -> None:
        """Rounds of all services, until `done`. Raises TimeoutError."""

        def round_and_look() -> bool:
            for service in self.by_name.values():
                service.round_safely()
            return done()

        wait_until(round_and_look, what=what, deadline_s=deadline_s, every_s=0.05)

    def until_applied(self, name: str, group: str, topic: str) -> None:
        """Until the group's position has been committed on `name`."""
        self.until(
            lambda: (row := self.row(name, group, topic)) is not None and row.changes,
            what=f"{group} committed on {name}",
        )

    def rounds(self, count: int) -> None:
        for _ in range(count):
            for service in self.by_name.values():
                service.round()

    def decided(self, name: str, group: str, topic: str, partition: int = 0) -> bool:
        """The committer of `name` has read the partition and looked at the group."""
        row = self.row(name, group, topic, partition)
        return row is not None and Refusal.NOT_INDEXED not in row.refusals

    def row(self, name: str, group: str, topic: str, partition: int = 0) -> Any:
        """The last decision of the committer of `name`; None: none yet."""
        return self.by_name[name].committer.rows.get((group, topic, partition))

    def close(self) -> None:
        for service in self.by_name.values():
            service.close()

    def __enter__(self) -> Services:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Timed = tuple[int, bytes]  # timestamp, value


def values(first: int, count: int, *, name: str = "a") -> list[Timed]:
    """Records of the last hour, ten a second: a0, a1, …"""
    now = time.time_ns() // 1_000_000 - 3_600_000
    return [(now + at * 100, f"{name}{at}".encode()) for at in range(first, first + count)]


def produce_at(bootstrap: str, topic: str, records: Iterable[Timed], *, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for timestamp, value in records:
        producer.produce(topic, value, key=value, partition=partition, timestamp=timestamp)
        producer.poll(0)
    assert producer.flush(ANSWER_S_MAX) == 0


class PlainLink:
    """From `source` to `target` at the level whose bit is `bit`. Close it."""

    def __init__(
        self,
        source: tuple[str, str],
        target: str,
        *,
        bit: int = 1,
        topics: Mapping[str, str] | None = None,
    ) -> None:
        self.name, address = source
        self.flags = Flags(bit)
        self.topics = topics or {}  # names of the target, where they differ
        settings = {"bootstrap.servers": address, "group.id": "keyway-plain-link"}
        self._consumer = Consumer(
            {
                **settings,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
            }
        )
        self._producer = Producer({"bootstrap.servers": target, "enable.idempotence": True})
        self._positions: dict[tuple[str, int], int] = {}
        self._admin = AdminClient({"bootstrap.servers": address})
        self._topic_id = ""  # of the topic that is copied

    def copy(self, topic: str, partition: int = 0, *, records_max: int = 10**9) -> int:
        """Copies the records that were not copied yet; returns their number."""
        described = self._admin.describe_topics(TopicCollection([topic]))[topic]
        self._topic_id = as_in_headers(str(described.result(ANSWER_S_MAX).topic_id))
        at = self._positions.get((topic, partition), 0)
        self._consumer.assign([TopicPartition(topic, partition, at)])
        copied = 0
        while copied < records_max:
            message = self._consumer.poll(ANSWER_S_MAX)
            assert message is not None, f"no answer within {ANSWER_S_MAX} s"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                break
            offset = message.offset()
            assert offset is not None
            self._positions[topic, partition] = offset + 1
            copied += self._pass_on(message, topic, partition, offset)
        assert self._producer.flush(ANSWER_S_MAX) == 0
        return copied

    def _pass_on(self, message: Any, topic: str, partition: int, offset: int) -> bool:
        _, timestamp = message.timestamp()
        stood = Stood(topic, timestamp, message.key(), message.value())
        headers = message.headers() or []
        found = judge(headers, stood).copy
        if found is not None and found.flags & self.flags:
            return False
        origin = Origin(ClusterName(self.name), topic, partition, offset, self._topic_id)
        flags = self.flags
        if found is not None:
            origin, flags = found.origin, Flags(found.flags | flags)
        kept = [(name, value) for name, value in headers if name != COPY_HEADER]
        self._producer.produce(
            self.topics.get(topic, topic),
            message.value(),
            key=message.key(),
            partition=partition,
            timestamp=timestamp,
            headers=[*kept, (COPY_HEADER, encode(Copy(flags, origin), stood))],
        )
        self._producer.poll(0)
        return True

    def skip(self, topic: str, partition: int, position: int) -> None:
        self._positions[topic, partition] = position

    def close(self) -> None:
        self._consumer.close()


def commit(
    bootstrap: str,
    group: str,
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    metadata: str = "",
) -> None:
    """As a stock consumer that is no member of the group."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    places = [TopicPartition(topic, partition, offset, metadata)]

    def made() -> bool:
        """False: the broker has just created the topic of commits."""
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                raise
            return False
        return True

    try:
        wait_until(made, what=f"{group} committed", deadline_s=ANSWER_S_MAX)
    finally:
        consumer.close()


def read_group(
    bootstrap: str,
    group: str,
    topics: Sequence[str],
    count: int,
    *,
    leave: bool = True,
) -> list[tuple[int, int, bytes]]:
    """(partition, offset, value) of `count` records, committed; as a stock group of one member."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
        }
    )
    found: list[tuple[int, int, bytes]] = []
    try:
        consumer.subscribe(list(topics))
        while len(found) < count:
            message = consumer.poll(ANSWER_S_MAX)
            assert message is not None, f"{len(found)} of {count} records, and no more"
            assert message.error() is None, message.error()
            value, offset = message.value(), message.offset()
            assert value is not None
            assert offset is not None
            found.append((int(message.partition() or 0), offset, value))
        consumer.commit(asynchronous=False)
    finally:
        if leave:
            consumer.close()
    return found


def committed(config: ClustersConfig, name: str, group: str) -> dict[tuple[str, int], Committed]:
    return ClusterClient(config.cluster(name)).committed([group])[group]
