"""The right of one process to do a piece of work: one process has it, a second one waits.

The holder is the member of a consumer group that owns the one partition of a topic. The cooperative
assignor leaves the partition with its owner, so a second process gets nothing. A process that was
killed loses the lease when its session ends. A process that was frozen for nearly that long counts
the lease as lost and asks anew: Kafka may have given it to another process.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from keyway.kafka.topics import answered

ANSWER_S = 5.0
_HEARTBEATS_PER_SESSION = 4
_FROZEN_SHARE = 0.7  # of a session: the last heartbeat was before the freeze


class Lease:
    """The process asks for the lease from its first `poll` on. One thread at a time may use it."""

    def __init__(
        self, client_settings: Mapping[str, str], topic: str, *, group: str, session_ms: int
    ) -> None:
        self.group = group
        self.held = False
        self.problem = ""  # what Kafka said last that keeps the lease from this process
        self._topic = topic
        # Whoever has to wait sees which process of which machine has the lease.
        self._settings = {
            **client_settings,
            "client.id": f"{group}-{socket.gethostname()}-{os.getpid()}",
        }
        self._session_s = session_ms / 1_000
        self._polled_s = time.monotonic()
        self._consumer: Consumer | None = None

    def poll(self, wait_s: float) -> bool:
        """Whether this process has the lease. Call it much more often than once a session."""
        now_s = time.monotonic()
        if now_s - self._polled_s > self._session_s * _FROZEN_SHARE:
            self.release()
        if self._consumer is None:
            self._consumer = self._joined()
        self._polled_s = time.monotonic()
        message = self._consumer.poll(wait_s)
        if message is not None and (error := message.error()) is not None:
            self.problem = error.str()  # told once: of a right that lacks, librdkafka asks on
        if time.monotonic() - self._polled_s > wait_s + self._session_s * _FROZEN_SHARE:
            self.release()
        self._polled_s = time.monotonic()
        return self.held

    def release(self) -> None:
        """Gives the lease up; safe to call at any time."""
        consumer, self._consumer, self.held = self._consumer, None, False
        if consumer is not None:
            consumer.close()

    def members(self) -> list[str]:
        """The clients that have the lease or wait for it, the holder first; empty if Kafka does not
        answer.
        """
        return [who for _, who in sorted(self._members())]

    def holder(self) -> str | None:
        """The client that has the lease; None: nobody, or Kafka does not answer."""
        return next((who for waits, who in self._members() if not waits), None)

    def _members(self) -> list[tuple[bool, str]]:
        """Whether each waits for the lease, and its name."""
        admin = AdminClient({**self._settings, "log_level": 2})
        with contextlib.suppress(KafkaException):
            asked = admin.describe_consumer_groups([self.group], request_timeout=ANSWER_S)
            found = answered(asked[self.group], ANSWER_S)
            return [
                (not member.assignment.topic_partitions, f"{member.client_id} at {member.host}")
                for member in found.members
            ]
        return []

    def _joined(self) -> Consumer:
        consumer = Consumer(
            {
                **self._settings,
                "group.id": self.group,
                "session.timeout.ms": int(self._session_s * 1_000),
                "heartbeat.interval.ms": int(self._session_s * 1_000 / _HEARTBEATS_PER_SESSION),
                "partition.assignment.strategy": "cooperative-sticky",
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                # The topic may have been created a moment ago, and not be known everywhere.
                "topic.metadata.refresh.interval.ms": int(self._session_s * 1_000),
                "log_level": 2,
            }
        )
        consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._lost, on_lost=self._lost
        )
        return consumer

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            consumer.incremental_assign(partitions)
            consumer.pause(partitions)  # its records are of no interest
            self.held, self.problem = True, ""

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            self.held = False
