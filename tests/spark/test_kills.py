"""Exactly once through kills: the driver, Spark's JVM, a Python worker, the source's gateway, the
target's broker, under load. Nothing is lost or there twice, and every partition keeps the order of
its origin. Records in the registry's format arrive with their five bytes, and the target's registry
view has the schema under their id.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import yaml
from confluent_kafka.schema_registry import SchemaRegistryClient

from gateway.embedded.process import free_ports, kill_child, start_child, stop_child
from keyway.clusters.config import ClustersConfig, load
from spark.links.show import Links
from tests.rig.gateway_process import REPOSITORY
from tests.rig.kafka import create_topic
from tests.rig.patience import wait_until
from tests.rig.schema_registry.framed import KINDS, id_of
from tests.rig.schema_registry.site import HTTP, answers
from tests.rig.several_clusters import (
    Clusters,
    clusters,
    producer_of,
    read,
    send,
    send_by,
    wait_for,
)

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.timeout(3_600),
    pytest.mark.filterwarnings("ignore"),
]

KILLS = int(os.environ.get("KEYWAY_TESTS_KILLS", "1"))  # make campaign NAME=distribution: 50
SEED = int(os.environ.get("KEYWAY_TESTS_SEED", "1"))
PARTITIONS = 2
LOOK_EVERY_S = 0.5  # each look asks both clusters, with clients of its own
VICTIMS = ("driver", "worker", "gateway", "broker", "jvm")


class Run:
    """`keyway distribute run`, started again whenever it has ended, as a supervisor would."""

    def __init__(self, config: Path, cluster: str, log: Path) -> None:
        self._command = [sys.executable, "-m", "gateway.cli", "distribute", "run", str(config)]
        self._command += ["--cluster", cluster]
        self._log = log
        self.child: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def keep_up(self) -> None:
        if self.child is None or self.child.poll() is not None:
            self.starts += 1
            self.child = start_child(
                self._command, log=self._log, cwd=REPOSITORY, env=dict(os.environ)
            )

    def processes(self, name: str) -> list[psutil.Process]:
        assert self.child is not None
        below = psutil.Process(self.child.pid).children(recursive=True)
        return [process for process in below if name in process.name()]

    def kill(self, victim: str) -> None:
        assert self.child is not None
        if victim == "driver":
            kill_child(self.child)
            return
        found = self.processes("java" if victim == "jvm" else "python")
        if found:
            found[-1].kill()

    def stop(self) -> None:
        if self.child is not None:
            stop_child(self.child, grace_s=30)


@dataclass
class Views:
    """The registry view of each cluster: c1's is the primary's, c2 has no other registry."""

    registry: str
    urls: dict[str, str] = field(default_factory=dict)
    metrics_port: int = field(default_factory=lambda: free_ports(1))

    def prepare(self, pair: Clusters) -> None:
        ports = free_ports(2)
        sections = {
            "c1": {
                "subject_pattern": "acme-{topic}",
                "registry": {"url": self.registry, "reads": "rest"},
                "registry_view": {"port": ports},
            },
            "c2": {"subject_pattern": "{topic}.c2", "registry_view": {"port": ports + 1}},
        }
        pair.write(
            {"level": 1, "children": ["c1", "c2"]},
            of_cluster=sections,
            topics={"include": ["load", "framed-*"]},
            schemas={"primary": "c1"},
            messages={"metrics_port": self.metrics_port},
        )
        for number, name in enumerate(sections):
            self.urls[name] = f"http://127.0.0.1:{ports + number}"
            config = pair.gateways[name].config
            settings = yaml.safe_load(config.read_text())
            settings["registry_view"] = {"clusters_file": str(pair.path), "cluster": name}
            config.write_text(yaml.safe_dump(settings))

    def write(self, pair: Clusters, kind: str) -> bytes:
        """Writes a record on c1 by its view, and distributes its schemas; the record's value."""
        topic = f"framed-{kind}"
        wait_until(lambda: answers(self.urls["c1"]), what="c1's view", deadline_s=60)
        with SchemaRegistryClient({"url": self.urls["c1"]}) as client:
            value = KINDS[kind].write(client, topic)
        create_topic(pair.front("c1"), topic)
        send(pair.front("c1"), topic, [{"value": value}])
        return value

    def distribute(self, pair: Clusters, ids: Sequence[int]) -> None:
        """`keyway schemas run`, until c2's view has the ids."""
        command = [sys.executable, "-m", "gateway.cli", "schemas", "run", str(pair.path)]
        child = start_child(command, log=pair.directory / "schemas.log", cwd=REPOSITORY)
        try:
            wait_until(
                lambda: all(
                    HTTP.get(f"{self.urls['c2']}/schemas/ids/{schema_id}/versions").status_code
                    == 200
                    for schema_id in ids
                ),
                what=f"ids {ids} in c2's view",
                deadline_s=120,
            )
        finally:
            stop_child(child)

    def read(self, kind: str, value: bytes | None) -> object:
        """The datum of a record on c2, by its view."""
        assert value is not None
        with SchemaRegistryClient({"url": self.urls["c2"]}) as client:
            return KINDS[kind].read(client, f"framed-{kind}", value)


