"""Key filters and a Redis that comes and goes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
import structlog
from redis.asyncio import Redis

from gateway.config.file import Config
from gateway.config.groups import FilterRule, GroupSection
from gateway.embedded.redis import EmbeddedRedis
from gateway.members import key_filters
from gateway.members.key_filters import KeyFilters
from gateway.members.redis_table import TableUnavailable
from tests.rig.patience import patient_s

CONFIG = Config(groups=(GroupSection(filters=(FilterRule(client_id="*", keys=("config",)),)),))
RULES = (FilterRule(client_id="eu-*", keys=("eu-*",)),)
DEADLINE_S = 20.0


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path) as redis:
        yield redis


class Opened:
    """Opens one client after the other; all are closed at the end of the block."""

    def __init__(self) -> None:
        self._clients: list[Redis] = []
        self._ms = count(1_000)

    def __call__(self, url: str) -> KeyFilters:
        self._clients.append(Redis.from_url(url))
        return KeyFilters(CONFIG, self._clients[-1], lambda: next(self._ms))

    async def __aenter__(self) -> Opened:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.aclose()


def test_rules_outlive_the_node_and_replace_those_of_the_file(embedded: EmbeddedRedis) -> None:
    async def work() -> None:
        async with Opened() as filters:
            one = filters(embedded.url)
            assert not one.loaded()
            await one.load()
            assert one.loaded()
            assert one.of("g", "eu-1") == (b"config",)
            await one.put("g", RULES)
            await one.put("none", ())
            two = filters(embedded.url)
            await two.load()
            for node in (one, two):
                assert node.of("g", "eu-1") == (b"eu-*",)
                assert node.of("g", "us-1") == (), "no rule of the file is left"
                assert node.of("none", "eu-1") == ()
                assert node.of("other", "eu-1") == (b"config",)
            await two.remove("g")
            await two.remove("g")
            three = filters(embedded.url)
            await three.load()
            assert three.of("g", "eu-1") == (b"config",)

    asyncio.run(work())


def test_what_is_not_kept_does_not_hold(embedded: EmbeddedRedis) -> None:
    async def work() -> None:
        async with Opened() as filters:
            node = filters(embedded.url)
            await node.load()
            embedded.stop()
            with pytest.raises(TableUnavailable):
                await node.put("g", RULES)
            assert node.of("g", "eu-1") == (b"config",)
            with pytest.raises(TableUnavailable):
                await node.remove("g")

    asyncio.run(work())


def test_nothing_is_known_until_redis_answers(embedded: EmbeddedRedis) -> None:
    async def work() -> None:
        async with Opened() as filters:
            await filters(embedded.url).put("g", RULES)
            embedded.stop()
            node = filters(embedded.url)
            async with asyncio.timeout(patient_s(DEADLINE_S)), asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(node.load_until_loaded())
                await asyncio.sleep(0)
                with pytest.raises(TableUnavailable):
                    await node.load()
                assert not node.loaded()
                assert not waiting.done()
                embedded.start()
            assert node.loaded()
            assert node.of("g", "eu-1") == (b"eu-*",)

    asyncio.run(work())


def test_a_row_that_cannot_be_read_costs_its_group_alone(embedded: EmbeddedRedis) -> None:
    async def work() -> None:
        async with Opened() as filters:
            one = filters(embedded.url)
            await one.put("good", RULES)
            redis = Redis.from_url(embedded.url)
            await redis.hset("keyway:filters", "bad", "[{")
            await redis.aclose()
            two = filters(embedded.url)
            await two.load()
            assert two.loaded()
            assert two.rules("good").rules == RULES
            assert two.rules("bad").source == "config"

    asyncio.run(work())


def test_a_redis_that_answers_and_does_not_say_the_rules_is_told_of_once(
    embedded: EmbeddedRedis,
) -> None:
    async def work() -> None:
        async with Opened() as filters:
            redis = Redis.from_url(embedded.url)
            await redis.set("keyway:filters", "not a hash")
            node = filters(embedded.url)
            with structlog.testing.capture_logs() as logs:
                for _ in range(2):
                    with pytest.raises(TableUnavailable):
                        await node.load()
                    assert "WRONGTYPE" in node.trouble
                await redis.delete("keyway:filters")
                await node.load()
            await redis.aclose()
            assert node.trouble == ""
            assert [line["event"] for line in logs] == [
                "key_filters_not_read",
                "key_filters_read_again",
            ]

    asyncio.run(work())


@pytest.mark.parametrize("lost", [False, True])
def test_what_a_redis_with_an_older_file_has_lost_is_written_again(
    embedded: EmbeddedRedis, lost: bool
) -> None:
    """Rules that were set, changed, and removed since; or all of them are gone."""

    async def work() -> None:
        async with Opened() as filters:
            one = filters(embedded.url)
            await one.load()
            await one.put("changed", ())
            await one.put("removed", RULES)
            redis = Redis.from_url(embedded.url)
            keys = ("keyway:filters", "keyway:filter_versions")
            older = [await redis.hgetall(key) for key in keys]
            await one.put("changed", RULES)
            await one.put("new", RULES)
            await one.remove("removed")
            await redis.delete(*keys)
            for key, rows in zip(keys, [] if lost else older, strict=False):
                await redis.hset(key, mapping=cast(Any, rows))
            told: list[str] = []
            await one.look(told.append)
            assert told == [], "nothing is different here"
            two = filters(embedded.url)
            await two.load()
            for node in (one, two):
                assert node.rules("changed").rules == RULES
                assert node.rules("new").rules == RULES
                assert node.rules("removed").source == "config"
            await two.put("changed", ())
            await one.reread(told.append)
            assert (told, one.rules("changed").rules) == (["changed"], ())
            await redis.aclose()

    asyncio.run(work())


def test_removed_rules_are_remembered_within_bounds(
    embedded: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        monkeypatch.setattr(key_filters, "REMOVED_FILTERS_MAX", 2)
        async with Opened() as filters:
            node = filters(embedded.url)
            await node.load()
            for name in ("a", "b", "c", "d"):
                await node.put(name, RULES)
                await node.remove(name)
            redis = Redis.from_url(embedded.url)
            kept = {b"b", b"c", b"d", b""}  # and up to which version others are forgotten
            assert set(await redis.hkeys("keyway:filter_versions")) == kept
            await redis.aclose()

    asyncio.run(work())


def test_removed_rules_that_one_node_forgets_are_not_written_again_by_another(
    embedded: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one took Redis for an older one, with a warning, and so it went on for ever."""

    async def work() -> None:
        monkeypatch.setattr(key_filters, "REMOVED_FILTERS_MAX", 2)
        async with Opened() as filters:
            one, two = filters(embedded.url), filters(embedded.url)
            for node in (one, two):
                await node.load()
            for name in ("a", "b", "c", "d", "e"):
                await one.put(name, RULES)
                await one.remove(name)
                if name in "abc":
                    await two.reread(lambda _: None)
            with structlog.testing.capture_logs() as logs:
                for node in (two, one, two):
                    await node.look(lambda _: None)
            assert logs == []
            await two.remove("f")
            three = filters(embedded.url)
            await three.load()
            assert not {"a", "b"} & three._versions.keys()

    asyncio.run(work())


