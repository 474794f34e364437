"""The log of changes in a real Redis: followed entry by entry, and never with a gap unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.config.file import Config
from gateway.embedded.redis import EmbeddedRedis
from gateway.members.change_log import KEY, ChangeLog
from gateway.members.group_settings import GroupSettings
from gateway.members.key_filters import KeyFilters
from gateway.members.limits import CHANGES_READ_MAX
from gateway.members.redis_table import TableUnavailable
from tests.rig.patience import patient_s


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    folder: Path = tmp_path_factory.mktemp("redis")
    with EmbeddedRedis(folder) as redis:
        yield redis


def story(server: EmbeddedRedis, tell: Callable[[Redis], Awaitable[None]]) -> None:
    async def work() -> None:
        async with Redis.from_url(server.url, retry=Retry(NoBackoff(), 0)) as redis:
            await redis.flushall()
            async with asyncio.timeout(patient_s(60)):
                await tell(redis)

    asyncio.run(work())


def test_key_filters_set_at_one_node_make_the_others_read(server: EmbeddedRedis) -> None:
    async def tell(redis: Redis) -> None:
        changes = ChangeLog(redis)
        filters = KeyFilters(Config.model_validate({}), redis, lambda: 1_000)
        position = await changes.newest()
        assert position == ""
        for change in (filters.put("g", ()), filters.remove("g")):
            await change
            heard = await changes.since(position)
            assert heard is not None
            assert heard.filters
            assert heard.groups == {}
            position = heard.position
        heard = await changes.since(position)
        assert heard is not None
        assert (heard.position, heard.filters) == (position, False)

    story(server, tell)


def test_configs_set_at_one_node_count_at_the_others(server: EmbeddedRedis) -> None:
    async def tell(redis: Redis) -> None:
        changes = ChangeLog(redis)
        position = await changes.newest()
        here, there = (GroupSettings(Config(), nothing_is_set, lambda: 1_000) for _ in range(2))
        here.tell = changes.tell_configs
        await there.known("g")
        for limit, counts in (("9", 9), (None, Config().group("g").deliveries_max)):
            await here.altered({"g": {"share.delivery.count.limit": limit}, "other": {}})
            heard = await changes.since(position)
            assert heard is not None
            assert heard.groups == {}
            await there.heard(heard.configs)
            assert there.of("g").deliveries_max == counts
            position = heard.position

    story(server, tell)


async def nothing_is_set(_group: str) -> dict[str, str]:
    return {}


def test_an_entry_that_is_missing_shows(server: EmbeddedRedis) -> None:
    """Trimmed, or written by two nodes at once: all rows are read then."""

    async def tell(redis: Redis) -> None:
        changes = ChangeLog(redis)
        await changes.tell_filters()
        position = await changes.newest()
        await changes.tell_filters()
        missing = await changes.newest()
        await changes.tell_filters()
        assert await redis.xdel(KEY, missing) == 1
        assert await changes.since(position) is None

    story(server, tell)


def test_a_log_that_was_flushed_or_went_back_shows(server: EmbeddedRedis) -> None:
    async def tell(redis: Redis) -> None:
        changes = ChangeLog(redis)
        await changes.tell_filters()
        kept = await changes.newest()
        await changes.tell_filters()
        position = await changes.newest()
        await redis.xdel(KEY, position)  # An older copy of Redis took over.
        assert await changes.newest() == kept
        assert await changes.since(position) is None
        await redis.flushall()
        assert await changes.since(position) is None
        await changes.tell_filters()
        assert await changes.since(position) is None
        assert await changes.since("") is not None, "the log begins with this entry"

    story(server, tell)


def test_who_is_far_behind_reads_all_rows(server: EmbeddedRedis) -> None:
    async def tell(redis: Redis) -> None:
        changes = ChangeLog(redis)
        await changes.tell_filters()
        position = await changes.newest()
        for _ in range(CHANGES_READ_MAX):
            await redis.xadd(KEY, {"before": "x", "change": "{}"})
        assert await changes.since(position) is None

    story(server, tell)


def test_an_entry_that_no_node_wrote_is_a_gap(server: EmbeddedRedis) -> None:
    async def tell(redis: Redis) -> None:
        changes = ChangeLog(redis)
        await changes.tell_filters()
        position = await changes.newest()
        await redis.xadd(KEY, {"before": position, "change": '{"group": "g"}'})
        assert await changes.since(position) is None
        await redis.delete(KEY)
        await redis.xadd(KEY, {"other": "fields"})
        assert await changes.since("") is None

    story(server, tell)


def test_a_redis_that_is_away_is_one_kind_of_error() -> None:
    async def work() -> None:
        async with Redis.from_url("redis://127.0.0.1:1", retry=Retry(NoBackoff(), 0)) as redis:
            for ask in (ChangeLog(redis).newest(), ChangeLog(redis).since("1-1")):
                with pytest.raises(TableUnavailable):
                    await ask
            with pytest.raises(TableUnavailable):
                await ChangeLog(redis).tell_filters()

    asyncio.run(work())
