"""The system under attack: one broker, one Redis, one gateway, each a process of its own."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from redis import Redis

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from gateway.embedded.redis import EmbeddedRedis
from keyway.commit_metadata.core.metadata import decode
from tests.chaos.plan import Victim
from tests.rig.clients.share_lines import TopicPartitionOffset
from tests.rig.committed import committed
from tests.rig.gateway_process import GatewayProcess

# Locks and back-off short enough that records held at a crash come back within a round.
GROUP = {
    "match": "*",
    "auto_offset_reset": "earliest",
    "lock_duration_ms": 6_000,
    "deliveries_max": 100,
    "backoff_base_ms": 200,
    "backoff_max_ms": 1_000,
}


ANSWER_S_MAX = 30.0


class Site:
    """`kafka`: a running one of the caller's, which outlives the site; None: its own."""

    def __init__(
        self, directory: Path, commit_interval_ms: int, kafka: KafkaCluster | None = None
    ) -> None:
        self.kafka = kafka or KafkaCluster(1, share_groups=False, directory=directory / "kafka")
        self._own_kafka = None if kafka else self.kafka
        self.redis = EmbeddedRedis(directory / "redis", port=free_ports(1))
        self._copy = directory / "redis-copy"
        self.gateway = GatewayProcess(
            directory / "gateway",
            self.kafka.bootstrap_servers,
            groups=[GROUP],
            redis_url=self.redis.tcp_url,
            state={"commit_interval_ms": commit_interval_ms},
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._own_kafka or nullcontext(), self.redis, self.gateway:
            yield

    def kill(self, victim: Victim, *, flushed_alive: bool) -> None:
        match victim:
            case Victim.GATEWAY:
                self.gateway.kill()
            case Victim.REDIS | Victim.OLD_REDIS:
                self.redis.kill()
            case Victim.BROKER:
                self.kafka.brokers[0].kill()
            case Victim.FLUSH:
                if flushed_alive:
                    self._flush()
                self.gateway.kill()
                self._flush()
            case _:
                raise AssertionError(f"{victim} is not of the site")

    def start(self, victim: Victim) -> None:
        """Starts it without waiting until it is ready."""
        match victim:
            case Victim.GATEWAY | Victim.FLUSH:
                self.gateway.spawn()
            case Victim.REDIS:
                self.redis.start()
            case Victim.OLD_REDIS:
                self._age_redis()
                self.redis.start()
            case Victim.BROKER:
                self.kafka.brokers[0].start()
            case _:
                raise AssertionError(f"{victim} is not of the site")

    def wait_ready(self) -> None:
        """Raises SetupError, AssertionError."""
        self.kafka.wait_ready()
        self.gateway.wait_ready()

    def _flush(self) -> None:
        with Redis.from_url(self.redis.url) as client:
            client.flushall()

    def copy_redis(self) -> None:
        """Its files as they are, while it writes: a command that is cut off is left out when they
        are read again.
        """
        shutil.rmtree(self._copy, ignore_errors=True)
        self._copy.mkdir()
        for file in self._redis_files():
            if file.is_dir():
                shutil.copytree(file, self._copy / file.name)
            else:
                shutil.copy(file, self._copy / file.name)

    def _age_redis(self) -> None:
        for file in self._redis_files():
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        shutil.copytree(self._copy, self.redis.directory, dirs_exist_ok=True)

    def _redis_files(self) -> list[Path]:
        """Append-only files, or the folder of them that newer versions have."""
        found = [*self.redis.directory.glob("*.aof"), *self.redis.directory.glob("appendonlydir")]
        assert found, "no append-only file"
        return found

    def positions(self, group: str, topic: str, partitions: int) -> list[int]:
        """The committed offset of each partition as Kafka has it; -1: none."""
        return [self._committed(group, topic, at)[0] for at in range(partitions)]

    def _committed(self, group: str, topic: str, partition: int) -> tuple[int, str]:
        """Asked again while a broker that has just come back loads its groups."""
        deadline = time.monotonic() + ANSWER_S_MAX
        while True:
            try:
                return committed(self.kafka, group, topic, partition)
            except (AssertionError, OSError):
                if time.monotonic() > deadline:
                    raise
            pause_ms(200)

    def committed_records(
        self, group: str, topic: str, partitions: int
    ) -> frozenset[TopicPartitionOffset]:
        """Every offset that is settled by Kafka's present cursor and bitmap."""
        found = set()
        for partition in range(partitions):
            cursor, metadata = self._committed(group, topic, partition)
            found |= {(topic, partition, offset) for offset in range(cursor)}
            for first, last in (decode(cursor, metadata) or []) if metadata else []:
                found |= {(topic, partition, offset) for offset in range(first, last + 1)}
        return frozenset(found)

    def keep_logs(self, folder: Path) -> None:
        """Copies the output of the three since the start of the run."""
        folder.mkdir(parents=True, exist_ok=True)
        broker = self.kafka.brokers[0].directory
        for source in (
            self.gateway.log,
            self.gateway.config,
            self.redis.directory / "redis.log",
            broker / "server.log",
        ):
            if source.exists():
                shutil.copy(source, folder / source.name)

    def log_bytes(self) -> int:
        return self.gateway.log.stat().st_size if self.gateway.log.exists() else 0

    def bugs_logged(self, since_byte: int) -> list[str]:
        """Lines of the gateway's log that tell of a bug, from a position on."""
        with self.gateway.log.open("rb") as log:
            log.seek(since_byte)
            text = log.read().decode(errors="replace")
        return [line for line in text.splitlines() if "Traceback" in line]


def pause_ms(duration_ms: float) -> None:
    """The plan's own pauses: they are the experiment, nothing waits for anything here."""
    time.sleep(duration_ms / 1000)
