"""The right to distribute from a primary: one process has it, a second one is refused.

The holder is the member of a consumer group on the primary cluster that owns the one partition of
the state topic. The cooperative assignor leaves it with its owner, so a second process gets
nothing. A process that was killed loses it when its session ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from schema_dist.errors import AwayError, LeaseError
from schema_dist.limits import LEASE_S_MAX

_POLL_S = 0.1
_HEARTBEATS_PER_SESSION = 4


class Lease:
    """Taken by `take`, kept by `keep`, which ends with LeaseError when it is lost."""

    def __init__(
        self, client_settings: Mapping[str, str], topic: str, *, group: str, session_ms: int
    ) -> None:
        self._settings = dict(client_settings)
        self._topic = topic
        self._group = group
        self._session_ms = session_ms
        self._held = False
        # One thread: librdkafka's callbacks run where the consumer is polled.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lease")
        self._consumer = Consumer(
            {
                **self._settings,
                "group.id": group,
                "session.timeout.ms": session_ms,
                "heartbeat.interval.ms": max(1, session_ms // _HEARTBEATS_PER_SESSION),
                "partition.assignment.strategy": "cooperative-sticky",
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "log_level": 2,
            }
        )

    async def take(self) -> None:
        """Returns when the lease is ours. Raises LeaseError if another process has it after the
        time in which that of a killed one would have ended, AwayError if Kafka does not answer.
        """
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._lost, on_lost=self._lost
        )
        until = time.monotonic() + self._session_ms / 1000 + _POLL_S + 1.0
        members: list[str] = []
        while not self._held:
            await self._poll()
            if time.monotonic() > until:
                members = await asyncio.get_running_loop().run_in_executor(
                    self._thread, self._members
                )
                if len(members) > 1:
                    raise LeaseError(
                        f"another process distributes the schemas of this primary (group"
                        f" {self._group}, members {', '.join(members)})"
                    )
                if time.monotonic() > until + LEASE_S_MAX:
                    raise AwayError(f"the lease (group {self._group}) was not given in time")

    async def keep(self) -> None:
        """Never returns. Raises LeaseError when the lease is lost."""
        while self._held:
            await self._poll()
        raise LeaseError(f"the lease (group {self._group}) is lost: this process was too slow")

    async def release(self) -> None:
        """Gives it up; safe to call at any time, once."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._consumer.close)
        self._thread.shutdown(wait=False)

    async def _poll(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._consumer.poll, _POLL_S)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            consumer.incremental_assign(partitions)
            consumer.pause(partitions)  # its records are of no interest
            self._held = True

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._held = False

    def _members(self) -> list[str]:
        admin = AdminClient({**self._settings, "log_level": 2})
        with contextlib.suppress(KafkaException, TimeoutError):
            described = admin.describe_consumer_groups([self._group], request_timeout=LEASE_S_MAX)
            found = described[self._group].result(LEASE_S_MAX)
            return [f"{it.client_id} at {it.host}" for it in found.members]
        return []
