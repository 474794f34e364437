"""A watched embedded Redis whose socket is deleted: it is restarted with all its data."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from redis.asyncio import Redis

from gateway.embedded.redis import EmbeddedRedis
from gateway.embedded.redis_watch import RedisWatch
from tests.rig.loopback import until
from tests.rig.patience import patient_s


def story(tmp_path: Path, tell: Callable[[RedisWatch, Redis], Awaitable[None]]) -> None:
    async def work(watch: RedisWatch) -> None:
        redis = Redis.from_url(watch.redis.url)
        async with asyncio.timeout(patient_s(60)), asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch.run())
            await tell(watch, redis)
            watching.cancel()
        await redis.aclose()

    with RedisWatch(EmbeddedRedis(tmp_path)) as watch:
        asyncio.run(work(watch))


def test_a_deleted_socket_heals_and_nothing_is_lost(tmp_path: Path) -> None:
    async def tell(watch: RedisWatch, redis: Redis) -> None:
        for number in range(3):
            await redis.rpush("kept", number)
            pid = watch.redis.pid
            watch.redis.socket_path.unlink()
            assert not watch.redis.reachable
            await until(lambda: watch.redis.reachable and not watch.trouble)
            assert watch.redis.pid != pid
            assert await redis.llen("kept") == number + 1

    story(tmp_path, tell)


def test_a_socket_in_its_place_is_not_taken_for_it(tmp_path: Path) -> None:
    async def tell(watch: RedisWatch, redis: Redis) -> None:
        await redis.set("kept", 1)
        watch.redis.socket_path.rename(tmp_path / "elsewhere.sock")
        watch.redis.socket_path.write_text("no socket")
        await until(lambda: watch.redis.reachable)
        assert await redis.get("kept") == b"1"

    story(tmp_path, tell)


def test_the_trouble_is_named_until_it_is_over(tmp_path: Path) -> None:
    async def tell(watch: RedisWatch, redis: Redis) -> None:
        await redis.set("kept", 1)
        config = tmp_path / "redis.conf"
        config.unlink()
        config.mkdir()  # it cannot be written: no server starts
        watch.redis.socket_path.unlink()
        await until(lambda: "cannot be started" in watch.trouble)
        config.rmdir()
        await until(lambda: not watch.trouble)
        assert watch.redis.reachable
        assert await redis.get("kept") == b"1"

    story(tmp_path, tell)
