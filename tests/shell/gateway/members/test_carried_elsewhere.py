"""Who is connected to which node, in a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.embedded.redis import EmbeddedRedis
from gateway.members.carried_elsewhere import CarriedElsewhere
from gateway.members.redis_table import TableUnavailable


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path) as redis:
        yield redis


def test_other_live_nodes_are_asked_and_their_earlier_lives_are_not(server: EmbeddedRedis) -> None:
    async def work() -> None:
        async with Redis.from_url(server.url, retry=Retry(NoBackoff(), 0)) as redis:
            live = ["b", "c"]
            a = CarriedElsewhere(redis, "a", lambda: live)
            b = CarriedElsewhere(redis, "b", lambda: ["a"])
            both = [("g", "m1"), ("g", "m2")]
            await b.tell(both, lambda _: True)
            assert await a.find("g", ["m1", "m2", "m3"]) == {"m1", "m2"}
            assert await a.find("other", ["m1"]) == set()
            assert await b.find("g", ["m1"]) == set(), "its own connections are no others'"
            await b.tell([("g", "m1")], lambda _: False)
            assert await a.find("g", ["m1", "m2"]) == {"m2"}
            live.remove("b")
            assert await a.find("g", ["m2"]) == set(), "b is dead"
            live.append("b")
            again = CarriedElsewhere(redis, "b", lambda: ["a"])
            await again.tell((), lambda _: True)
            assert await a.find("g", ["m2"]) == set(), "b has started anew"

    asyncio.run(work())


def test_what_was_not_told_is_told_later(server: EmbeddedRedis) -> None:
    async def work() -> None:
        away = Redis.from_url("redis://127.0.0.1:1", retry=Retry(NoBackoff(), 0))
        async with away, Redis.from_url(server.url, retry=Retry(NoBackoff(), 0)) as redis:
            b = CarriedElsewhere(away, "b", lambda: ["a"])
            with pytest.raises(TableUnavailable):
                await b.tell([("g", "m1")], lambda _: True)
            with pytest.raises(TableUnavailable):
                await b.find("g", ["m1"])
            b._redis = redis
            await b.tell((), lambda _: True)
            assert await CarriedElsewhere(redis, "a", lambda: ["b"]).find("g", ["m1"]) == {"m1"}

    asyncio.run(work())
