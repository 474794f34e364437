"""The records of repartitions in Redis (table.lua)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.core.repartition.consumers import Client, ClientOf
from gateway.core.repartition.holding import Report, unpacked
from gateway.core.repartition.record import Repartition, from_text, to_text
from gateway.operations.errors import StateUnavailable
from gateway.repartition.limits import REPORTS_MS, SERVED_MS, TABLE_S_MAX

log = structlog.get_logger("keyway.repartition")

KEY = "keyway:repartitions"
REPORTS_KEY = "keyway:repartition-reports"
CLIENTS_KEY = "keyway:repartition-clients"
SERVED_KEY = "keyway:repartition-served"

Reports = dict[tuple[str, int], Report]  # by group and old partition


class RepartitionTable:
    """Each method raises StateUnavailable; whether it wrote anything is then not known."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._script = resources.files("gateway.repartition").joinpath("table.lua").read_text()

    async def load(self) -> dict[str, Repartition]:
        """All records, by topic."""
        async with _answers():
            rows: dict[Any, Any] = await self._redis.hgetall(KEY)
        found = {}
        for topic, text in rows.items():
            try:
                found[topic.decode()] = from_text(text)
            except (ValueError, KeyError, TypeError) as error:
                log.error("repartition_unreadable", topic=topic, reason=repr(error))
        return found

    async def put(self, topic: str, replaced: int, record: Repartition | None) -> bool:
        """`replaced`: the version that is there, 0: none. `record` None: it goes. False: there is
        another version.
        """
        text = "" if record is None else to_text(record)
        async with _answers():
            written = await self._redis.eval(self._script, 1, KEY, topic, str(replaced), text)
        return bool(written)

    async def share_reports(self, topic_id: str, mine: Reports) -> Reports:
        """This node's reports of the topic's windows and those of the others: the latest of each
        window that any node has told.
        """
        key = f"{REPORTS_KEY}:{topic_id}"
        rows: dict[Any, Any] = {
            f"{at}:{group}": report.packed() for (group, at), report in mine.items()
        }
        async with _answers():
            if rows:
                await self._redis.hset(key, mapping=rows)
                await self._redis.pexpire(key, REPORTS_MS)
            told: dict[Any, Any] = await self._redis.hgetall(key)
        found: Reports = {}
        for field, packed in told.items():
            partition, _, group = field.decode().partition(":")
            found[group, int(partition)] = unpacked(packed)
        return found | mine

    async def share_clients(self, mine: Collection[ClientOf]) -> set[ClientOf]:
        """`mine`: the groups that clients have named to this node. Those that they have to any."""
        rows: dict[Any, Any] = {
            json.dumps([host, name, group]): b"" for (host, name), group in mine
        }
        async with _answers():
            if rows:
                await self._redis.hset(CLIENTS_KEY, mapping=rows)
                await self._redis.pexpire(CLIENTS_KEY, REPORTS_MS)
            told: list[Any] = await self._redis.hkeys(CLIENTS_KEY)
        return {((host, name), group) for host, name, group in map(json.loads, told)}

    async def share_served(
        self, record: Repartition, mine: Collection[Client], asked: Collection[Client]
    ) -> set[Client]:
        """`mine`: clients that this node has shown the new partitions. Those of `asked` that any
        node has.
        """
        key = f"{SERVED_KEY}:{record.topic_id}:{record.began_ms}"
        rows: dict[Any, Any] = {json.dumps(client): b"" for client in mine}
        clients = list(asked)
        found: list[Any] = []
        async with _answers():
            if rows:
                await self._redis.hset(key, mapping=rows)
                await self._redis.pexpire(key, SERVED_MS)
            if clients:
                found = await self._redis.hmget(key, [json.dumps(client) for client in clients])
        return {client for client, row in zip(clients, found, strict=False) if row is not None}

    async def now_ms(self) -> int:
        """Redis's clock."""
        async with _answers():
            seconds, micros = await self._redis.time()
        return int(seconds) * 1_000 + int(micros) // 1_000


@asynccontextmanager
async def _answers() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(TABLE_S_MAX):
            yield
    except (RedisError, OSError, TimeoutError) as error:
        raise StateUnavailable(f"Redis: {str(error) or 'does not answer in time'}") from error
