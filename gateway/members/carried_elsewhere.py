"""Whose connections each node carries, in Redis.

A member's connections end at several nodes, and its group's coordinator sees only those to itself.
Before it evicts a member that has no connection to it, it asks here whether another live node has
one. The rows of a node that is dead do not count. They are deleted when a process of that node
starts: its connections are new.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from redis.asyncio import Redis

from gateway.members.limits import TABLE_NAMES_AT_ONCE
from gateway.members.redis_table import redis_answers

Name = tuple[str, str]  # group, member id


class CarriedElsewhere:
    """`others`: the ids of the other live nodes."""

    def __init__(self, redis: Redis, node: str, others: Callable[[], Sequence[str]]) -> None:
        self._redis = redis
        self._key = _key(node)
        self._others = others
        self._begun = False
        self._untold: dict[Name, bool] = {}

    async def tell(self, names: Iterable[Name], connected: Callable[[Name], bool]) -> None:
        """Other nodes may ask about these members, whose connections have changed. Raises
        TableUnavailable; then the next call tells it.
        """
        self._untold |= {name: connected(name) for name in names}
        with redis_answers():
            if not self._begun:
                await self._redis.delete(self._key)
                self._begun = True
            for value in (True, False):
                some = [name for name, now in self._untold.items() if now is value]
                for at in range(0, len(some), TABLE_NAMES_AT_ONCE):
                    await self._tell(some[at : at + TABLE_NAMES_AT_ONCE], connected=value)

    async def _tell(self, names: Sequence[Name], *, connected: bool) -> None:
        fields = [json.dumps(name) for name in names]
        if connected:
            await self._redis.hset(self._key, mapping=dict.fromkeys(fields, "1"))
        else:
            await self._redis.hdel(self._key, *fields)
        for name in names:
            del self._untold[name]

    async def find(self, group: str, member_ids: Sequence[str]) -> set[str]:
        """The members that another live node has a connection of. Raises TableUnavailable."""
        found: set[str] = set()
        fields = [json.dumps((group, member_id)) for member_id in member_ids]
        for node in self._others():
            with redis_answers():
                rows: list[Any] = await self._redis.hmget(_key(node), fields)
            found |= {
                member_id
                for member_id, row in zip(member_ids, rows, strict=True)
                if row is not None
            }
        return found


def _key(node: str) -> str:
    return f"keyway:share_carried:{node}"
