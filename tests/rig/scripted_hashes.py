"""Hashes of a scripted Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator

from redis.exceptions import ConnectionError as RedisConnectionError


class ScriptedHashes:
    """Of Redis, what BegunTopics uses."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, bytes]] = {}
        self.down = False

    def _of(self, key: str) -> dict[str, bytes]:
        if self.down:
            raise RedisConnectionError("Connection refused")
        return self.rows.setdefault(key, {})

    async def hget(self, key: str, name: str) -> bytes | None:
        return self._of(key).get(name)

    async def hsetnx(self, key: str, name: str, text: str) -> int:
        there = name in self._of(key)
        self._of(key).setdefault(name, text.encode())
        return int(not there)

    async def hset(self, key: str, name: str, text: str) -> None:
        self._of(key)[name] = text.encode()

    async def hdel(self, key: str, *names: str) -> None:
        for name in names:
            self._of(key).pop(name, None)

    async def hkeys(self, key: str) -> list[bytes]:
        return [name.encode() for name in self._of(key)]

    async def delete(self, key: str) -> None:
        self._of(key).clear()

    async def scan_iter(self, match: str, count: int) -> AsyncIterator[str]:  # noqa: ARG002
        for key in list(self.rows):
            assert self._of(key) is not None
            yield key
