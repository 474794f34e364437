"""The node's Redis as a part: what it warns of, on a real Redis."""

from __future__ import annotations

import asyncio
from pathlib import Path

from redis.asyncio import Redis

from gateway.embedded.redis import EmbeddedRedis
from gateway.node.redis_state import Eviction


def test_a_redis_that_deletes_keys_on_its_own_is_warned_of(tmp_path: Path) -> None:
    async def work(url: str) -> None:
        async with Redis.from_url(url) as redis:
            eviction = Eviction(redis)
            await redis.config_set("maxmemory-policy", "allkeys-lru")
            await eviction.look()
            assert eviction.warnings() == [], "without a limit it deletes nothing"
            await redis.config_set("maxmemory", 1_000_000_000)
            await eviction.look()
            (warning,) = eviction.warnings()
            assert "maxmemory-policy is allkeys-lru" in warning
            await redis.config_set("maxmemory-policy", "noeviction")
            await eviction.look()
            assert eviction.warnings() == []

    with EmbeddedRedis(tmp_path / "redis") as server:
        asyncio.run(work(server.url))
