"""Offsets at their stated size: a round, a restart, memory. Each topic has one reader among the
groups, in the middle of every partition; B has copies of A's records.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from keyway.clusters.config import ClustersConfig, load
from keyway.clusters.core.copies import COPY_HEADER, Copy, Origin, Stood, encode
from keyway.clusters.core.tree import ClusterName, Flags
from offsets.client import ClusterClient
from offsets.service import Service
from tests.bench.scale.figures import Figure, Size, resident_mib
from tests.rig.offset_clusters import write_config
from tests.rig.patience import wait_until

RECORDS = 6  # of each partition
TOPICS_AT_ONCE = 50
STEP_S_MAX = 300.0
ROUND_S_MAX, RESTART_S_MAX = 2.0, 60.0
ROUNDS = 12  # with the default refresh_ms one of them looks at everything again
NOW_MS = 1_700_000_000_000


def measure(size: Size, clusters: dict[str, str]) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        path = write_config(Path(folder), clusters, interval_ms=1_000, refresh_ms=10_000)
        config = load(path)
        yield Figure("topics made", _timed(lambda: _make_topics(size, clusters)), "s")
        yield Figure("records produced", _timed(lambda: _produce(size, config)), "s")
        yield Figure("groups committed", _timed(lambda: _commit(size, config, 2, size.groups)), "s")
        yield from _rounds(size, config)


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def topic_of(number: int) -> str:
    return f"scale-{number}"


def _make_topics(size: Size, clusters: dict[str, str]) -> None:
    for address in clusters.values():
        admin = AdminClient({"bootstrap.servers": address})
        for first in range(0, size.topics, TOPICS_AT_ONCE):
            names = [topic_of(it) for it in range(first, min(first + TOPICS_AT_ONCE, size.topics))]
            made = admin.create_topics(
                [NewTopic(it, size.partitions, 1) for it in names],
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
    names = [topic_of(it) for it in range(size.topics)]
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


def _commit(size: Size, config: ClustersConfig, offset: int, groups: int) -> None:
    """The first `groups` groups."""
    client = ClusterClient(config.cluster("A"))
    wanted = {
        f"group-{it}": {
            (topic_of(it % size.topics), p): (offset, "") for p in range(size.partitions)
        }
        for it in range(groups)
    }
    for of_group in client.commit(wanted).values():
        assert not any(of_group.values()), of_group


def _applied(service: Service, offset: int) -> int:
    """How many places of B stand at `offset` by the committer's word."""
    applied = service.board.state.applied.values()
    return sum(it.offset == offset for it in applied)


def _rounds(size: Size, config: ClustersConfig) -> Iterator[Figure]:
    places = size.groups * size.partitions
    services = [Service(config, "A"), Service(config, "B")]
    before = resident_mib()
    try:
        took = _timed(lambda: _until(services, lambda: _applied(services[1], 2) == places))
        yield Figure(f"first start to {places:,} commits", took, "s")
        for name, service in zip("AB", services, strict=True):
            wall, cpu = _of_rounds(service)
            yield Figure(f"the longest round at rest on {name}", wall, "s", ROUND_S_MAX)
            yield Figure(f"CPU of a round at rest on {name}, mean", cpu, "s")
        busy = min(100, size.groups)
        _commit(size, config, 3, busy)
        wall, cpu = _of_rounds(services[0], 3)
        yield Figure(f"the longest round with {busy} groups' commits on A", wall, "s", ROUND_S_MAX)
        wall, cpu = _of_rounds(services[1], 3)
        yield Figure(f"the longest round with {busy} groups' commits on B", wall, "s", ROUND_S_MAX)
        yield Figure("memory of both services", resident_mib() - before, "MiB")
    finally:
        for service in services:
            service.close()
    _commit(size, config, 4, 1)
    began = time.monotonic()
    services = [Service(config, "A"), Service(config, "B")]
    try:
        _until(services, lambda: _applied(services[1], 4) == size.partitions)
        took = time.monotonic() - began
        yield Figure("restart of both to the first commit", took, "s", RESTART_S_MAX)
    finally:
        for service in services:
            service.close()


def _until(services: list[Service], done: Callable[[], bool]) -> None:
    def round_and_look() -> bool:
        for service in services:
            service.round_safely()
        return done()

    wait_until(round_and_look, what="committed on B", deadline_s=STEP_S_MAX, every_s=0.05)


def _of_rounds(service: Service, count: int = ROUNDS) -> tuple[float, float]:
    """The longest in seconds, and the CPU of one; at the default interval."""
    longest = cpu = 0.0
    for _ in range(count):
        began, spent = time.monotonic(), time.process_time()
        service.round_safely()
        cpu += time.process_time() - spent
        took = time.monotonic() - began
        longest = max(longest, took)
        time.sleep(max(0.0, service.settings.interval_ms / 1_000 - took))
    return longest, cpu / count
