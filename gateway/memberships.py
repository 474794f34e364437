"""Share group memberships kept in Redis, so that a restarted node goes on with the members it had.

One JSON text per group, also of an empty one: it lives until it is deleted, as in Kafka. Written
behind: a heartbeat never waits for it. What a crash loses is a
join or a leave of the
last moments; the member it concerns rejoins on its next heartbeat, or is evicted as one that never
came back.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.core.group.membership import ShareGroup, ShareMember
from gateway.core.limits import MEMBERSHIP_RETRY_MS

log = structlog.get_logger("keyway.groups")

_KEY = "keyway:members"  # hash: group name -> JSON


class Memberships:
    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._dirty: dict[str, ShareGroup] = {}
        self._wake = asyncio.Event()

    def changed(self, group: ShareGroup) -> None:
        self._dirty[group.name] = group
        self._wake.set()

    async def load(self) -> dict[str, tuple[int, list[ShareMember]]]:
        """Group epoch and members by group name, as of the last write; {} when there is nothing or
        no Redis.
        """
        try:
            stored: dict[Any, Any] = await self._redis.hgetall(_KEY)
        except (RedisError, OSError) as error:
            log.warning("memberships_not_loaded", reason=str(error))
            return {}
        found: dict[str, tuple[int, list[ShareMember]]] = {}
        for name, text in stored.items():
            try:
                row = json.loads(text)
                members = [_member(entry) for entry in row["members"]]
                found[name.decode()] = (int(row["epoch"]), members)
            except (ValueError, KeyError, TypeError) as error:
                log.warning("membership_unreadable", group=name.decode(), reason=str(error))
        return found

    async def write_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            groups, self._dirty = self._dirty, {}
            try:
                await self._write(groups)
            except (RedisError, OSError):
                # The window store says in the log that Redis is away; here it only has to come
                # back.
                for name, group in groups.items():
                    self._dirty.setdefault(name, group)
                await asyncio.sleep(MEMBERSHIP_RETRY_MS / 1000)
                self._wake.set()

    async def _write(self, groups: dict[str, ShareGroup]) -> None:
        rows: dict[Any, Any] = {name: _text(group) for name, group in groups.items()}
        if rows:
            await self._redis.hset(_KEY, mapping=rows)

    async def forget(self, name: str) -> None:
        """The group was deleted. Raises RedisError, OSError."""
        self._dirty.pop(name, None)
        await self._redis.hdel(_KEY, name)


def _text(group: ShareGroup) -> str:
    members = [
        {
            "member_id": member.member_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "rack_id": member.rack_id,
            "topics": member.topics,
            "epoch": member.epoch,
            "previous_epoch": member.previous_epoch,
        }
        for member in group.members.values()
    ]
    return json.dumps({"epoch": group.epoch, "members": members}, separators=(",", ":"))


def _member(row: dict[str, Any]) -> ShareMember:
    return ShareMember(
        member_id=str(row["member_id"]),
        client_id=str(row["client_id"]),
        client_host=str(row["client_host"]),
        rack_id=row["rack_id"],
        topics=tuple(str(name) for name in row["topics"]),
        epoch=int(row["epoch"]),
        previous_epoch=int(row["previous_epoch"]),
        assignment={},
        last_heartbeat_ms=0,
    )
