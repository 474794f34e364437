"""The node's Redis as a part: what it warns of, on a real Redis."""

from __future__ import annotations

import asyncio
from pathlib import Path

from redis.asyncio import Redis

from gateway.embedded.redis import EmbeddedRedis
from gateway.node.redis_state import Eviction, redis_troubles


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


def test_a_redis_that_answers_and_takes_no_writes_is_a_trouble(tmp_path: Path) -> None:
    async def work(url: str) -> None:
        async with Redis.from_url(url) as redis:

            async def reason() -> str:
                assert await redis.ping(), "it answers"
                (trouble,) = await redis_troubles(redis)
                assert not trouble.serving
                return trouble.text

            assert await redis_troubles(redis) == []
            await redis.config_set("maxmemory", 1)
            assert "refuses to write: command not allowed when used memory" in await reason()
            await redis.config_set("maxmemory", 0)
            await redis.config_set("min-replicas-to-write", 1)
            assert "refuses to write: NOREPLICAS" in await reason()
            await redis.config_set("min-replicas-to-write", 0)
            await redis.replicaof("127.0.0.1", "1")
            assert "refuses to write: You can't write against a read only" in await reason()
            await redis.replicaof("NO", "ONE")
            assert await redis_troubles(redis) == []
            assert await redis.dbsize() == 0, "nothing was written"

    with EmbeddedRedis(tmp_path / "redis") as server:
        asyncio.run(work(server.url))
