"""The short forms of the campaigns between two clusters: they run, and are not judged by bars."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.embedded.process import start_child
from tests.bench import links
from tests.bench.scale import link, offsets, topics
from tests.bench.scale.figures import Size
from tests.integration.offsets.conftest import Addresses
from tests.rig.offset_clusters import write_config

pytestmark = [pytest.mark.deep, pytest.mark.integration]

# Copies a topic as a link or MirrorMaker 2 would, until it is ended.
COPIER = """
import sys
from confluent_kafka import Consumer, Producer, TopicPartition
source, target, topic, partitions = sys.argv[1:]
reader = Consumer({"bootstrap.servers": source, "group.id": "copier"})
writer = Producer({"bootstrap.servers": target})
reader.assign([TopicPartition(topic, partition, 0) for partition in range(int(partitions))])
while True:
    for record in reader.consume(100, 0.1):
        writer.produce(topic, record.value(), record.key(), record.partition())
    writer.flush()
"""


def test_distribution_scale(pair: Addresses, monkeypatch: pytest.MonkeyPatch) -> None:
    def quick_config(folder: Path, clusters: Addresses, **_: int) -> Path:
        path = write_config(folder, clusters, interval_ms=100, refresh_ms=1_000)
        with path.open("a") as file:  # Other tests have topics there, too.
            file.write("topics: {include: [scale-*]}\n")
        return path

    monkeypatch.setattr(link, "LOOKS", 1)
    monkeypatch.setattr(link, "LOOKS_FOR_MEMORY", 2)
    monkeypatch.setattr(offsets, "ROUNDS", 1)
    monkeypatch.setattr(offsets, "ROUNDS_FOR_MEMORY", 4)
    monkeypatch.setattr(topics, "write_config", quick_config)
    size = Size(topics=2, partitions=2, groups=2)
    figures = [*topics.measure(size, pair), *offsets.measure(size, pair)]
    assert figures[-1].name == "more memory after 4 rounds"
    figures = list(link.measure(size, pair))
    assert figures[-1].name == "more memory after 2 looks"


def test_bench_links(
    pair: Addresses,
    tmp_path: Path,
    fresh_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fronts = (pair["A"], pair["B"])
    name = fresh_name("copier")

    def copier(topic: str) -> subprocess.Popen[bytes]:
        words = [*fronts, topic, str(links.PARTITIONS)]
        return start_child([sys.executable, "-c", COPIER, *words], log=tmp_path / "log")

    said: list[str] = []
    monkeypatch.setattr(links.console, "print", said.append)
    links.copied({name: copier}, fronts, records=200, rounds=1)
    assert said[0].startswith(f"{name}: ")
