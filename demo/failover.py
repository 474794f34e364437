"""`make demo-failover`: a cluster dies without warning, and two groups continue on the other one.

Links copy real flights from `east` to `west`, and `keyway offsets run` works for both clusters. A
stock consumer group and a Key-Shared group work on east until east is killed. Both continue on
west, which gets flights of its own meanwhile, and then back on east. The records delivered to each
group are compared with the records produced. The demo ends everything that it has started.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console
from rich.table import Table

from demo.failover_groups import Group, Processed
from demo.failover_member import ALL
from demo.flights import PARTITIONS, Flight, create_topic, read_flights
from demo.run import Ports, conclude, ports_from_environment, run_story, start_gateway, step
from demo.scene import Scene, stay
from gateway.embedded.jars import KAFKA_VERSION, build_dir, java
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import SetupError, kill_child, start_child, stop_child, wait_until
from keyway.clusters.config import ClustersConfig, load
from offsets.client import ClusterClient
from offsets.core.entries import Entry
from offsets.core.model import Stream
from offsets.state_topic import StateTopic

TOPIC = "flights"
STOCK, SHARED = "gate-desks", "trackers"
FLIGHTS = 8_000
WAIT_S_MAX = 600.0
CLUSTERS_FILE = "clusters.yaml"
SERVICES = ("distribute", "offsets")


@dataclass(slots=True)
class Side:
    """One cluster: its Kafka, its gateway, its link and its offsets service."""

    name: str
    ports: Ports
    kafka: KafkaCluster
    where: Path
    check: Callable[[], None]  # raises once its gateway has ended
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def front(self) -> str:
        return f"127.0.0.1:{self.ports.bootstrap}"

    def start_services(self, running: ExitStack, config: Path) -> None:
        for service in SERVICES:
            old = self.children.get(service)
            if old is not None and old.poll() is None:
                continue
            command = [sys.executable, "-m", "gateway.cli", service, "run", str(config)]
            child = start_child(
                [*command, "--cluster", self.name], log=self.where / f"{service}.log"
            )
            running.callback(stop_child, child, grace_s=30)
            self.children[service] = child

    def kill(self) -> None:
        """Kills the broker, the link and the offsets service without warning."""
        self.kafka.brokers[0].kill()
        for child in self.children.values():
            kill_child(child)


def run_demo(
    *, keep: bool = False, flights_max: int = FLIGHTS, directory: Path | None = None
) -> int:
    """The exit status: 0 if every check held, 1 if one failed, 2 if it could not run, 130 if
    interrupted.
    """
    where = directory or build_dir() / "demo-failover"
    return run_story(
        lambda console, running: _story(console, running, where, flights_max, keep=keep)
    )


def _story(
    console: Console, running: ExitStack, where: Path, flights_max: int, *, keep: bool
) -> int:
    started = time.monotonic()
    java()
    ports = ports_from_environment()
    shutil.rmtree(where, ignore_errors=True)
    sides: dict[str, Side] = {}
    for name, of_side in (("east", ports), ("west", Ports(ports.bootstrap + 100))):
        of_side.require_all_free()
        with step(console, f"{name}: Kafka {KAFKA_VERSION} and Keyway on {of_side.bootstrap}"):
            sides[name] = _side(running, name, of_side, where / name)
    config = _write_config(where, sides)
    east, west = sides["east"], sides["west"]
    flights = read_flights(flights_max=flights_max)
    first, second, third = _three_parts(flights)
    for side in sides.values():
        create_topic(side.front, TOPIC, PARTITIONS)
        side.start_services(running, config)
    with step(console, f"{len(first):,} flights on east, copied to west"):
        _produce(east.front, first, 0)
        _wait_for_records(west, len(first))
    groups = [Group(STOCK, shared=False), Group(SHARED, shared=True)]
    for group in groups:
        running.callback(group.kill)
    with step(console, "both groups work on east, then east is killed"):
        _work_on_east(load(config), sides, groups, len(first))
        east.kill()
    for group in groups:
        group.kill()
        group.allow(ALL)
    left = {group.name: len(first) - len({p.number for p in group.processed}) for group in groups}
    with step(console, "the plan, as west knows it"):
        plans = {group.name: _plan(config, group.name, "west") for group in groups}
        entries = _entries(load(config), "west")
    unknown = {group.name: _not_known(group.processed, entries[group.name]) for group in groups}
    with step(console, f"both groups continue on west, which gets {len(second):,} flights"):
        _produce(west.front, second, len(first))
        for group in groups:
            group.start("west", west.front, TOPIC)
            group.wait_for_all(range(len(first) + len(second)), WAIT_S_MAX)
    with step(console, "east comes back, and the groups with it"):
        east.kafka.restart()
        east.start_services(running, config)
        west.start_services(running, config)
        _wait_for_records(east, len(first) + len(second))
        for group in groups:
            group.stop()
        _wait_for_positions(load(config), east)
        _produce(east.front, third, len(first) + len(second))
        for group in groups:
            group.start("east again", east.front, TOPIC)
            group.wait_for_all(range(len(flights)), WAIT_S_MAX)
            group.stop()
    passed = _show(console, groups, left, plans, unknown, len(flights))
    conclude(console, passed, started, f"Logs and clusters.yaml: {where}")
    if keep:
        _stay(console, running, sides, groups[0], flights)
    return 0 if passed else 1


def _stay(
    console: Console,
    running: ExitStack,
    sides: dict[str, Side],
    stock: Group,
    flights: list[Flight],
) -> None:
    """The Key-Shared group gets the members that the other demos have; the stock group goes on as
    before.
    """
    east = sides["east"]
    stock.start("kept", east.front, TOPIC)
    places = "; ".join(f"{side.name}: {side.ports.places}" for side in sides.values())
    logs, number = east.where.parent, len(flights)
    scene = Scene(TOPIC, SHARED, flights, east.front, east.front, places, logs, number)
    stay(console, running, scene, east.check)
    stock.stop()


def _work_on_east(
    config: ClustersConfig, sides: dict[str, Side], groups: list[Group], flights: int
) -> None:
    """Returns when both groups are in the midst of their work, and west knows of some of it."""
    for group in groups:
        group.allow(flights // 4)
        group.start("east", sides["east"].front, TOPIC)
    for group in groups:
        group.wait_for(flights // 4, WAIT_S_MAX)
    _wait_for_told(config, sides["west"], groups)
    for group in groups:
        group.allow(flights * 3 // 4)
    for group in groups:
        group.wait_for(flights // 2, WAIT_S_MAX)


def _side(running: ExitStack, name: str, ports: Ports, where: Path) -> Side:
    kafka = KafkaCluster(1, ports=(ports.kafka,)).start()
    running.callback(kafka.stop)
    where.mkdir(parents=True)
    gateway = start_gateway(running, ports, where, clusters_file=where.parent / CLUSTERS_FILE)
    gateway.wait_until_ready()
    return Side(name, ports, kafka, where, gateway.check)


def _write_config(where: Path, sides: dict[str, Side]) -> Path:
    config = {
        "clusters": [
            {"name": side.name, "bootstrap_servers": side.front, "topic_pattern": "{topic}"}
            for side in sides.values()
        ],
        "tree": {"level": 1, "children": list(sides)},
        "groups": {"include": [STOCK, SHARED]},
        "messages": {"state_directory": str(where / "state"), "trigger_interval_ms": 200},
        "offsets": {
            "interval_ms": 200,
            "refresh_ms": 1_000,
            "empty_ms": 2_000,
            "state_directory": str(where / "state"),
        },
    }
    path = where / CLUSTERS_FILE
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def _three_parts(flights: list[Flight]) -> tuple[list[Flight], list[Flight], list[Flight]]:
    """Most flights come before the failure, some during it and some after it."""
    one, two = len(flights) * 7 // 10, len(flights) * 9 // 10
    return flights[:one], flights[one:two], flights[two:]


def _produce(front: str, flights: list[Flight], number: int) -> None:
    """Each flight has its number in a header: a copy on another cluster has another offset."""
    producer = Producer(
        {
            "bootstrap.servers": front,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "log_level": 3,
        }
    )
    for at, flight in enumerate(flights, number):
        key = flight.key or b"unknown"
        producer.produce(TOPIC, flight.value, key=key, headers=[("number", b"%d" % at)])
        producer.poll(0)
    if producer.flush(60):
        raise SetupError(f"{front} did not take all flights")


# ------------------------------------------------------------------------------------- waiting


def _wait_for_records(side: Side, count: int) -> None:
    """Returns when this many flights can be read there. Transactions leave markers between them."""
    consumer = Consumer(
        {
            "bootstrap.servers": side.front,
            "group.id": "keyway-demo-count",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 3,
        }
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    seen = 0

    def there() -> bool:
        nonlocal seen
        for child in side.children.values():
            if child.poll() is not None:
                raise SetupError(f"a service of {side.name} ended: see the logs in {side.where}")
        seen += sum(message.error() is None for message in consumer.consume(1_000, 0.1))
        return seen >= count

    try:
        wait_until(there, what=f"{count} flights on {side.name}", deadline_s=WAIT_S_MAX)
    finally:
        consumer.close()


def _entries(config: ClustersConfig, on: str) -> dict[str, dict[int, Entry]]:
    """The newest entries from elsewhere, by group and partition, as its topic has them."""
    client = ClusterClient(config.cluster(on))
    state_topic = StateTopic(client)
    found: dict[str, dict[int, Entry]] = {STOCK: {}, SHARED: {}}
    try:
        state_topic.read(for_s=60)
        for place in {place for place, _ in state_topic.state.entries}:
            entry = state_topic.state.newest(place, besides=on)
            if entry is not None and entry.group in found:
                found[entry.group][entry.partition] = entry
    finally:
        state_topic.close()
    return found


def _wait_for_told(config: ClustersConfig, side: Side, groups: list[Group]) -> None:
    """Returns when `side` knows everything that the groups have done so far. They do nothing
    meanwhile.
    """

    def there() -> bool:
        found = _entries(config, side.name)
        return not any(_not_known(list(group.processed), found[group.name]) for group in groups)

    wait_until(there, what=f"positions on {side.name}", deadline_s=WAIT_S_MAX, every_s=0.3)


def _wait_for_positions(config: ClustersConfig, side: Side) -> None:
    """Returns when the groups' positions on `side` are at the end of everything they have done
    elsewhere.
    """
    client = ClusterClient(config.cluster(side.name))
    ends = client.ends([(TOPIC, partition) for partition in range(PARTITIONS)])

    def there() -> bool:
        committed = client.committed([STOCK, SHARED])
        return all(
            (found := committed[group].get(place)) is not None and found.offset >= end
            for group in (STOCK, SHARED)
            for place, end in ends.items()
        )

    wait_until(there, what=f"positions back on {side.name}", deadline_s=WAIT_S_MAX, every_s=0.3)


def _plan(config: Path, group: str, to: str) -> int:
    """How many records come again, as `keyway offsets plan` says."""
    command = [sys.executable, "-m", "gateway.cli", "offsets", "plan", str(config), group]
    ended = subprocess.run(
        [*command, "--to", to, "-o", "json"], capture_output=True, text=True, timeout=WAIT_S_MAX
    )
    if ended.returncode:
        words = (ended.stderr or ended.stdout).strip().splitlines()[-1:]
        raise SetupError(f"keyway offsets plan {group}: {' '.join(words)}")
    return sum(int(row["replay"]) for row in json.loads(ended.stdout)["rows"])


def _not_known(processed: list[Processed], entries: dict[int, Entry]) -> int:
    """How many records the group had done when east died without a commit that west knew of."""
    streams = {partition: Stream("east", TOPIC, partition) for partition in entries}
    known = {
        partition: entry.progress.told_of([streams[partition]])  # whatever the topic's id
        for partition, entry in entries.items()
        if entry.progress is not None
    }
    return sum(
        record.partition not in known
        or not known[record.partition].has(streams[record.partition], record.offset)
        for record in processed
    )


# ------------------------------------------------------------------------------------- verdict


def _show(
    console: Console,
    groups: list[Group],
    left: dict[str, int],
    plans: dict[str, int],
    unknown: dict[str, int],
    flights: int,
) -> bool:
    """Prints the verdict. Returns whether it is the promised one."""
    table = Table("", *(group.name for group in groups))
    rows: dict[str, list[int]] = {
        "flights": [flights] * len(groups),
        "not done on east when it was killed": [left[group.name] for group in groups],
        "missed": [flights - len({p.number for p in group.processed}) for group in groups],
        "repeated": [group.repeated for group in groups],
        "  by the plan, at most": [plans[group.name] for group in groups],
        "  done on east after west last heard": [unknown[group.name] for group in groups],
        "keys out of order": [group.out_of_order for group in groups],
    }
    for name, figures in rows.items():
        table.add_row(name, *(f"{figure:,}" for figure in figures))
    console.print(table)
    return all(
        behind > 0 and missed == 0 and disorder == 0 and repeated <= said + since
        for behind, missed, disorder, repeated, said, since in zip(
            rows["not done on east when it was killed"],
            rows["missed"],
            rows["keys out of order"],
            rows["repeated"],
            rows["  by the plan, at most"],
            rows["  done on east after west last heard"],
            strict=True,
        )
    )


if __name__ == "__main__":
    sys.exit(run_demo(keep="--keep" in sys.argv[1:]))
