"""The two groups of the fail-over demo: a stock consumer group and a Key-Shared group, one member
each, that note every record they process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import AcknowledgeType, Consumer, KafkaException, Message, ShareConsumer

COMMIT_RECORDS = 100  # a stock member commits after so many
POLL_S = 0.2
PAUSE_S = 0.05
PAUSED_COMMIT_S_MAX = 10.0
STOP_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Processed:
    """One record as delivered to a member. `visit`: the name of the group's stay on one cluster."""

    visit: str
    partition: int
    offset: int
    key: bytes
    number: int


@dataclass(slots=True)
class Group:
    """`start` on a cluster, `stop`, `start` on another; `processed` goes on growing. A member asks
    for no more records once it has processed `allowed` of them.
    """

    name: str
    shared: bool
    processed: list[Processed] = field(default_factory=list)
    allowed: int = 1_000_000
    _thread: threading.Thread | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _cluster_gone: bool = False
    _failed: list[BaseException] = field(default_factory=list)

    def start(self, visit: str, bootstrap: str, topic: str) -> None:
        self._stopping = threading.Event()
        self._cluster_gone = False
        self._thread = threading.Thread(
            target=self._work, args=(visit, bootstrap, topic, self._stopping), daemon=True
        )
        self._thread.start()

    def stop(self, *, cluster_gone: bool = False) -> None:
        """The member commits and leaves, if its cluster is still there. A member that went on
        trying would commit an old position once the cluster is back, later than the commits of
        the group elsewhere. Raises TimeoutError.
        """
        self._cluster_gone = self._cluster_gone or cluster_gone
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(STOP_S_MAX)
            if self._thread.is_alive():
                raise TimeoutError(f"{self.name}: its member has not ended in {STOP_S_MAX:.0f} s")

    def wait_for(self, count: int, within_s: float) -> None:
        """Raises TimeoutError."""
        self._wait(lambda: len(self.processed) >= count, f"{count} flights", within_s)

    def wait_for_all(self, numbers: Iterable[int], within_s: float) -> None:
        """Raises TimeoutError."""
        wanted = set(numbers)

        def there() -> bool:
            return wanted <= {it.number for it in list(self.processed)}

        self._wait(there, f"all {len(wanted)} flights", within_s)

    def _wait(self, done: Callable[[], bool], what: str, within_s: float) -> None:
        end = time.monotonic() + within_s
        while not done():
            if self._failed:
                raise KafkaException(str(self._failed[0]))
            if time.monotonic() > end:
                raise TimeoutError(f"{self.name}: {what}: not within {within_s:.0f} s")
            time.sleep(0.05)

    @property
    def repeated(self) -> int:
        return len(self.processed) - len({it.number for it in self.processed})

    @property
    def out_of_order(self) -> int:
        """Keys with a flight that came for the first time after a later one, on whatever cluster;
        and keys that went back by more than a move to another cluster explains.
        """
        latest: dict[bytes, int] = {}
        in_visit: dict[tuple[str, bytes], int] = {}
        seen: set[int] = set()
        wrong: set[bytes] = set()
        for it in self.processed:
            overtaken = it.number not in seen and it.number < latest.get(it.key, -1)
            if overtaken or it.number < in_visit.get((it.visit, it.key), -1):
                wrong.add(it.key)
            seen.add(it.number)
            latest[it.key] = max(it.number, latest.get(it.key, -1))
            in_visit[it.visit, it.key] = it.number
        return len(wrong)

    # ----------------------------------------------------------------------------------- members

    def _work(self, visit: str, bootstrap: str, topic: str, stopping: threading.Event) -> None:
        try:
            member = self._share if self.shared else self._stock
            member(visit, bootstrap, topic, stopping)
        except KafkaException as error:
            if not stopping.is_set():
                self._failed.append(error)

    def _stock(self, visit: str, bootstrap: str, topic: str, stopping: threading.Event) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": self.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "log_level": 2,
            }
        )
        consumer.subscribe([topic])
        since = 0
        while not stopping.is_set():
            if len(self.processed) >= self.allowed:
                if since:
                    consumer.commit(asynchronous=False)
                    since = 0
                stopping.wait(PAUSE_S)
                continue
            message = consumer.poll(POLL_S)
            if message is None or message.error() is not None:
                continue
            self._note(visit, message)
            since += 1
            if since >= COMMIT_RECORDS:
                consumer.commit(asynchronous=True)
                since = 0
        try:
            if since and not self._cluster_gone:
                consumer.commit(asynchronous=False)
        finally:
            consumer.close()

    def _share(self, visit: str, bootstrap: str, topic: str, stopping: threading.Event) -> None:
        consumer = ShareConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": self.name,
                "share.acknowledgement.mode": "explicit",
                "log_level": 2,
            }
        )
        consumer.subscribe([topic])
        while not stopping.is_set():
            if len(self.processed) >= self.allowed:
                # Else the lock of an accepted record ends, and it comes again.
                consumer.commit_sync(PAUSED_COMMIT_S_MAX)
                stopping.wait(PAUSE_S)
                continue
            for message in consumer.poll(timeout=POLL_S):
                if message.error() is not None:
                    continue
                self._note(visit, message)
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)
        consumer.close()

    def _note(self, visit: str, message: Message) -> None:
        headers: Any = message.headers() or ()
        number = next(int(value) for name, value in headers if name == "number")
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.processed.append(Processed(visit, partition, offset, message.key() or b"", number))
