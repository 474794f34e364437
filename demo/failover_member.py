"""One member of a group of the fail-over demo, in a process of its own: a stock consumer or a stock
share consumer. It reports every record it has processed, and leaves when it is told to.
"""

from __future__ import annotations

import ctypes
import signal
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from typing import Any

from confluent_kafka import AcknowledgeType, Consumer, KafkaException, Message, ShareConsumer

COMMIT_RECORDS = 100  # a stock member commits after so many
POLL_S = 0.2
PAUSE_S = 0.05
PAUSED_COMMIT_S_MAX = 10.0
ALL = 1_000_000  # more flights than there are

Record = tuple[int, int, bytes, int]  # partition, offset, key, number of the flight


class Allowed:
    """How many records a group may process, shared with its member."""

    def __init__(self, context: SpawnContext) -> None:
        # Without a lock: a member that is killed would leave it locked.
        self._value = context.RawValue(ctypes.c_long, ALL)

    def set(self, records: int) -> None:
        self._value.value = records

    def get(self) -> int:
        return int(self._value.value)


@dataclass(frozen=True, slots=True)
class Member:
    """`processed`: how many records its group has processed before it."""

    group: str
    shared: bool
    bootstrap: str
    topic: str
    processed: int


def run(member: Member, allowed: Allowed, told: Connection) -> None:
    """Sends lists of records, and the text of an error. Ends when anything is received."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent ends this one
    work = _Work(member, allowed, told)
    try:
        (work.share if member.shared else work.stock)()
    except KafkaException as error:
        told.send(str(error))


@dataclass(slots=True)
class _Work:
    member: Member
    allowed: Allowed
    told: Connection
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = self.member.processed

    @property
    def paused(self) -> bool:
        return self.count >= self.allowed.get()

    def stock(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.member.bootstrap,
                "group.id": self.member.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "log_level": 2,
            }
        )
        consumer.subscribe([self.member.topic])
        since = 0
        while not self.told.poll(PAUSE_S if self.paused else 0):
            message = None if self.paused else consumer.poll(POLL_S)
            if message is not None and message.error() is None:
                self._tell([message])
                since += 1
            if since >= COMMIT_RECORDS or (since and self.paused):
                consumer.commit(asynchronous=True)
                since = 0
        # Also what was committed before: nobody asks how that ended.
        reached = [
            partition
            for partition in consumer.position(consumer.assignment())
            if partition.offset >= 0  # else it has got nothing of it
        ]
        if reached:
            consumer.commit(offsets=reached, asynchronous=False)
        consumer.close()

    def share(self) -> None:
        consumer = ShareConsumer(
            {
                "bootstrap.servers": self.member.bootstrap,
                "group.id": self.member.group,
                "share.acknowledgement.mode": "explicit",
                "log_level": 2,
            }
        )
        consumer.subscribe([self.member.topic])
        while not self.told.poll(PAUSE_S if self.paused else 0):
            if self.paused:
                # Else the lock of an accepted record ends, and it comes again.
                consumer.commit_sync(PAUSED_COMMIT_S_MAX)
                continue
            messages = [
                message for message in consumer.poll(timeout=POLL_S) if message.error() is None
            ]
            self._tell(messages)
            for message in messages:
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)
        consumer.close()

    def _tell(self, messages: list[Message]) -> None:
        """Reports records before they are acknowledged, so every record that is done has been
        reported.
        """
        self.count += len(messages)
        if messages:
            self.told.send([_record(message) for message in messages])


def _record(message: Message) -> Record:
    headers: Any = message.headers() or ()
    number = next(int(value) for name, value in headers if name == "number")
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset, message.key() or b"", number