def test_removals_that_a_node_slept_through_stay(
    embedded: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It still had the rules, and wrote them again: from then on the nodes had different ones."""

    async def work() -> None:
        monkeypatch.setattr(key_filters, "REMOVED_FILTERS_MAX", 2)
        async with Opened() as filters:
            one, two = filters(embedded.url), filters(embedded.url)
            await one.load()
            for name in "abcdef":
                await one.put(name, RULES)
            await two.load()
            for name in "abcdef":
                await one.remove(name)
            await two.reread(lambda _: None)
            for name in "abcdef":
                assert two.rules(name).source == "config"
            redis = Redis.from_url(embedded.url)
            assert await redis.hgetall("keyway:filters") == {}
            await redis.aclose()

    asyncio.run(work())


def test_rules_that_were_set_before_their_cost_had_a_bound_still_count(
    embedded: EmbeddedRedis,
) -> None:
    """Left out, their members got the keys that an operator took from them."""

    async def work() -> None:
        rows = [{"client_id": f"c{at}", "keys": [f"*-eu{at:03}-*"]} for at in range(120)]
        redis = Redis.from_url(embedded.url)
        await redis.hset("keyway:filters", "g", json.dumps(rows))
        await redis.hset("keyway:filter_versions", "g", "5")
        await redis.aclose()
        async with Opened() as filters:
            node = filters(embedded.url)
            await node.load()
            assert node.of("g", "c7") == (b"*-eu007-*",)
            assert node.rules("g").source == "rest"

    asyncio.run(work())
