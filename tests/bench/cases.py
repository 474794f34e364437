"""The measured cases: stock programs, each with the same settings on both sides.

Pass-through: Kafka's own ProducerPerformance and ConsumerPerformance, 200 B records, 4 partitions,
acks=all, batch.size 64 KiB, linger.ms 5. The rate of the producer is the tool's own, after its
warm-up records; that of the consumer is the tool's fetch rate, without the join of its group.

Keyed consumption: records of 100 B values over 5,000 keys on 4 partitions, produced once, read from
the start by one consumer of a fresh group each time, implicit acknowledgement, from the first batch
to the last. max.poll.records is the same for every share consumer (and the plain Java one), fetch
settings are the clients' defaults, the share group's settings Kafka's and Keyway's defaults.
Parallel Consumer, which orders by key in the client, reads the same topic from Kafka directly with
its own defaults (16 at once); no more than PARALLEL_RECORDS_MAX records, or it would take most of
the bench's time.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.embedded.kafka import KafkaCluster
from tests.bench.load import drawn, load
from tests.bench.parallel_consumer import parallel_programs
from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.clients.share_members import REPOSITORY
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic, set_group_config

KEYS = 5_000
PARTITIONS = 4
PLAIN_BYTES = 200
PARALLEL_RECORDS_MAX = 300_000
WARMUP_SHARE = 5  # of the producer's records, one in five is warm-up
# A JVM as users run it; the tests' quick-start options would hide the work of C2.
BENCH_JVM = ("-Xms256m", "-Xmx768m", "-XX:+UseG1GC")
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Bench:
    """A broker, a gateway in front of it, and the data."""

    kafka: KafkaCluster
    gateway: GatewayProcess
    programs: JavaPrograms
    records: int
    max_poll_records: int
    run_s_max: float
    directory: Path  # for the files of a part
    keyed_topic: str = "bench-keyed"
    plain_topic: str = "bench-plain"

    @property
    def parallel(self) -> JavaPrograms:
        """Parallel Consumer, fetched and compiled with the first use."""
        return parallel_programs()

    def bootstrap(self, *, through: bool) -> str:
        return self.gateway.bootstrap if through else self.kafka.bootstrap_servers


Case = Callable[[Bench], float]


def load_keyed(bench: Bench) -> None:
    """Writes the records of the keyed cases."""
    bootstrap = bench.kafka.bootstrap_servers
    create_topic(bootstrap, bench.keyed_topic, partitions=PARTITIONS)
    load(bootstrap, bench.keyed_topic, drawn(bench.records, KEYS))


def load_plain(bench: Bench) -> None:
    """Writes the records of consumer-perf."""
    create_topic(bench.kafka.bootstrap_servers, bench.plain_topic, partitions=PARTITIONS)
    run_producer_perf(bench, bench.bootstrap(through=False), bench.plain_topic, bench.records)


def producer_perf(*, through: bool) -> Case:
    def run(bench: Bench) -> float:
        topic = f"bench-produced-{next(_numbers)}"
        create_topic(bench.kafka.bootstrap_servers, topic, partitions=PARTITIONS)
        said = run_producer_perf(bench, bench.bootstrap(through=through), topic, bench.records)
        return float(said.split(" records/sec")[0].split(",")[-1].strip().split()[-1])

    return run


def run_producer_perf(
    bench: Bench, bootstrap: str, topic: str, records: int, *options: str, per_second: int = -1
) -> str:
    """Its last line: rate and latencies. `options`: of the client."""
    output = finish(
        bench,
        bench.programs.command(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--bootstrap-server", bootstrap, "--topic", topic),
            *("--num-records", str(records), "--record-size", str(PLAIN_BYTES)),
            *("--warmup-records", str(records // WARMUP_SHARE), "--throughput", str(per_second)),
            *options,
            *("--command-property", "acks=all", "batch.size=65536", "linger.ms=5"),
            options=BENCH_JVM,
        ),
    )
    return output.strip().splitlines()[-1]


def consumer_perf(*, through: bool) -> Case:
    def run(bench: Bench) -> float:
        output = finish(
            bench,
            bench.programs.command(
                "org.apache.kafka.tools.ConsumerPerformance",
                *("--bootstrap-server", bench.bootstrap(through=through)),
                *("--topic", bench.plain_topic, "--num-records", str(bench.records)),
                *("--timeout", "30000", "--hide-header"),
                options=BENCH_JVM,
            ),
        )
        fields = output.strip().splitlines()[-1].split(",")
        assert int(fields[4]) >= bench.records, output
        return float(fields[9])  # fetch.nMsg.sec

    return run


def keyed(client: str, kind: str, *, through: bool) -> Case:
    """`client`: librdkafka or java; `kind`: share or plain."""

    def run(bench: Bench) -> float:
        group = f"bench-{next(_numbers)}-{uuid.uuid4().hex[:6]}"
        if kind == "share" and not through:
            earliest = {"share.auto.offset.reset": "earliest"}
            set_group_config(bench.kafka.bootstrap_servers, group, earliest)
        arguments = [
            *(kind, bench.bootstrap(through=through), group, bench.keyed_topic),
            *(str(bench.records), str(int(bench.run_s_max))),
            f"max.poll.records={bench.max_poll_records}",
        ]
        if client == "java":
            command = bench.programs.command("ConsumeBench", *arguments, options=BENCH_JVM)
        else:
            command = [sys.executable, "-m", "tests.bench.librdkafka_consume", *arguments]
        return rate(finish(bench, command), bench.records)

    return run


def keyed_parallel(batch: int) -> Case:
    """Parallel Consumer with `batch` records at most per call of its user function."""

    def run(bench: Bench) -> float:
        records = min(bench.records, PARALLEL_RECORDS_MAX)
        command = bench.parallel.command(
            "ParallelBench",
            *(str(batch), bench.kafka.bootstrap_servers, f"bench-parallel-{next(_numbers)}"),
            *(bench.keyed_topic, str(records), str(int(bench.run_s_max))),
            f"max.poll.records={bench.max_poll_records}",
            options=BENCH_JVM,
        )
        return rate(finish(bench, command), records)

    return run


def rate(output: str, wanted: int) -> float:
    """Records per second of "records N seconds S ...". Raises AssertionError if some are
    missing.
    """
    words = output.strip().splitlines()[-1].split()
    count, seconds = int(words[1]), float(words[3])
    assert count >= wanted, f"only {count:,} of {wanted:,} records before the run's time was up"
    return count / seconds


def finish(bench: Bench, command: list[str]) -> str:
    """Runs a client program to its end; its standard output. Raises AssertionError."""
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=bench.run_s_max + 60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), done.stderr
    return done.stdout


PASS_THROUGH: dict[str, Case] = {
    "producer-perf: direct": producer_perf(through=False),
    "producer-perf: Keyway": producer_perf(through=True),
    "consumer-perf: direct": consumer_perf(through=False),
    "consumer-perf: Keyway": consumer_perf(through=True),
}
CLIENTS = ("librdkafka", "java")
PARALLEL = {f"keyed parallel consumer: batch {batch}": batch for batch in (1, 50)}
KEYED: dict[str, Case] = {
    **{
        f"keyed {client}: {name}": keyed(client, kind, through=through)
        for client in CLIENTS
        for name, kind, through in (
            ("Keyway", "share", True),
            ("Kafka share group", "share", False),
            ("plain consumer", "plain", False),
        )
    },
    **{name: keyed_parallel(batch) for name, batch in PARALLEL.items()},
}
CASES = PASS_THROUGH | KEYED
# The other side of each comparison.
PAIRS: dict[str, tuple[str, ...]] = {
    "producer-perf: Keyway": ("producer-perf: direct",),
    "consumer-perf: Keyway": ("consumer-perf: direct",),
    **{
        f"keyed {client}: Keyway": (
            f"keyed {client}: Kafka share group",
            f"keyed {client}: plain consumer",
            *PARALLEL,
        )
        for client in CLIENTS
    },
}


def goes_through(name: str) -> bool:
    """Whether a case is served by the gateway."""
    return name.endswith(": Keyway")
