"""How many partitions topics had when groups began with them, in a real Redis."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from redis.asyncio import Redis

from gateway.embedded.redis import EmbeddedRedis
from gateway.members.begun_topics import BegunTopics
from gateway.members.redis_table import TableUnavailable

NAME = "a group/with: *{names}*"


def test_the_first_number_stays_until_the_positions_are_deleted(tmp_path: Path) -> None:
    async def work() -> None:
        with EmbeddedRedis(tmp_path) as embedded:
            redis = Redis.from_url(embedded.url)
            one, other = BegunTopics(redis), BegunTopics(redis)
            assert not one.seen(NAME, "t")
            found = await asyncio.gather(
                one.partitions_of(NAME, "t", 3), other.partitions_of(NAME, "t", 4)
            )
            assert len({*found}) == 1, "whoever was first"
            assert one.seen(NAME, "t")
            assert await one.partitions_of(NAME, "t", 9) == found[0]
            assert await one.partitions_of(NAME, "u", 5) == 5
            assert await one.partitions_of("h", "t", 6) == 6
            assert await other.topics() == {"t", "u"}

            await redis.flushall()
            assert await one.partitions_of(NAME, "t", 9) == found[0], "it remembers"
            assert await BegunTopics(redis).partitions_of(NAME, "t", 9) == found[0]
            await other.begin_anew(NAME, "t", 8)
            assert await one.partitions_of(NAME, "t", 9) == 8

            await redis.hset("keyway:begun:damaged", "t", "many")
            assert await one.partitions_of("damaged", "t", 4) == 4

            await one.partitions_of(NAME, "u", 5)
            await one.partitions_of("h", "t", 6)
            await other.delete_topics(["t"])
            assert await other.topics() == {"u"}
            await one.delete(NAME)
            assert not one.seen(NAME, "u")
            assert await one.partitions_of(NAME, "u", 7) == 7
            await redis.aclose()
        with pytest.raises(TableUnavailable):
            await one.partitions_of(NAME, "u", 7)
        assert one.remembered(NAME, "u", 9) == 7
        assert one.remembered("unreliable", "u", 9) == 9
        one.forget(NAME)
        assert one.remembered(NAME, "u", 9) == 9

    asyncio.run(work())
