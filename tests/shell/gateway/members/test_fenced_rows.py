"""Members of several nodes in a real Redis: only the coordinator's node writes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.core.routing.ownership import Node, Routing
from gateway.core.share.membership import ShareGroup
from gateway.embedded.redis import EmbeddedRedis
from gateway.members.change_log import ChangeLog, GroupChange
from gateway.members.fenced_rows import Writer
from gateway.members.redis_table import TableUnavailable
from gateway.members.saved_members import SavedMembers
from gateway.routing.shared_table import SharedTable
from tests.rig.patience import patient_s
from tests.shell.gateway.members.test_saved_members import group, member

BROKER = 1
Tell = Callable[["Nodes"], Awaitable[None]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path) as redis:
        yield redis


class Nodes:
    """Nodes a and b, each of which takes itself for the coordinator of every group."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.tables = {name: SharedTable(redis, f"process-{name}") for name in "ab"}
        self.saved = {name: self.saves(name, f"process-{name}") for name in "ab"}

    def saves(self, name: str, process: str) -> SavedMembers:
        saved = SavedMembers(self.redis)
        saved.share(Writer(name, process), lambda _: BROKER)
        return saved

    async def own(self, owner: str) -> None:
        generation = 0
        for name, table in self.tables.items():
            view = await table.beat(Node(id=name), {}, {})
            generation = view.routing.generation
        assert await self.tables[owner].publish(owner, generation, Routing(owners={BROKER: owner}))

    async def save(self, name: str, which: ShareGroup) -> None:
        self.saved[name].changed(which)
        await self.saved[name].flush()

    async def members(self) -> list[str]:
        found = (await SavedMembers(self.redis).load()).get("g")
        return [] if found is None else [one.member_id for one in found.members]


def story(server: EmbeddedRedis, tell: Tell) -> None:
    async def work() -> None:
        async with Redis.from_url(server.url, retry=Retry(NoBackoff(), 0)) as redis:
            async with asyncio.timeout(patient_s(60)):
                await tell(Nodes(redis))

    asyncio.run(work())


def test_a_coordinator_that_lost_its_virtual_broker_writes_nothing(server: EmbeddedRedis) -> None:
    async def tell(nodes: Nodes) -> None:
        await nodes.own("a")
        await nodes.save("a", group("g", member("m1")))
        await nodes.own("b")
        await nodes.save("b", group("g", member("m1"), member("m2")))
        last = await ChangeLog(nodes.redis).newest()
        with pytest.raises(TableUnavailable, match="another node coordinates group g"):
            await nodes.save("a", group("g"))  # it woke, and evicted everybody
        with pytest.raises(TableUnavailable):
            await nodes.saved["a"].forget("g")
        assert await nodes.members() == ["m1", "m2"]
        assert await ChangeLog(nodes.redis).newest() == last, "nobody is told to read again"

    story(server, tell)


def test_another_process_of_the_same_node_id_writes_nothing(server: EmbeddedRedis) -> None:
    async def tell(nodes: Nodes) -> None:
        await nodes.own("a")
        await nodes.save("a", group("g", member("m1")))
        before = nodes.saves("a", "an earlier process")
        before.changed(group("g"))
        with pytest.raises(TableUnavailable):
            await before.flush()
        assert await nodes.members() == ["m1"]

    story(server, tell)


def test_what_was_refused_is_written_once_the_store_knows_the_owner(server: EmbeddedRedis) -> None:
    """After a flush of Redis nobody owns anything, until the next beat."""

    async def tell(nodes: Nodes) -> None:
        await nodes.own("a")
        await nodes.save("a", group("g", member("m1")))
        await nodes.redis.flushall()
        with pytest.raises(TableUnavailable):
            await nodes.save("a", group("g", member("m1"), member("m2")))
        await nodes.own("a")
        await nodes.saved["a"].flush()
        assert "m2" in await nodes.members()

    story(server, tell)


def test_a_group_is_written_and_forgotten_in_portions(server: EmbeddedRedis) -> None:
    async def tell(nodes: Nodes) -> None:
        await nodes.own("a")
        names = [f"m{at:04}" for at in range(1_100)]
        await nodes.save("a", group("g", *(member(name) for name in names)))
        assert await nodes.members() == names
        await nodes.saved["a"].forget("g")
        assert await nodes.members() == []

    story(server, tell)


def test_others_hear_which_rows_changed_and_read_no_others(server: EmbeddedRedis) -> None:
    """A join costs the other nodes the same however many groups there are."""

    async def tell(nodes: Nodes) -> None:
        await nodes.own("a")
        for at in range(50):
            await nodes.save("a", group(f"g{at}", member("m1"), member("m2")))
        changes = ChangeLog(nodes.redis)
        position = await changes.newest()
        await nodes.saved["b"].reload()
        await nodes.redis.config_resetstat()
        await nodes.save("a", group("g7", member("m2"), member("m3")))
        heard = await changes.since(position)
        assert heard is not None
        assert heard.groups == {"g7": GroupChange({"m1", "m3"})}
        saved = (await nodes.saved["b"].reread(heard.groups))["g7"]
        assert saved is not None
        assert [one.member_id for one in saved.members] == ["m2", "m3"]
        assert "cmdstat_hgetall" not in await nodes.redis.info("commandstats")

    story(server, tell)


def test_others_hear_who_was_evicted(server: EmbeddedRedis) -> None:
    async def tell(nodes: Nodes) -> None:
        await nodes.own("a")
        await nodes.save("a", group("g", member("m1"), member("m2"), member("m3")))
        changes = ChangeLog(nodes.redis)
        position = await changes.newest()
        nodes.saved["a"].evicted("g", ["m1"])
        await nodes.save("a", group("g", member("m3")))  # m2 left
        heard = await changes.since(position)
        assert heard is not None
        assert heard.groups == {"g": GroupChange({"m1", "m2"}, {"m1"})}

    story(server, tell)


def test_others_hear_that_a_group_is_forgotten(server: EmbeddedRedis) -> None:
    async def tell(nodes: Nodes) -> None:
        await nodes.own("a")
        await nodes.save("a", group("g", member("m1")))
        changes = ChangeLog(nodes.redis)
        position = await changes.newest()
        await nodes.saved["b"].reload()
        await nodes.saved["a"].forget("g")
        heard = await changes.since(position)
        assert heard is not None
        assert await nodes.saved["b"].reread(heard.groups) == {"g": None}

    story(server, tell)