@pytest.fixture
def views(registry: str) -> Views:
    return Views(registry)


@pytest.fixture
def pair(tmp_path: Path, views: Views) -> Iterator[Clusters]:
    with clusters(("c1", "c2"), tmp_path, views.prepare) as two:
        yield two


def strike(victim: str, run: Run, pair: Clusters) -> None:
    if victim == "gateway":
        pair.gateways["c1"].kill()
        pair.gateways["c1"].start()
    elif victim == "broker":
        pair.kafkas["c2"].brokers[0].kill()
        pair.kafkas["c2"].restart()
    else:
        run.kill(victim)


def position(config: ClustersConfig) -> int:
    """How many records the link has accounted for, as any node can see."""
    (link,) = (row for row in Links(config).look() if row["link"] == "c1-level-1")
    rows = link["topics"].get("load", {}).get("partitions", {}).values()
    return sum(max(0, int(row["position"])) for row in rows)


def test_exactly_once_through_kills(pair: Clusters, views: Views, tmp_path: Path) -> None:
    draw = random.Random(SEED)
    config = load(pair.path)
    framed = {kind: views.write(pair, kind) for kind in KINDS}
    views.distribute(pair, [id_of(value) for value in framed.values()])
    create_topic(pair.kafkas["c1"].bootstrap_servers, "load", partitions=PARTITIONS)
    run = Run(pair.path, "c1", tmp_path / "run.log")
    over = threading.Event()
    sent = 0

    def write() -> None:
        nonlocal sent
        producer = producer_of(pair.kafkas["c1"].bootstrap_servers)
        while not over.wait(0.05):
            records = [
                {"key": b"%d" % (at % 50), "value": b"%d" % at, "partition": at % PARTITIONS}
                for at in range(sent, sent + 40)
            ]
            send_by(producer, "load", records)
            sent += 40

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        for number in range(KILLS):
            run.keep_up()
            before = position(config)

            def moved(since: int = before) -> bool:
                run.keep_up()
                return position(config) > since + 200

            wait_until(moved, what="the link copies", deadline_s=900, every_s=LOOK_EVERY_S)
            strike(VICTIMS[number % len(VICTIMS)], run, pair)
            over.wait(draw.random())
        over.set()
        writer.join(60)

        def caught_up() -> bool:
            run.keep_up()
            return position(config) >= sent

        wait_until(caught_up, what="the link has caught up", deadline_s=900, every_s=LOOK_EVERY_S)
        shown = (
            'keyway_distribution_link_running{link="c1-level-1"} 1.0',
            'keyway_distribution_lag_records{link="c1-level-1",topic="load"}',
        )

        def told() -> bool:  # a link that waits for a moment does not run
            metrics = HTTP.get(f"http://127.0.0.1:{views.metrics_port}/metrics").text
            return all(name in metrics for name in shown)

        wait_until(told, what="the figures of the link", deadline_s=120)
    finally:
        over.set()
        run.stop()
    found = wait_for(pair.kafkas["c2"].bootstrap_servers, "load", sent, PARTITIONS)
    for partition in range(PARTITIONS):
        values = [int(record.value or b"-1") for record in found if record.partition == partition]
        assert values == list(range(partition, sent, PARTITIONS)), "lost, twice or out of order"
    for kind, value in framed.items():
        (copied,) = wait_for(pair.front("c2"), f"framed-{kind}", 1)
        assert copied.value == value
        assert views.read(kind, copied.value) == KINDS[kind].datum
    assert run.starts > 1
    assert len(read(pair.kafkas["c1"].bootstrap_servers, "load", PARTITIONS)) == sent
