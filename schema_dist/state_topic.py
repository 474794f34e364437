"""The topic on each target with the ledger (Keyway's own writes there) and the status. Compacted,
one partition.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from schema_dist.core.desired import slices
from schema_dist.core.ledger import Entry, Ledger, decode, encode
from schema_dist.errors import AwayError
from schema_dist.limits import ANSWER_S_MAX, NOTED_AT_ONCE
from schema_dist.log_reader import NO_RECORD, consume
from schema_dist.topics import ensure_compacted

_STATUS_KEY = b'{"kind":"status"}'


class StateTopic:
    """Reads are whole; writes are durable when they return. All methods raise AwayError."""

    def __init__(self, client_settings: Mapping[str, str], topic: str) -> None:
        self._settings = dict(client_settings)
        self._topic = topic
        self._producer: Producer | None = None

    async def load(self) -> Ledger:
        """The ledger; the topic is created if it is missing."""
        return (await asyncio.to_thread(self._load))[0]

    def status(self) -> dict[str, Any] | None:
        """The last status that was reported; None if there is none. Creates nothing, and blocks."""
        return self._load(create=False)[1]

    async def note(self, entries: Iterable[Entry]) -> None:
        """Writes entries of the ledger."""
        noted = list(entries)
        if noted:
            await asyncio.to_thread(self._produce, map(encode, noted))

    async def report(self, status: Mapping[str, Any]) -> None:
        """Writes the status."""
        body = json.dumps(status, separators=(",", ":")).encode()
        await asyncio.to_thread(self._produce, [(_STATUS_KEY, body)])

    def _fault(self, error: object) -> AwayError:
        return AwayError(f"{self._topic} at {self._settings['bootstrap.servers']}: {error}")

    def ensure(self) -> None:
        """Creates the topic unless it is there."""
        ensure_compacted(self._settings, self._topic)

    def _load(self, *, create: bool = True) -> tuple[Ledger, dict[str, Any] | None]:
        if create:
            self.ensure()
        consumer = Consumer(
            {
                **self._settings,
                "group.id": "keyway-schemas-reader",  # required; nothing is committed
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 2,
            }
        )
        ledger, status = Ledger(), None
        try:
            consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
            while True:
                messages = consume(consumer)
                if not messages:
                    raise self._fault(NO_RECORD)
                for message in messages:
                    error = message.error()
                    if error is None:
                        status = self._take(message, ledger, status)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        return ledger, status
                    elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                        return ledger, None
                    else:
                        raise self._fault(error.str())
        except KafkaException as error:
            raise self._fault(error.args[0].str()) from error
        finally:
            consumer.close()

    def _take(
        self, message: Message, ledger: Ledger, status: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        key, value = message.key(), message.value()
        if key == _STATUS_KEY:
            parsed = json.loads(value) if value else None
            return parsed if isinstance(parsed, dict) else status
        try:
            entry = decode(key or b"", value)
        except ValueError as error:
            raise self._fault(f"offset {message.offset()}: {error}") from error
        if entry is not None:
            ledger.apply([entry])
        return status

    def _produce(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        if self._producer is None:
            timeout_ms = int(ANSWER_S_MAX * 1000)
            self._producer = Producer(
                {
                    **self._settings,
                    "enable.idempotence": True,
                    "delivery.timeout.ms": timeout_ms,
                    "log_level": 2,
                }
            )
        failed: list[str] = []

        def told(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failed.append(error.str())

        for part in slices(records, NOTED_AT_ONCE):
            try:
                for key, value in part:
                    self._producer.produce(self._topic, key=key, value=value, on_delivery=told)
                left = self._producer.flush(ANSWER_S_MAX)
            except (BufferError, KafkaException) as error:
                raise self._fault(error) from error
            if failed or left:
                raise self._fault(failed[0] if failed else f"{left} records unsent")
