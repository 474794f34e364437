"""How many partitions a topic had when a group began to read it.

The others were added later, perhaps while the group had no members or the gateway was down. All
their records are newer than the group's start, so the group reads them from the first one, whatever
`share.auto.offset.reset` says.

Redis has a hash for each group, with a field for each topic's id: a topic that is made anew is
another one. The first node that loads a window of the group and topic writes it. It stays until an
operator deletes the group's positions. Where there is none, all partitions of this moment count as
those from the beginning: of a group from before version 0.3, and after Redis has lost it. Nobody
can tell then which of them are younger, and none is read whole by surprise. The node remembers the
numbers it has seen, though: a Redis that is flushed while it runs gets them again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from urllib.parse import quote

import structlog
from redis.asyncio import Redis

from gateway.members.limits import BEGUN_TOPICS_MAX
from gateway.members.redis_table import redis_answers

log = structlog.get_logger("keyway.groups")

_PREFIX = "keyway:begun:"
_SCANNED = 1_000  # keys of Redis that one step of a scan looks at


class BegunTopics:
    """Groups by name, topics by the text of their ids."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._seen: dict[str, dict[str, int]] = {}  # by group; the one that is looked at last, last
        self._count = 0  # of topics

    def seen(self, group: str, topic_id: str) -> bool:
        return topic_id in self._seen.get(group, {})

    def remembered(self, group: str, topic_id: str, partitions: int) -> int:
        """As `partitions_of`, for a group that has nothing in Redis."""
        found = self._seen.get(group, {}).get(topic_id, partitions)
        self._note(group, topic_id, found)
        return found

    async def partitions_of(self, group: str, topic_id: str, partitions: int) -> int:
        """How many partitions the topic had when the group began with it. If nobody knows, the
        group begins now, with `partitions`. Raises TableUnavailable.
        """
        name = _name(group)
        found = self._seen.get(group, {}).get(topic_id, partitions)
        with redis_answers():
            text = await self._redis.hget(name, topic_id)
            if text is None and not await self._redis.hsetnx(name, topic_id, str(found)):
                text = await self._redis.hget(name, topic_id)  # another node was first
        if text is not None and text.isdigit():
            found = int(text)
        elif text is not None:
            log.error("row_unreadable", table=name, name=topic_id, reason=repr(text))
        self._note(group, topic_id, found)
        return found

    async def begin_anew(self, group: str, topic_id: str, partitions: int) -> None:
        """The group has no positions in the topic any more. Raises TableUnavailable."""
        with redis_answers():
            await self._redis.hset(_name(group), topic_id, str(partitions))
        self._note(group, topic_id, partitions)

    async def delete(self, group: str) -> None:
        """The group is deleted. Raises TableUnavailable."""
        with redis_answers():
            await self._redis.delete(_name(group))
        self.forget(group)

    def forget(self, group: str) -> None:
        """Another node may have deleted it; or it has had no members for so long that Kafka may
        have forgotten its positions. Redis has what counts.
        """
        self._count -= len(self._seen.pop(group, {}))

    async def topics(self) -> set[str]:
        """The topics that groups have begun. Raises TableUnavailable."""
        found: set[str] = set()
        with redis_answers():
            async for name in self._redis.scan_iter(match=_PREFIX + "*", count=_SCANNED):
                fields: list[Any] = await self._redis.hkeys(name)
                found.update(field.decode() for field in fields)
        return found

    async def delete_topics(self, topic_ids: Collection[str]) -> None:
        """Upstream has them no more. Raises TableUnavailable."""
        with redis_answers():
            async for name in self._redis.scan_iter(match=_PREFIX + "*", count=_SCANNED):
                await self._redis.hdel(name, *topic_ids)

    def _note(self, group: str, topic_id: str, partitions: int) -> None:
        topics = self._seen.pop(group, {})
        self._count += topic_id not in topics
        topics[topic_id] = partitions
        self._seen[group] = topics
        while self._count > BEGUN_TOPICS_MAX:
            self.forget(next(iter(self._seen)))


def _name(group: str) -> str:
    return _PREFIX + quote(group, safe="")
