"""A table of JSON rows kept in Redis: one hash, a row per name.

Saved members and the key filters of operators live in such tables. Every failure of Redis is one
error here, so that rooms above need not know the library.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.members.limits import TABLE_NAMES_AT_ONCE, TABLE_WRITE_BYTES

log = structlog.get_logger("keyway.groups")

Row = TypeVar("Row")


def row_text(row: Any) -> str:  # noqa: ANN401 - any JSON
    return json.dumps(row, separators=(",", ":"))


class TableUnavailable(Exception):
    """Redis did not answer, or refused. Whether it wrote anything is not known. Retriable."""


@contextmanager
def redis_answers() -> Iterator[None]:
    """The border of the room: every failure of Redis within becomes TableUnavailable."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise TableUnavailable(str(error)) from error


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
        with redis_answers():
            stored: dict[Any, Any] = await self.redis.hgetall(self.key)
        texts = ((field.decode(errors="replace"), text) for field, text in stored.items())
        return self._readable(texts)

    async def some(self, names: Sequence[str]) -> dict[str, Row]:
        """The rows of these names that there are and can be read. Raises TableUnavailable."""
        rows: dict[str, Row] = {}
        for at in range(0, len(names), TABLE_NAMES_AT_ONCE):
            portion = list(names[at : at + TABLE_NAMES_AT_ONCE])
            with redis_answers():
                texts: list[Any] = await self.redis.hmget(self.key, portion)
            found = zip(portion, texts, strict=True)
            rows |= self._readable((name, text) for name, text in found if text is not None)
        return rows

    def _readable(self, texts: Iterable[tuple[str, bytes]]) -> dict[str, Row]:
        rows: dict[str, Row] = {}
        for name, text in texts:
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
        with redis_answers():
            for texts in self._portions(rows):
                await self.redis.hset(self.key, mapping=texts)
            while some := list(islice(names, TABLE_NAMES_AT_ONCE)):
                await self.redis.hdel(self.key, *some)

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

    async def drop(self) -> None:
        """Deletes the whole table. Raises TableUnavailable."""
        with redis_answers():
            await self.redis.delete(self.key)
