"""`make campaign NAME=bench-links`: one link beside MirrorMaker 2, the same copy.

Two Kafkas, each behind a gateway; RECORDS of 200 B with a header over 4 partitions, loaded before.
Each copies all of them to a topic of its own: MirrorMaker 2 4.3.1 with tasks.max 2, and one link,
exactly once, on local[2]. Both read and write through the gateways. Seconds are from the first
record that is visible on the target to the last, so that the start of a JVM is not in them; the CPU
time is of the whole process tree, its start included. Memory is that of the tree, the most within
the second quarter of the records and within the last: a flat one is as large at the end. Rounds are
interleaved.

With `--lag SECONDS` it measures instead how late a record is on the target (link_lag.py). With
`--sealed` the link's seals are HMACs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from secrets import token_hex

import psutil
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console

from gateway.embedded.jars import KAFKA_VERSION, build_dir, fetched, java
from gateway.embedded.kafka import TUNED_JVM, KafkaCluster
from gateway.embedded.process import start_child, stop_child
from tests.bench import link_lag
from tests.rig.gateway_process import REPOSITORY, GatewayProcess
from tests.rig.kafka import create_topic

PARTITIONS = 4
VALUE_BYTES = 200
COPIED_S_MAX = 1_200.0
BAR = 1.2  # times MirrorMaker 2
MIRROR_MAKER, LINK = "MirrorMaker 2", "link"
MEMORY_EVERY_S = 0.5
SEAL = "KEYWAY_BENCH_SEAL"
TRIGGER_INTERVAL_MS = 1_000  # docs/replicate-clusters.md; the default
Copier = Callable[[str], subprocess.Popen[bytes]]  # of a topic
console = Console(highlight=False)

MIRROR_IVY = f"""<ivy-module version="2.0">
  <info organisation="keyway" module="mirror-libs"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="connect-mirror" rev="{KAFKA_VERSION}" conf="default"/>
    <dependency org="org.apache.kafka" name="connect-runtime" rev="{KAFKA_VERSION}" conf="default"/>
  </dependencies>
</ivy-module>
"""


def load(front: str, topic: str, records: int) -> None:
    producer = Producer(
        {"bootstrap.servers": front, "linger.ms": 20, "queue.buffering.max.messages": 0}
    )
    value = b"v" * VALUE_BYTES
    headers: list[tuple[str, str | bytes | None]] = [("trace", b"0123456789abcdef")]
    for at in range(records):
        key = b"%d" % (at % 10_000)
        while True:
            try:
                producer.produce(topic, value, key, at % PARTITIONS, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(300) == 0


def visible(consumer: Consumer, topic: str) -> int:
    """Committed offsets in all partitions: records, and a marker for every transaction."""
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    try:
        return sum(consumer.get_watermark_offsets(place, 10)[1] for place in places)
    except Exception:  # noqa: BLE001 - the topic is not there yet
        return 0


def counted(front: str, topic: str) -> int:
    """Records of a topic, read to its end."""
    settings = {"bootstrap.servers": front, "group.id": "bench", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found, left = 0, PARTITIONS
    while left:
        for message in consumer.consume(10_000, 10):
            if message.error() is None:
                found += 1
            else:
                left -= 1
    consumer.close()
    return found


def tree_cpu_s(process: psutil.Process) -> float:
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def tree_bytes(process: psutil.Process) -> int:
    """Resident memory of the whole tree. Memory that processes share counts for each of them."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += one.memory_info().rss
    return total


@dataclass(slots=True)
class Memory:
    """The most within each quarter of the records, in bytes."""

    quarters: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    looked_at: float = 0.0

    def look(self, process: psutil.Process, share: float) -> None:
        if time.monotonic() - self.looked_at >= MEMORY_EVERY_S:
            self.looked_at = time.monotonic()
            quarter = min(3, int(share * 4))
            self.quarters[quarter] = max(self.quarters[quarter], tree_bytes(process))


@dataclass(frozen=True, slots=True)
class Figure:
    rate: float  # records/s
    cpu_s: float
    memory: list[int]  # bytes, by quarter

    def __str__(self) -> str:
        early, late = self.memory[1] / 2**20, self.memory[3] / 2**20
        return (
            f"{self.rate:,.0f} records/s, {self.cpu_s:.1f} CPU s,"
            f" {early:,.0f} MiB early and {late:,.0f} MiB late"
        )


def timed(
    start: Callable[[], subprocess.Popen[bytes]], front: str, topic: str, records: int
) -> Figure:
    """Of one copy. Raises AssertionError if it does not copy each once."""
    consumer = Consumer({"bootstrap.servers": front, "group.id": "bench-watch"})
    child = start()
    process = psutil.Process(child.pid)
    first = last = 0.0
    deadline = time.monotonic() + COPIED_S_MAX
    seen = at_first = 0
    memory = Memory()
    try:
        while seen < records:
            assert child.poll() is None, "it ended"
            assert time.monotonic() < deadline, f"{seen} of {records}"
            seen = visible(consumer, topic)
            if seen and not first:
                first, at_first = time.monotonic(), seen
            memory.look(process, seen / records)
            time.sleep(0.05)
        last = time.monotonic()
        cpu = tree_cpu_s(process)
    finally:
        stop_child(child, grace_s=30)
        consumer.close()
    found = counted(front, topic)
    assert found == records, f"{found} of {records} records"
    return Figure((records - at_first) / max(last - first, 1e-9), cpu, memory.quarters)


