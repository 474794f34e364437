"""Two nodes that share a real Redis: who has which group, and what each knows of the others'."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.config.file import Config
from gateway.core.routing.ownership import Node, Routing, Standing
from gateway.core.share.membership import Heartbeat
from gateway.embedded.redis import EmbeddedRedis
from gateway.members import build as members_build
from gateway.members.change_log import KEY as LOG_KEY
from gateway.members.coordination import SharedCoordination
from gateway.routing.shared_table import SharedTable
from tests.rig.loopback import until
from tests.rig.patience import patient_s

BROKER = 1  # coordinates all groups
GROUP = "g"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path) as redis:
        yield redis


class Kafka:
    """Of gateway.upstream.cluster.Upstream what members ask."""

    async def coordinator(self, group: str) -> int:  # noqa: ARG002
        return BROKER

    def known_coordinator(self, group: str) -> int | None:  # noqa: ARG002
        return BROKER

    def forget_coordinator(self, group: str) -> None: ...
    async def look_for_coordinators(self, groups: Sequence[str]) -> None: ...
    def request_refresh(self) -> None: ...


class Owning:
    """Of gateway.routing.owners.Owners what members ask."""

    def __init__(self, table: SharedTable, name: str) -> None:
        self.identity = (name, table.incarnation)
        self.owns = False
        self.callbacks: list[Callable[[], None]] = []

    def standing(self, broker: int | None) -> Standing:
        assert broker == BROKER
        return Standing.OWNED if self.owns else Standing.ELSEWHERE

    def on_change(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def on_let_go(self, callback: Any) -> None: ...
    def look_soon(self) -> None: ...
    def others(self) -> Sequence[str]:
        return ()


class Process:
    """The members of one node, as gateway/node wires them."""

    def __init__(self, redis: Redis, name: str) -> None:
        self.name = name
        self.table = SharedTable(redis, f"process-{name}")
        self.owning = Owning(self.table, name)
        upstream = SimpleNamespace(cluster=Kafka())
        ignored = SimpleNamespace(on_disconnect=lambda _: None, on_drain=lambda _: None)
        self.part = members_build.build(
            Config(),
            cast(Any, upstream),
            cast(Any, SimpleNamespace(server=ignored)),
            cast(Any, self.owning),
            redis,
            now_ms,
        )
        self.groups = self.part.room.groups
        coordination = self.part.room.coordination
        assert isinstance(coordination, SharedCoordination)
        self.coordination = coordination

    async def heartbeat(self, member: str, epoch: int = 0) -> int:
        await self.coordination.check(GROUP, BROKER)
        beat = Heartbeat(member, epoch, None, ("t",) if epoch == 0 else None, "c", "h", 1)
        return self.groups.heartbeat(GROUP, beat, lambda _: None, now_ms()).member_epoch

    async def save(self) -> None:
        await self.part.room.saved_members.flush()

    def members(self) -> list[str]:
        known = self.groups.get(GROUP)
        return [] if known is None else list(known.members)

    async def follow(self) -> None:
        await self.coordination.follow_forever()


class Nodes:
    def __init__(self, redis: Redis, tasks: asyncio.TaskGroup) -> None:
        self.redis = redis
        self.a, self.b = Process(redis, "a"), Process(redis, "b")
        self._tasks = tasks
        self._following: list[asyncio.Task[None]] = []

    def follow(self) -> None:
        """From now on each looks for what the other has written."""
        self._following = [self._tasks.create_task(node.follow()) for node in (self.a, self.b)]

    def end(self) -> None:
        for task in self._following:
            task.cancel()

    async def own(self, owner: Process) -> None:
        generation = 0
        for node in (self.a, self.b):
            view = await node.table.beat(Node(id=node.name), {}, {})
            generation = view.routing.generation
        routing = Routing(owners={BROKER: owner.name})
        assert await owner.table.publish(owner.name, generation, routing)
        for node in (self.a, self.b):
            node.owning.owns = node is owner
            for callback in node.owning.callbacks:
                callback()


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def story(server: EmbeddedRedis, tell: Callable[[Nodes], Awaitable[None]]) -> None:
    async def work() -> None:
        async with (
            Redis.from_url(server.url, retry=Retry(NoBackoff(), 0)) as redis,
            asyncio.timeout(patient_s(60)),
            asyncio.TaskGroup() as tasks,
        ):
            nodes = Nodes(redis, tasks)
            try:
                await nodes.own(nodes.a)
                await tell(nodes)
            finally:
                nodes.end()

    asyncio.run(work())


def test_members_are_written_again_when_redis_was_flushed(server: EmbeddedRedis) -> None:
    """Otherwise the other nodes would forget them for good: a member's row never changes again."""

    async def tell(nodes: Nodes) -> None:
        await nodes.a.heartbeat("m1")
        await nodes.a.save()
        nodes.follow()
        await until(lambda: nodes.b.members() == ["m1"])
        await nodes.redis.flushall()
        await until(lambda: nodes.b.members() == [])
        await nodes.own(nodes.a)
        writing = asyncio.ensure_future(nodes.a.part.room.saved_members.write_forever())
        await until(lambda: nodes.b.members() == ["m1"])
        writing.cancel()

    story(server, tell)


def test_a_join_that_a_fail_over_of_redis_has_lost_is_written_again(server: EmbeddedRedis) -> None:
    """The log ends where all nodes have read it: nothing shows but that this node's entry is not
    in it.
    """

    async def tell(nodes: Nodes) -> None:
        await nodes.a.heartbeat("m1")
        await nodes.a.save()
        for node in (nodes.a, nodes.b):
            await node.coordination.start()
        await nodes.a.heartbeat("m2")
        await nodes.a.save()
        newest: Any = await nodes.redis.xrevrange(LOG_KEY, count=1)
        assert await nodes.redis.xdel(LOG_KEY, newest[0][0]) == 1
        assert await nodes.redis.hdel("keyway:share_members", json.dumps([GROUP, "m2"])) == 1
        nodes.follow()
        writing = asyncio.ensure_future(nodes.a.part.room.saved_members.write_forever())
        await until(lambda: nodes.b.members() == ["m1", "m2"])
        writing.cancel()

    story(server, tell)


def test_a_group_that_is_made_anew_elsewhere_is_seen_where_it_was_forgotten(
    server: EmbeddedRedis,
) -> None:
    async def tell(nodes: Nodes) -> None:
        await nodes.a.heartbeat("m1")
        await nodes.a.heartbeat("m1", -1)
        nodes.a.groups.forget(GROUP)
        await nodes.a.save()
        nodes.follow()
        await nodes.own(nodes.b)
        await nodes.b.heartbeat("m2")
        await nodes.b.save()
        await until(lambda: nodes.a.members() == ["m2"])

    story(server, tell)
