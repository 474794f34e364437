"""The nodes and owners in a real Redis: what routing.lua takes and refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from importlib import resources
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.core.routing.ownership import Node, Routing
from gateway.embedded.redis import EmbeddedRedis
from gateway.routing.shared_table import KEY, NodeTaken, SharedTable, living_nodes
from gateway.routing.shared_topics import TOPICS_KEY

pytestmark = pytest.mark.integration

OWNERS = Routing(
    owners={1: "a", 2: "b"}, next_owners={2: "a"}, drained=frozenset("c"), placed={2: "a"}
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path_factory.mktemp("redis")) as running:
        yield running


Work = Callable[[Redis], Coroutine[None, None, None]]


@pytest.fixture
def on_redis(server: EmbeddedRedis) -> Callable[[Work], None]:
    """Runs the work on an empty Redis."""

    async def told(work: Work) -> None:
        async with Redis.from_url(server.url) as redis:
            await redis.flushall()
            await work(redis)

    return lambda work: asyncio.run(told(work))


def test_what_one_node_says_another_reads(on_redis: Callable[[Work], None]) -> None:
    async def work(redis: Redis) -> None:
        a, b = SharedTable(redis, "1"), SharedTable(redis, "2")
        node = Node(
            id="a",
            serves={1: {"clients": ("a.example", 9201), "tls": ("a.example", 9301)}},
            leaving=True,
            silent=frozenset({2}),
            reached=frozenset({1, 3}),
        )
        await a.beat(node, {"format": "1"}, {"admin": "x:1"})
        view = await b.beat(Node(id="b"), {}, {})
        rows = {row.node.id: row for row in view.rows}
        assert rows["a"].node == node
        assert (rows["a"].agreed, rows["a"].facts) == ({"format": "1"}, {"admin": "x:1"})
        assert 5_000 < rows["a"].alive_ms <= 6_000
        assert [living.node.id for living in await living_nodes(redis)] == ["a", "b"]

    on_redis(work)


def test_owners_are_taken_from_who_knows_the_newest_generation(
    on_redis: Callable[[Work], None],
) -> None:
    async def work(redis: Redis) -> None:
        a, b = SharedTable(redis, "1"), SharedTable(redis, "2")
        await a.beat(Node(id="a"), {}, {})
        first = (await b.beat(Node(id="b"), {}, {})).routing
        assert await a.publish("a", first.generation, OWNERS)
        assert not await b.publish("b", first.generation, Routing(owners={1: "b"}))
        read = (await b.beat(Node(id="b"), {}, {})).routing
        assert read.same_content(OWNERS)
        assert await b.leave("b", read.generation, Routing(owners={1: "a", 2: "a"}))
        assert [node.node.id for node in await living_nodes(redis)] == ["a"]
        with pytest.raises(NodeTaken):
            await b.publish("b", read.generation, OWNERS)
        await redis.delete(KEY)
        await a.beat(Node(id="a"), {}, {})
        assert await a.publish("a", 0, OWNERS)
        after = (await a.beat(Node(id="a"), {}, {})).routing
        assert after.generation > read.generation, "also after a flush"

    on_redis(work)


def test_a_clock_that_was_put_back_keeps_no_dead_node_alive(
    on_redis: Callable[[Work], None],
) -> None:
    """As after a fail-over to a machine whose clock is behind: the row says an hour from now."""

    async def work(redis: Redis) -> None:
        a, b, again = SharedTable(redis, "1"), SharedTable(redis, "2"), SharedTable(redis, "3")
        await a.beat(Node(id="a", leaving=True), {}, {"admin": "x:1"})

        async def an_hour_ahead() -> None:
            row = await redis.hget(KEY, "node:a")
            assert isinstance(row, bytes)
            incarnation, until, description = row.split(b" ", 2)
            later = str(int(until) + 3_600_000_000).encode()
            await redis.hset(KEY, "node:a", b" ".join((incarnation, later, description)))

        await an_hour_ahead()
        rows = {row.node.id: row for row in (await b.beat(Node(id="b"), {}, {})).rows}
        assert 5_000 < rows["a"].alive_ms <= 6_000, "another node counts it anew"
        assert (rows["a"].node.leaving, rows["a"].facts) == (True, {"admin": "x:1"})
        await an_hour_ahead()
        for _ in range(2):
            with pytest.raises(NodeTaken) as taken:
                await again.beat(Node(id="a"), {}, {})
            assert 5_000 < taken.value.for_ms <= 6_001, "and so does its next process"

    on_redis(work)


def test_a_live_node_keeps_its_name(on_redis: Callable[[Work], None]) -> None:
    async def work(redis: Redis) -> None:
        one, two = SharedTable(redis, "1"), SharedTable(redis, "2")
        await one.beat(Node(id="a"), {}, {})
        with pytest.raises(NodeTaken) as taken:
            await two.beat(Node(id="a"), {}, {})
        assert 5_000 < taken.value.for_ms <= 6_001
        with pytest.raises(NodeTaken):
            await two.publish("a", 0, OWNERS)

    on_redis(work)


def test_partition_counts_only_grow_and_make_a_generation(
    on_redis: Callable[[Work], None],
) -> None:
    """topics.lua; tests/unit/gateway/routing/test_shared_topics.py has the rest."""

    async def work(redis: Redis) -> None:
        script = resources.files("gateway.routing").joinpath("topics.lua").read_text()

        async def told(*words: str) -> tuple[int, int, dict[bytes, bytes]]:
            changes = await redis.eval(script, 2, KEY, TOPICS_KEY, *words)
            generation = int(await redis.hget(KEY, "generation") or 0)
            rows: dict[Any, Any] = await redis.hgetall(TOPICS_KEY)
            return int(changes), generation, rows

        changes, first, rows = await told("t", "4", "u", "1")
        assert (changes, rows) == (2, {b"t": b"1 4", b"u": b"1 1"})
        assert first > 0
        assert await told("t", "4", "u", "1") == (0, first, rows)
        assert await told("t", "3") == (0, first, rows)
        changes, second, rows = await told("t", "8", "u", "1")
        assert (changes, rows) == (1, {b"t": b"2 8", b"u": b"1 1"})
        assert second > first

    on_redis(work)
