"""A table of JSON rows kept in Redis: one hash, a row per name.

Saved members and the key filters of operators live in such tables. Every failure of Redis is one
error here, so that rooms above need not know the library.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.members.limits import TABLE_NAMES_AT_ONCE, TABLE_WRITE_BYTES

log = structlog.get_logger("keyway.groups")

Row = TypeVar("Row")

# It grows with each change of members and key filters: other nodes look at it, and read them again.
VERSION_KEY = "keyway:share_version"


def row_text(row: Any) -> str:  # noqa: ANN401 - any JSON
    return json.dumps(row, separators=(",", ":"))


class TableUnavailable(Exception):
    """Redis did not answer, or refused. Whether it wrote anything is not known. Retriable."""


@dataclass(frozen=True, slots=True)
class RedisTable(Generic[Row]):
    """`from_json` raises ValueError, KeyError or TypeError for a row that it cannot read."""

    redis: Redis
    key: str  # of the hash
    to_json: Callable[[Row], Any]
    from_json: Callable[[Any], Row]

    async def load(self) -> dict[str, Row]:
        """All rows that can be read; the others are logged and left out. Raises
        TableUnavailable.
        """
        try:
            stored: dict[Any, Any] = await self.redis.hgetall(self.key)
        except (RedisError, OSError) as error:
            raise TableUnavailable(str(error)) from error
        rows: dict[str, Row] = {}
        for field, text in stored.items():
            name = field.decode(errors="replace")
            try:
                rows[name] = self.from_json(json.loads(text))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                log.error("row_unreadable", table=self.key, name=name, reason=repr(error))
        return rows

    async def write(self, rows: Mapping[str, Row], gone: Iterable[str] = ()) -> None:
        """Sets `rows` and deletes those of the names `gone`, a portion at a time, so that other
        work goes on. Raises TableUnavailable; then some of it may be written.
        """
        names = iter(gone)
        try:
            for texts in self._portions(rows):
                await self.redis.hset(self.key, mapping=texts)
            while some := list(islice(names, TABLE_NAMES_AT_ONCE)):
                await self.redis.hdel(self.key, *some)
        except (RedisError, OSError) as error:
            raise TableUnavailable(str(error)) from error

    def _portions(self, rows: Mapping[str, Row]) -> Iterator[dict[Any, Any]]:
        texts: dict[Any, Any] = {}
        size = 0
        for name, row in rows.items():
            texts[name] = row_text(self.to_json(row))
            size += len(texts[name])
            if size >= TABLE_WRITE_BYTES or len(texts) >= TABLE_NAMES_AT_ONCE:
                yield texts
                texts, size = {}, 0
        if texts:
            yield texts

    async def tell_others(self) -> None:
        """Raises TableUnavailable."""
        try:
            await self.redis.incr(VERSION_KEY)
        except (RedisError, OSError) as error:
            raise TableUnavailable(str(error)) from error

    async def drop(self) -> None:
        """Deletes the whole table. Raises TableUnavailable."""
        try:
            await self.redis.delete(self.key)
        except (RedisError, OSError) as error:
            raise TableUnavailable(str(error)) from error
