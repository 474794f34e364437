"""What a repartition costs: `python -m tests.bench.repartition [--seconds N] [--rounds N]
[--records N]`.

Latency: one keyed stream through one Key-Shared group, the same clients throughout: at rest, and
while its topic grows from 4 to 8 partitions; for all keys, those that stay in their partition and
those that move. N seconds at rest, and as many of the phase `open`.

Idle: a node with a repartition that is over, beside one that never had any, the same clients in
turns (beside.py).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Producer
from redis import Redis

from gateway.core.repartition.partitioners import Partitioner, partition_of
from gateway.core.repartition.record import Pace, Phase, Repartition, to_text
from gateway.core.wire.apis import ApiKey
from gateway.embedded.kafka import TUNED_JVM, KafkaCluster
from gateway.embedded.redis import EmbeddedRedis
from gateway.repartition.table import KEY
from tests.bench import beside
from tests.bench.cases import Bench, load_keyed, load_plain
from tests.rig.clients.java_programs import compile_programs
from tests.rig.clients.share_lines import Delivery
from tests.rig.clients.share_members import ShareHost, deliveries_of
from tests.rig.clients.wire_client import WireClient
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic
from tests.rig.meanwhile import meanwhile
from tests.rig.repartitions import repartition, status, wait_for_phase

BEFORE, AFTER = 4, 8
KEYS, PER_S = 200, 200
BAR = 2.0  # of the p99 at rest
GROUPS = [{"match": "*", "auto_offset_reset": "earliest"}]


@contextmanager
def stream(bootstrap: str, topic: str) -> Iterator[None]:
    """Records whose value is when they were sent, on the monotonic clock in ns."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 1,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "topic.metadata.refresh.interval.ms": 500,
        }
    )

    def work(over: threading.Event) -> None:
        at = 0
        while not over.wait(1 / PER_S):
            value = b"%d" % time.monotonic_ns()
            producer.produce(topic, key=b"key-%d" % (at % KEYS), value=value)
            producer.poll(0)
            at += 1

    try:
        with meanwhile(work):
            yield
    finally:
        producer.flush(60)


def latency(kafka: KafkaCluster, directory: Path, seconds: int) -> dict[str, list[float]]:
    """Ages in ms when a member had the record, by part of the run."""
    topic = f"bench-grows-{time.time_ns()}"
    create_topic(kafka.bootstrap_servers, topic, partitions=BEFORE)
    pace = {"adoption_timeout_ms": 2_000, "delivery_timeout_ms": seconds * 1_000}
    marks: dict[str, int] = {}
    with (
        GatewayProcess(directory, kafka.bootstrap_servers, groups=GROUPS, repartition=pace) as node,
        ShareHost.librdkafka() as host,
        stream(node.bootstrap, topic),
    ):
        members = [host.member(node.bootstrap, "bench", [topic]) for _ in range(2)]
        for member in members:
            member.begin_consume(20 * seconds + 120)
        time.sleep(2 + seconds / 4)  # until they are at the end: a time is what is measured here
        marks["rest"] = time.monotonic_ns()
        time.sleep(seconds)
        marks["grow"] = time.monotonic_ns()
        repartition(node, topic, partitions=AFTER, execute=True)
        wait_for_phase(node, topic, "finished", within_s=10 * seconds + 60)
        marks["after"] = time.monotonic_ns()
        assert status(node, topic)["late_records"] == 0
        deliveries = deliveries_of(members)
    return parted(deliveries, marks)


def parted(deliveries: list[Delivery], marks: dict[str, int]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for each in deliveries:
        sent_ns, key = int(each.value or b"0"), each.key or b""
        moves = partition_of(Partitioner.MURMUR2, key, AFTER) >= BEFORE
        age_ms = (each.at_ns - sent_ns) / 1e6
        if marks["rest"] <= sent_ns < marks["grow"]:
            found.setdefault("at rest", []).append(age_ms)
        elif marks["grow"] <= sent_ns < marks["after"]:
            found.setdefault("while it grows", []).append(age_ms)
            kind = "move" if moves else "stay"
            found.setdefault(f"while it grows, keys that {kind}", []).append(age_ms)
    return found


def told(ages: dict[str, list[float]]) -> dict[str, float]:
    """The p99 of each part over that at rest."""
    p99 = {name: sorted(some)[int(0.99 * (len(some) - 1))] for name, some in ages.items()}
    ratios = {name: p99[name] / p99["at rest"] for name in p99}
    for name, some in sorted(ages.items()):
        middle = sorted(some)[len(some) // 2]
        line = f"{name}: {len(some)} records, p50 {middle:.1f} ms, p99 {p99[name]:.1f} ms"
        sys.stdout.write(f"{line}, {ratios[name]:.2f} of rest (bar {BAR})\n")
    return ratios


@contextmanager
def idle(kafka: KafkaCluster, directory: Path, records: int) -> Iterator[dict[str, Bench]]:
    """A node with a repartition that is over, and one without any."""
    grown = "bench-has-grown"
    create_topic(kafka.bootstrap_servers, grown, partitions=AFTER)
    with WireClient(kafka.bootstrap_servers) as client:
        (row,) = client.call(ApiKey.METADATA, 12, {"Topics": [{"Name": grown}]})["Topics"]
    over = Repartition(
        topic=grown,
        topic_id=row["TopicId"].hex(),
        before=BEFORE,
        after=AFTER,
        partitioner=None,
        pace=Pace(adoption_ms=0, settle_ms=0, late_ms=0),
        phase=Phase.FINISHED,
    )
    programs = compile_programs()
    with ExitStack() as stack:
        benches = {}
        for name in ("this", "other"):
            redis = stack.enter_context(EmbeddedRedis(directory / f"redis-{name}"))
            if name == "this":
                Redis.from_url(redis.url).hset(KEY, grown, to_text(over))
            node = stack.enter_context(
                GatewayProcess(
                    directory / name,
                    kafka.bootstrap_servers,
                    redis_url=redis.url,
                    groups=GROUPS,
                )
            )
            benches[name] = Bench(kafka, node, programs, records, 2_000, 300, directory)
        load_keyed(benches["this"])
        load_plain(benches["this"])
        yield benches


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.repartition", description=__doc__)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=400_000)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="keyway-bench-") as folder,
        KafkaCluster(1, jvm=TUNED_JVM, directory=Path(folder) / "kafka") as kafka,
    ):
        if options.seconds:
            told(latency(kafka, Path(folder) / "grows", options.seconds))
        if options.rounds:
            with idle(kafka, Path(folder), options.records) as benches:
                found = beside.measured(benches, options.rounds)
            beside.told(found, "one that never had a repartition")


if __name__ == "__main__":
    main()
