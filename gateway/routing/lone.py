"""A node that stands alone, with a Redis that others could use as well: it says so there. Two that
did not know of each other would take the windows from each other for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import resources

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.routing.limits import BEAT_MS, BEAT_S_MAX, LONE_EVERY_MS, SESSION_MS
from gateway.routing.lost_cancel import cancelled
from gateway.routing.owners import CannotJoin

KEY = "keyway:alone"
_AWAY = (RedisError, OSError, TimeoutError)
log = structlog.get_logger("keyway.nodes")


class LoneNode:
    """`node`: what stays the same when its process is restarted, so that the next one need not wait
    until the one before is forgotten.
    """

    def __init__(self, redis: Redis, node: str, incarnation: str) -> None:
        self._redis = redis
        self._self = node, incarnation
        self._script = resources.files("gateway.routing").joinpath("lone.lua").read_text()

    async def enter(self) -> None:
        """Waits for the end of one that has died. Raises CannotJoin."""
        await _wait_until_nobody(self._hold)

    async def run(self) -> None:
        """Runs until cancelled. Raises CannotJoin when another node has come meanwhile."""
        while not cancelled():
            await asyncio.sleep(LONE_EVERY_MS / 1000)
            try:
                holder = await self._hold()
            except _AWAY:
                continue  # the windows wait for Redis as well
            if holder is not None:
                raise CannotJoin(_uses(holder))

    async def leave(self) -> None:
        try:
            await self._call("free")
        except _AWAY as error:
            log.info("alone_not_given_up", reason=str(error))

    async def _hold(self) -> str | None:
        holder = await self._call("hold", str(SESSION_MS))
        return None if holder is None else str(holder, "utf-8", "replace")

    async def _call(self, verb: str, *arguments: str) -> bytes | None:
        async with asyncio.timeout(BEAT_S_MAX):
            answer: bytes | None = await self._redis.eval(
                self._script, 1, KEY, verb, *self._self, *arguments
            )
            return answer


async def refuse_lone(redis: Redis) -> None:
    """For a node among several. Raises CannotJoin if one that stands alone uses this Redis."""

    async def holder() -> str | None:
        async with asyncio.timeout(BEAT_S_MAX):
            found = await redis.get(KEY)
        return (
            str(found, "utf-8", "replace").rpartition(" ")[0] if isinstance(found, bytes) else None
        )

    await _wait_until_nobody(holder)


async def _wait_until_nobody(ask: Callable[[], Awaitable[str | None]]) -> None:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + 2 * SESSION_MS / 1000
    while True:
        try:
            holder = await ask()
        except _AWAY as error:
            log.warning("lone_node_not_looked_for", reason=str(error) or "no answer in time")
            return
        if holder is None:
            return
        if loop.time() > until_s:
            raise CannotJoin(_uses(holder))
        await asyncio.sleep(BEAT_MS / 1000)


def _uses(holder: str) -> str:
    return (
        f"node {holder}, which has no nodes.id, uses this Redis (state.redis_url): set nodes.id on"
        " all nodes that share it, or use another Redis"
    )
