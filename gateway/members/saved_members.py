"""Share group memberships kept in Redis, so that a restarted node goes on with the members it had.

One JSON text per group, also of an empty one. Written behind: a heartbeat never waits for it. What
a crash loses is a join or a leave of the last moments; the member it concerns rejoins on its next
heartbeat, or is evicted as one that never came back.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.core.share.membership import ShareGroup, ShareMember
from gateway.members.limits import MEMBERSHIP_RETRY_MS

log = structlog.get_logger("keyway.groups")

_KEY = "keyway:members"  # hash: group name -> JSON


class SavedMembers:
    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._dirty: dict[str, ShareGroup | None] = {}  # None: forgotten
        self._wake = asyncio.Event()

    def changed(self, group: ShareGroup) -> None:
        self._dirty[group.name] = group
        self._wake.set()

    def forgotten(self, name: str) -> None:
        self._dirty[name] = None
        self._wake.set()

    async def load(self) -> dict[str, tuple[int, list[ShareMember]]]:
        """Group epoch and members by group name, as of the last write; {} when there is nothing or
        no Redis.
        """
        try:
            stored: dict[Any, Any] = await self._redis.hgetall(_KEY)
        except (RedisError, OSError) as error:
            log.warning("saved_members_not_loaded", reason=str(error))
            return {}
        found: dict[str, tuple[int, list[ShareMember]]] = {}
        for field, text in stored.items():
            name = field.decode(errors="replace")
            try:
                row = json.loads(text)
                found[name] = (int(row["epoch"]), [_member(entry) for entry in row["members"]])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                log.warning("saved_members_unreadable", group=name, reason=repr(error))
        return found

    async def write_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.flush()
            except (RedisError, OSError):
                # The window store says in the log that Redis is away; here it only has to come
                # back.
                await asyncio.sleep(MEMBERSHIP_RETRY_MS / 1000)
                self._wake.set()

    async def flush(self) -> None:
        """Writes what has changed. Raises RedisError, OSError; then it is written next time."""
        groups, self._dirty = self._dirty, {}
        try:
            await self._write(groups)
        except BaseException:
            self._dirty = groups | self._dirty
            raise

    async def _write(self, groups: dict[str, ShareGroup | None]) -> None:
        rows: dict[Any, Any] = {
            name: _text(group) for name, group in groups.items() if group is not None
        }
        gone = [name for name, group in groups.items() if group is None]
        if rows:
            await self._redis.hset(_KEY, mapping=rows)
        if gone:
            await self._redis.hdel(_KEY, *gone)

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
        topics=tuple(sorted(str(name) for name in row["topics"])),
        epoch=int(row["epoch"]),
        previous_epoch=int(row["previous_epoch"]),
        assignment={},
        last_heartbeat_ms=0,
    )
