"""Topics and records of the stated size on both clusters: B has copies of A's records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from keyway.clusters.config import ClustersConfig, load
from keyway.clusters.core.copies import COPY_HEADER, Copy, Origin, Stood, encode
from keyway.clusters.core.tree import ClusterName, Flags
from offsets.client import ClusterClient
from tests.bench.scale.figures import Figure, Size
from tests.rig.offset_clusters import write_config
from tests.rig.patience import wait_until

TOPICS = "scale-"
RECORDS = 6  # of each partition
TOPICS_AT_ONCE = 50
STEP_S_MAX = 300.0
NOW_MS = 1_700_000_000_000


def measure(size: Size, clusters: dict[str, str]) -> Iterator[Figure]:
    with configured(clusters) as config:
        yield Figure("made", timed(lambda: _make_topics(size, config)), "s")
        yield Figure("records produced", timed(lambda: _produce(size, config)), "s")


@contextmanager
def configured(clusters: dict[str, str]) -> Iterator[ClustersConfig]:
    """With the default intervals."""
    with TemporaryDirectory() as folder:
        yield load(write_config(Path(folder), clusters, interval_ms=1_000, refresh_ms=10_000))


def timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def topic_of(number: int) -> str:
    return f"{TOPICS}{number}"


def _make_topics(size: Size, config: ClustersConfig) -> None:
    for cluster in config.clusters:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for first in range(0, size.topics, TOPICS_AT_ONCE):
            names = [
                topic_of(number)
                for number in range(first, min(first + TOPICS_AT_ONCE, size.topics))
            ]
            made = admin.create_topics(
                [NewTopic(name, size.partitions, 1) for name in names],
                operation_timeout=60,
                request_timeout=90,
            )
            for future in made.values():
                future.result(120)


def _produce(size: Size, config: ClustersConfig) -> None:
    """To A, and as a link would copy them to B: every topic is new, so offsets begin at 0."""
    sides = {
        name: Producer(
            {
                "bootstrap.servers": config.cluster(name).bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 50,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        for name in "AB"
    }
    names = [topic_of(number) for number in range(size.topics)]
    for name, producer in sides.items():
        known = ClusterClient(config.cluster(name))
        wait_until(
            lambda known=known: len(known.identities(names)) == len(names),  # type: ignore[misc]
            what="all topics known",
            deadline_s=STEP_S_MAX,
        )
        producer.list_topics(timeout=60)  # all at once: else each topic is asked for by itself
    found = ClusterClient(config.cluster("A")).identities(names)
    ids = {name: topic_id for name, (topic_id, _) in found.items()}
    for name in names:
        for partition in range(size.partitions):
            for offset in range(RECORDS):
                value, at_ms = b"%d" % offset, NOW_MS + offset
                origin = Origin(ClusterName("A"), name, partition, offset, ids[name])
                stood = Stood(name, at_ms, value, value)
                header: tuple[str, str | bytes | None] = (
                    COPY_HEADER,
                    encode(Copy(Flags(1), origin), stood),
                )
                for side, headers in (("A", []), ("B", [header])):
                    sides[side].produce(
                        name, value, value, partition, timestamp=at_ms, headers=headers
                    )
        for producer in sides.values():
            producer.poll(0)
    for producer in sides.values():
        assert producer.flush(STEP_S_MAX) == 0, "records were not taken in time"
