"""Offsets at their stated size: a round, a restart, memory. Each topic has one reader among the
groups, in the middle of every partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from keyway.clusters.config import ClustersConfig
from offsets.client import ClusterClient
from offsets.service import Service
from tests.bench.scale.figures import Figure, Size, resident_mib
from tests.bench.scale.topics import STEP_S_MAX, TOPICS, configured, timed, topic_of
from tests.rig.patience import wait_until

ROUND_S_MAX, RESTART_S_MAX = 2.0, 60.0
ROUNDS = 12  # with the default refresh_ms one of them looks at topics and logs
# Rounds without a pause, each of which looks at what else one of ten looks at: the work of half an
# hour.
ROUNDS_FOR_MEMORY = 180
GROWTH_MIB_MAX = 16.0


def measure(size: Size, clusters: dict[str, str]) -> Iterator[Figure]:
    with configured(clusters) as config:
        yield Figure("groups committed", timed(lambda: _commit(size, config, 2, size.groups)), "s")
        yield from _rounds(size, config)
        yield from _restart(size, config)


def _commit(size: Size, config: ClustersConfig, offset: int, groups: int) -> None:
    """The first `groups` groups."""
    client = ClusterClient(config.cluster("A"))
    wanted = {
        f"group-{number}": {
            (topic_of(number % size.topics), p): (offset, "") for p in range(size.partitions)
        }
        for number in range(groups)
    }
    for of_group in client.commit(wanted).values():
        assert not any(of_group.values()), of_group


def _applied(service: Service, offset: int) -> int:
    """How many places of B stand at `offset`, by the committer's word. Others may work there."""
    applied = service.state_topic.state.applied.items()
    return sum(
        commit.offset == offset for (_, topic, _), commit in applied if topic.startswith(TOPICS)
    )


def _rounds(size: Size, config: ClustersConfig) -> Iterator[Figure]:
    places = size.groups * size.partitions
    before = resident_mib()
    services = [Service(config, "A"), Service(config, "B")]
    try:
        took = timed(lambda: _until(services, lambda: _applied(services[1], 2) == places))
        yield Figure(f"first start to {places:,} commits", took, "s")
        for name, service in zip("AB", services, strict=True):
            wall, cpu = _of_rounds(service)
            yield Figure(f"the longest round at rest on {name}", wall, "s", ROUND_S_MAX)
            yield Figure(f"CPU of a round at rest on {name}, mean", cpu, "s")
        busy = min(100, size.groups)
        _commit(size, config, 3, busy)
        for name, service in zip("AB", services, strict=True):
            wall, cpu = _of_rounds(service, 3)
            named = f"with {busy} groups' commits on {name}"
            yield Figure(f"the longest round {named}", wall, "s", ROUND_S_MAX)
            yield Figure(f"CPU of a round {named}, mean of 3", cpu, "s")
        yield Figure("memory of both services", resident_mib() - before, "MiB")
    finally:
        for service in services:
            service.close()


def _restart(size: Size, config: ClustersConfig) -> Iterator[Figure]:
    _commit(size, config, 4, 1)
    began = time.monotonic()
    frequent = config.offsets.model_copy(update={"refresh_ms": 1})
    config = config.model_copy(update={"offsets": frequent})
    services = [Service(config, "A"), Service(config, "B")]
    try:
        _until(services, lambda: _applied(services[1], 4) == size.partitions)
        took = time.monotonic() - began
        yield Figure("restart of both to the first commit", took, "s", RESTART_S_MAX)
        for _ in range(ROUNDS):
            for service in services:
                service.round_safely()
        before = resident_mib()
        yield Figure("memory of the process", before, "MiB")
        for number in range(ROUNDS_FOR_MEMORY):
            _commit(size, config, 2 + number % 4, min(10, size.groups))
            for service in services:
                assert service.round_safely(), service.client.name
        more = resident_mib() - before
        yield Figure(f"more memory after {ROUNDS_FOR_MEMORY} rounds", more, "MiB", GROWTH_MIB_MAX)
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
