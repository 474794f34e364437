"""The producer of dead letters: aiokafka's, with the gateway's own identity.

Imported with a node's first dead letter: aiokafka is a seventh of a node's start, and most nodes
write none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from gateway.core.wire.records import Header, Record
from gateway.reading.limits import (
    DEAD_LETTER_BYTES_MAX,
    DEAD_LETTER_WRITE_MS_MAX,
    PRODUCER_GIVE_UP_S_MAX,
    PRODUCER_START_S_MAX,
    PRODUCER_STOP_S_MAX,
)
from gateway.upstream.errors import TimedOut, Unreachable
from gateway.upstream.settings import UpstreamSettings

log = structlog.get_logger("keyway.dead_letters")


class LetterProducer:
    """`await LetterProducer.started(...)`, and `stop` it."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    @classmethod
    async def started(cls, settings: UpstreamSettings) -> LetterProducer:
        """Raises UpstreamError."""
        producer = cls(AIOKafkaProducer(**producer_options(settings)))
        try:
            async with asyncio.timeout(PRODUCER_START_S_MAX):
                await producer._producer.start()
        except KafkaError as error:
            await producer.stop()
            raise Unreachable(str(error)) from error
        except TimeoutError as late:
            await producer.stop()
            raise TimedOut(f"no producer started within {PRODUCER_START_S_MAX:g} s") from late
        except BaseException:
            await producer.stop()
            raise
        return producer

    async def send(self, topic: str, record: Record, headers: list[Header]) -> str | None:
        """Sends the record with these headers in place of its own. Returns None once it is on all
        in-sync replicas, else the reason why it is not.
        """
        value = b"" if record.key is None and record.value is None else record.value
        try:
            # An idempotent aiokafka tries for ever while the partition has a leader.
            async with asyncio.timeout(DEAD_LETTER_WRITE_MS_MAX / 1000):
                sent = await self._producer.send(
                    topic,
                    key=record.key,
                    value=value,
                    timestamp_ms=record.timestamp if record.timestamp >= 0 else None,
                    headers=headers,
                )
                await sent
        except KafkaError as error:
            return str(error)
        except TimeoutError:
            return f"not on all in-sync replicas within {DEAD_LETTER_WRITE_MS_MAX / 1000:g} s"
        return None

    async def stop(self) -> None:
        """Waits for the letters that are under way; letters that take too long are given up."""
        producer = self._producer
        try:
            if await ends(producer.flush(), PRODUCER_STOP_S_MAX) and await ends(
                producer.stop(), PRODUCER_STOP_S_MAX
            ):
                return
            # aiokafka's stop waits for every letter, and left alone it keeps on sending them.
            await ends(producer._sender.close(), PRODUCER_GIVE_UP_S_MAX)
            await ends(producer.client.close(), PRODUCER_GIVE_UP_S_MAX)
        finally:
            producer._closed = True  # else it complains when it is collected


async def ends(work: Coroutine[Any, Any, None], s_max: float) -> bool:
    """Whether the producer ends within this time and without an error."""
    try:
        async with asyncio.timeout(s_max):
            await work
    except (TimeoutError, KafkaError) as error:
        log.warning("dead_letter_producer_stop", reason=str(error) or type(error).__name__)
        return False
    return True


def producer_options(settings: UpstreamSettings) -> dict[str, Any]:
    """The gateway's own identity, as aiokafka wants it. Raises OSError for a bad TLS file."""
    options: dict[str, Any] = {
        "bootstrap_servers": [str(address) for address in settings.bootstrap()],
        "client_id": f"{settings.client_id}-dead-letters",
        "acks": "all",
        "enable_idempotence": True,
        "request_timeout_ms": DEAD_LETTER_WRITE_MS_MAX,
        "max_request_size": DEAD_LETTER_BYTES_MAX,
    }
    protocol = "SSL" if settings.tls is not None else "PLAINTEXT"
    if settings.tls is not None:
        options["ssl_context"] = settings.tls.context()
    if settings.sasl is not None:
        protocol = f"SASL_{protocol}"
        options["sasl_mechanism"] = settings.sasl.mechanism
        options["sasl_plain_username"] = settings.sasl.username
        options["sasl_plain_password"] = settings.sasl.password
    return options | {"security_protocol": protocol}