def mirror_maker(
    libs: Path, where: Path, fronts: tuple[str, str], topic: str
) -> subprocess.Popen[bytes]:
    lines = {
        "clusters": "a,b",
        "a.bootstrap.servers": fronts[0],
        "b.bootstrap.servers": fronts[1],
        "a->b.enabled": "true",
        "b->a.enabled": "false",
        "a->b.topics": topic,
        "tasks.max": "2",
        "replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "config.storage.replication.factor": "1",
        "a->b.emit.heartbeats.enabled": "false",
        "b->a.emit.heartbeats.enabled": "false",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "a.consumer.auto.offset.reset": "earliest",
    }
    path = where / "mm2.properties"
    path.write_text("\n".join(f"{name} = {value}" for name, value in lines.items()) + "\n")
    command = [java(), "-Xms256m", "-Xmx1g", "-cp", f"{libs}/*"]
    command += ["org.apache.kafka.connect.mirror.MirrorMaker", str(path), "--clusters", "b"]
    return start_child(command, log=where / "mm2.log")


def link(
    where: Path,
    fronts: tuple[str, str],
    topic: str,
    trigger_interval_ms: int = 0,
    *,
    seal: str = "",
) -> subprocess.Popen[bytes]:
    config = {
        "clusters": [
            {"name": name, "bootstrap_servers": front}
            for name, front in zip("ab", fronts, strict=True)
        ],
        "tree": {"level": 1, "children": ["a", "b"]},
        "topics": {"include": [topic]},
        "messages": {
            "state_directory": str(where / "state"),
            "trigger_interval_ms": trigger_interval_ms,
        },
        "seal_secret_env": [SEAL] if seal else [],
    }
    path = where / "clusters.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "gateway.cli", "distribute", "run", str(path)]
    command += ["--cluster", "a"]
    environment = {**os.environ, SEAL: seal}
    return start_child(command, log=where / "link.log", cwd=REPOSITORY, env=environment)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=[MIRROR_MAKER, LINK], help="one of the two alone")
    parser.add_argument(
        "--lag", type=float, metavar="SECONDS", help="the link's, at 5,000 a second"
    )
    parser.add_argument("--sealed", action="store_true", help="with a secret: HMAC, no checksums")
    given = parser.parse_args()
    seal = token_hex(32) if given.sealed else ""
    libs = fetched(
        build_dir() / "mirror" / "libs",
        MIRROR_IVY,
        first=f"connect-mirror-{KAFKA_VERSION}.jar",
        failed="MirrorMaker 2 could not be fetched (see {log})",
    )
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        with (
            KafkaCluster(1, jvm=TUNED_JVM) as a,
            KafkaCluster(1, jvm=TUNED_JVM) as b,
            GatewayProcess(where / "a", a.bootstrap_servers) as front_a,
            GatewayProcess(where / "b", b.bootstrap_servers) as front_b,
        ):
            fronts = (front_a.bootstrap, front_b.bootstrap)
            if given.lag:
                topic = "lag"
                for front in fronts:
                    create_topic(front, topic, partitions=PARTITIONS)
                child = link(where, fronts, topic, TRIGGER_INTERVAL_MS, seal=seal)
                try:
                    console.print(link_lag.measured(*fronts, topic, PARTITIONS, given.lag))
                finally:
                    stop_child(child, grace_s=30)
                return 0
            copiers: dict[str, Copier] = {
                MIRROR_MAKER: lambda topic: mirror_maker(libs, where, fronts, topic),
                LINK: lambda topic: link(where, fronts, topic, seal=seal),
            }
            chosen = {
                name: copier for name, copier in copiers.items() if given.only in (None, name)
            }
            copied(chosen, fronts, given.records, given.rounds)
    return 0


def copied(copiers: dict[str, Copier], fronts: tuple[str, str], records: int, rounds: int) -> None:
    """Each copies all records, in turns; prints the figures, and the ratio of the medians."""
    rates: dict[str, list[float]] = {name: [] for name in copiers}
    for number in range(rounds):
        for name, copier in copiers.items():
            topic = f"{name.split()[0].lower()}-{number}"
            for front in fronts:
                create_topic(front, topic, partitions=PARTITIONS)
            load(fronts[0], topic, records)
            figure = timed(partial(copier, topic), fronts[1], topic, records)
            rates[name].append(figure.rate)
            console.print(f"{name}: {figure}")
    if len(rates) > 1:
        ratio = statistics.median(rates[LINK]) / statistics.median(rates[MIRROR_MAKER])
        met = "met" if ratio >= BAR else "missed"
        console.print(f"link / MirrorMaker 2: {ratio:.2f} (bar {BAR}: {met})")


if __name__ == "__main__":
    sys.exit(main())
