"""Members of share groups saved in Redis, so that a restarted node goes on with the members it had.

One row per group, also of an empty one. Rows are written behind: a heartbeat never waits for Redis.
A crash loses a join or a leave of the last moments. Such a member rejoins on its next heartbeat, or
is evicted because it does not come back.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import structlog
from redis.asyncio import Redis

from gateway.core.share.membership import ShareGroup, ShareMember
from gateway.members.limits import MEMBERSHIP_RETRY_MS
from gateway.members.redis_table import RedisTable, TableUnavailable

log = structlog.get_logger("keyway.groups")

_KEY = "keyway:members"


class SavedGroup(NamedTuple):
    epoch: int
    members: list[ShareMember]


class SavedMembers:
    def __init__(self, redis: Redis) -> None:
        self._table = RedisTable(redis, _KEY, _to_json, _from_json)
        self._dirty: dict[str, ShareGroup | None] = {}  # None: forgotten
        self._wake = asyncio.Event()

    def changed(self, group: ShareGroup) -> None:
        self._dirty[group.name] = group
        self._wake.set()

    def forgotten(self, name: str) -> None:
        self._dirty[name] = None
        self._wake.set()

    async def load(self) -> dict[str, SavedGroup]:
        """Groups by name, as of the last write; {} when Redis has none or does not answer."""
        try:
            return await self._table.load()
        except TableUnavailable as error:
            log.warning("saved_members_not_loaded", reason=str(error))
            return {}

    async def write_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.flush()
            except TableUnavailable:
                # The window store logs that Redis is away; here it only has to come back.
                await asyncio.sleep(MEMBERSHIP_RETRY_MS / 1000)
                self._wake.set()

    async def flush(self) -> None:
        """Writes changed groups. Raises TableUnavailable; then they are written next time."""
        groups, self._dirty = self._dirty, {}
        try:
            rows = {
                name: SavedGroup(group.epoch, list(group.members.values()))
                for name, group in groups.items()
                if group is not None
            }
            await self._table.write(rows, [name for name, it in groups.items() if it is None])
        except BaseException:
            self._dirty = groups | self._dirty
            raise

    async def forget(self, name: str) -> None:
        """The group was deleted. Raises TableUnavailable."""
        self._dirty.pop(name, None)
        await self._table.write({}, [name])


def _to_json(group: SavedGroup) -> dict[str, Any]:
    return {"epoch": group.epoch, "members": [_member_to_json(it) for it in group.members]}


def _from_json(row: Any) -> SavedGroup:  # noqa: ANN401 - any JSON
    return SavedGroup(int(row["epoch"]), [_member(entry) for entry in row["members"]])


def _member_to_json(member: ShareMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rack_id": member.rack_id,
        "topics": member.topics,
        "epoch": member.epoch,
        "previous_epoch": member.previous_epoch,
    }


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
