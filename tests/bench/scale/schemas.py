"""Schemas at their stated size: 50,000 and 200,000 versions at four targets that are written by
their logs. The targets hold all but a thousand when distribution starts; then one version after the
other is registered at the primary. Everything runs in this process, but for the lease.

A fifth of the versions share one id, as keys do, and a hundredth refer to one version.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from statistics import median
from typing import Any

from confluent_kafka import Producer

from keyway.clusters.core.names import compile_pattern
from keyway.clusters.core.subjects import pair_subjects
from keyway.kafka.compacted import CompactedTopic
from schema_dist.confirming import Confirming
from schema_dist.core.model import Reference, Schema, SchemaVersion, Version
from schema_dist.core.records import schema_record
from schema_dist.log_reader import LogReader
from schema_dist.log_writer import LogTarget
from schema_dist.metrics import Metrics
from schema_dist.parts import TargetParts
from schema_dist.service import Follower, News, follow
from schema_dist.state_topic import StateTopic
from schema_dist.target_sync import Allowed
from tests.bench.scale.figures import Figure, Size, resident_mib
from tests.rig.schema_registry.site import version

VERSIONS = (50_000, 200_000)
TARGETS = [f"t{number}" for number in range(4)]
LACKING = 1_000  # of the targets, when distribution starts
OF_SUBJECT = 5
CHANGES = 10
WAIT_S_MAX = 900.0
START_S_MAX, CHANGE_S_MAX, STALL_S_MAX = 300.0, 5.0, 1.0
POLL_INTERVAL_MS = 1_000  # the default
COMMON = Reference("Common", "acme-s0-value", Version(1))
NAMES = pair_subjects(compile_pattern("acme-{topic}"), compile_pattern("{topic}.b"))


def measure(_size: Size, clusters: dict[str, str]) -> Iterator[Figure]:
    for versions in VERSIONS:
        yield from asyncio.run(_measured(versions, clusters["A"], clusters["B"]))


def made(at: int) -> SchemaVersion:
    subject, number = f"acme-s{at // OF_SUBJECT}-value", at % OF_SUBJECT + 1
    if number == OF_SUBJECT:
        return version(subject, number, 1, Schema("AVRO", '"string"'))
    fields = ",".join(f'{{"name":"f{which}","type":"string"}}' for which in range(8))
    text = f'{{"type":"record","name":"R{at}","fields":[{fields}]}}'
    refers = (COMMON,) if at % 100 == 1 else ()
    return version(subject, number, at + 2, Schema("AVRO", text, refers))


def there(moved: SchemaVersion) -> SchemaVersion:
    used = tuple(replace(ref, subject="s0.b-value") for ref in moved.schema.references)
    subject = str(NAMES.there(moved.subject))
    return replace(moved, subject=subject, schema=replace(moved.schema, references=used))


def _write(address: str, topic: str, versions: Iterable[SchemaVersion]) -> None:
    CompactedTopic({"bootstrap.servers": address}, topic).ensure()
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "log_level": 2})
    for held in versions:
        key, value = schema_record(held, deleted=False)
        while True:
            try:
                producer.produce(topic, key=key, value=value, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


async def _measured(versions: int, primary: str, target: str) -> list[Figure]:
    source = f"_schemas-{versions}"
    logs = [f"{source}-{where}" for where in TARGETS]
    await asyncio.to_thread(_write, primary, source, map(made, range(versions)))
    for topic in logs:
        held = (there(made(number)) for number in range(versions - LACKING))
        await asyncio.to_thread(_write, target, topic, held)
    metrics = Metrics()

    def in_sync() -> list[float]:
        value = metrics.registry.get_sample_value
        return [value("keyway_schemas_in_sync", {"target": where}) or 0.0 for where in TARGETS]

    began, cpu, memory = time.monotonic(), time.process_time(), resident_mib()
    with ExitStack() as stack:
        followers = []
        for name, topic in zip(TARGETS, logs, strict=True):
            log = LogTarget({"bootstrap.servers": target}, topic, None)
            stack.callback(log.close)
            state = StateTopic({"bootstrap.servers": target}, f"{topic}-state")
            parts = TargetParts(name, log, state, NAMES, lambda _subject: True)
            followers.append(Follower(parts, "a", metrics, Allowed(Confirming(None))))
        reader = LogReader({"bootstrap.servers": primary}, source)
        stack.callback(reader.close)
        news = News()
        work: list[Any] = [follow(reader, news, metrics, POLL_INTERVAL_MS, TARGETS)]
        work += [follower.run(news) for follower in followers]
        async with _running(work), _stalls() as stalls:
            await _until(lambda: in_sync() == [versions] * len(TARGETS))
            start_s, start_cpu_s = time.monotonic() - began, time.process_time() - cpu
            longest_s = max(stalls)
            cpu, change_s = time.process_time(), []
            for at in range(versions, versions + CHANGES):
                begun = time.monotonic()
                await asyncio.to_thread(_write, primary, source, [made(at)])
                await _until(lambda at=at: in_sync() == [at + 1] * len(TARGETS))  # type: ignore[misc]
                change_s.append(time.monotonic() - begun)
            cpu_s = (time.process_time() - cpu) / CHANGES
    name = f"{versions:,} versions"
    return [
        Figure(f"{name}: start until {LACKING:,} more are at 4 targets", start_s, "s", START_S_MAX),
        Figure(f"{name}: CPU of the start", start_cpu_s, "s"),
        Figure(f"{name}: the event loop's longest stall meanwhile", longest_s, "s", STALL_S_MAX),
        Figure(f"{name}: a change is at 4 targets, median", median(change_s), "s"),
        Figure(f"{name}: a change is at 4 targets, longest", max(change_s), "s", CHANGE_S_MAX),
        Figure(f"{name}: CPU of a change", cpu_s, "s"),
        Figure(f"{name}: memory of all", resident_mib() - memory, "MiB"),
    ]


@asynccontextmanager
async def _running(work: Iterable[Any]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(job) for job in work]
        yield
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def _stalls() -> AsyncIterator[list[float]]:
    """How late the event loop is, again and again."""
    found = [0.0]

    async def look() -> None:
        while True:
            asked = time.monotonic()
            await asyncio.sleep(0.05)
            found.append(time.monotonic() - asked - 0.05)

    async with _running([look()]):
        yield found


async def _until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S_MAX
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {WAIT_S_MAX:.0f} s")
        await asyncio.sleep(0.02)
