"""Nodes that stand alone, on a real Redis: two of them, or one beside several, are told apart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from redis.asyncio import Redis

from gateway.embedded.redis import EmbeddedRedis
from gateway.routing import lone
from gateway.routing.lone import KEY, LoneNode, refuse_lone
from gateway.routing.owners import CannotJoin

pytestmark = pytest.mark.integration

Work = Callable[[Redis], Coroutine[None, None, None]]


@pytest.fixture
def on_redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Work], None]:
    monkeypatch.setattr(lone, "SESSION_MS", 600)
    monkeypatch.setattr(lone, "LONE_EVERY_MS", 100)

    async def told(url: str, work: Work) -> None:
        async with Redis.from_url(url) as redis:
            await work(redis)

    def run(work: Work) -> None:
        with EmbeddedRedis(tmp_path / "redis") as server:
            asyncio.run(told(server.url, work))

    return run


def test_a_second_node_is_refused_while_the_first_lives(on_redis: Callable[[Work], None]) -> None:
    async def work(redis: Redis) -> None:
        first = LoneNode(redis, "a:9192", "1")
        await first.enter()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(first.run())
            with pytest.raises(CannotJoin, match=r"node a:9192, which has no nodes\.id, uses"):
                await LoneNode(redis, "b:9192", "2").enter()
            with pytest.raises(CannotJoin, match=r"node a:9192"):
                await refuse_lone(redis)
            running.cancel()
        await first.leave()
        assert await redis.get(KEY) is None
        await refuse_lone(redis)

    on_redis(work)


def test_its_next_process_begins_at_once_and_others_when_it_is_dead(
    on_redis: Callable[[Work], None],
) -> None:
    async def work(redis: Redis) -> None:
        killed = LoneNode(redis, "a:9192", "1")
        await killed.enter()
        await LoneNode(redis, "a:9192", "2").enter()
        assert await redis.get(KEY) == b"a:9192 2"
        await killed.leave()  # what is another process's stays
        assert await redis.get(KEY) == b"a:9192 2"
        await LoneNode(redis, "b:9192", "3").enter()  # waits until that one is forgotten
        assert await redis.get(KEY) == b"b:9192 3"

    on_redis(work)


def test_one_that_was_frozen_ends_when_another_has_come(on_redis: Callable[[Work], None]) -> None:
    async def work(redis: Redis) -> None:
        frozen = LoneNode(redis, "a:9192", "1")
        await frozen.enter()
        await redis.delete(KEY)
        await LoneNode(redis, "b:9192", "2").enter()
        with pytest.raises(CannotJoin, match="node b:9192"):
            await frozen.run()

    on_redis(work)


def test_it_says_so_again_in_a_redis_that_was_flushed(on_redis: Callable[[Work], None]) -> None:
    async def work(redis: Redis) -> None:
        node = LoneNode(redis, "a:9192", "1")
        await node.enter()
        await redis.flushall()
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(node.run())
            while await redis.get(KEY) != b"a:9192 1":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            running.cancel()

    on_redis(work)
