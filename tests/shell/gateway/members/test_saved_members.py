"""SavedMembers kept in a real Redis: what a restart finds, and what happens while Redis is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from redis.asyncio import Redis

from gateway.core.share.membership import ShareGroup, ShareMember
from gateway.embedded.redis import EmbeddedRedis
from gateway.members.redis_table import TableUnavailable
from gateway.members.saved_members import SavedMembers
from tests.rig.loopback import until

KEY = "keyway:members"
Tell = Callable[[SavedMembers, Redis], Awaitable[None]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path) as redis:
        yield redis


def story(server: EmbeddedRedis, tell: Tell) -> None:
    async def work() -> None:
        redis = Redis.from_url(server.url, socket_timeout=2)
        memberships = SavedMembers(redis)
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(memberships.write_forever())
            await tell(memberships, redis)
            writing.cancel()
        await redis.aclose()

    asyncio.run(work())


def member(member_id: str, **changes: object) -> ShareMember:
    known = ShareMember(
        member_id=member_id,
        client_id="client",
        client_host="10.0.0.1",
        rack_id=None,
        topics=("t1", "t2"),
        epoch=4,
        previous_epoch=3,
        assignment={b"x" * 16: (0,)},
        last_heartbeat_ms=123,
    )
    for name, value in changes.items():
        setattr(known, name, value)
    return known


def group(name: str, *members: ShareMember, epoch: int = 4) -> ShareGroup:
    found = ShareGroup(name, 45_000, 3_000, 10, epoch)
    found.members.update({m.member_id: m for m in members})
    return found


async def written(redis: Redis, *names: str) -> None:
    async def kept() -> set[Any]:
        return set(await redis.hkeys(KEY))

    async with asyncio.timeout(30):
        while await kept() != {name.encode() for name in names}:  # noqa: ASYNC110  a server
            await asyncio.sleep(0.005)


def test_members_come_back_as_they_were_in_join_order(server: EmbeddedRedis) -> None:
    async def tell(memberships: SavedMembers, redis: Redis) -> None:
        odd = "gr{üp} |\n"
        memberships.changed(group("g", member("m2"), member("m1", rack_id="r", topics=())))
        memberships.changed(group(odd, member("m3", client_id="ключ"), epoch=9))
        memberships.changed(group("empty"))
        await written(redis, "g", odd, "empty")
        found = await SavedMembers(redis).load()
        assert found["g"][0] == 4
        assert [m.member_id for m in found["g"][1]] == ["m2", "m1"]
        assert [m.topics for m in found["g"][1]] == [("t1", "t2"), ()]
        assert found["g"][1][1].rack_id == "r"
        assert found[odd][1][0].client_id == "ключ"
        assert (found[odd][0], found[odd][1][0].previous_epoch) == (9, 3)
        assert found["empty"] == (4, [])
        kept = found["g"][1][0]
        assert (kept.assignment, kept.connections) == ({}, set()), "of this run, not of that one"

    story(server, tell)


def test_what_is_forgotten_is_gone_and_may_come_again(server: EmbeddedRedis) -> None:
    async def tell(memberships: SavedMembers, redis: Redis) -> None:
        for name in ("a", "b", "c"):
            memberships.changed(group(name, member("m")))
        await written(redis, "a", "b", "c")
        memberships.forgotten("a")
        memberships.forgotten("b")
        memberships.changed(group("b", member("again")))
        await memberships.forget("c")
        await written(redis, "b")
        assert (await memberships.load())["b"][1][0].member_id == "again"

    story(server, tell)


def test_one_unreadable_row_costs_only_itself(server: EmbeddedRedis) -> None:
    async def tell(memberships: SavedMembers, redis: Redis) -> None:
        memberships.changed(group("good", member("m")))
        await written(redis, "good")
        bad: dict[Any, Any] = {
            b"\xff\xfe": b"{",
            b"text": b"no json",
            b"list": b"[1]",
            b"half": b'{"epoch": 1}',
            b"deep": b"[" * 100_000,
            b"number": b'{"epoch": "x", "members": []}',
        }
        await redis.hset(KEY, mapping=bad)
        with structlog.testing.capture_logs() as logs:
            found = await memberships.load()
        assert list(found) == ["good"]
        assert len(logs) == 6

    story(server, tell)


def test_while_redis_is_away_changes_wait_and_the_last_one_counts(server: EmbeddedRedis) -> None:
    async def tell(memberships: SavedMembers, redis: Redis) -> None:
        server.kill()
        memberships.changed(group("g", member("m1")))
        memberships.changed(group("only once"))
        with pytest.raises(TableUnavailable):
            await memberships.flush()
        assert await SavedMembers(redis).load() == {}
        memberships.changed(group("g", member("m1"), member("m2"), epoch=5))
        memberships.changed(group("h"))
        memberships.forgotten("h")
        server.start()
        await written(redis, "g", "only once")
        epoch, members = (await memberships.load())["g"]
        assert (epoch, [m.member_id for m in members]) == (5, ["m1", "m2"])

    story(server, tell)


def test_flushing_at_the_end_leaves_nothing_behind(server: EmbeddedRedis) -> None:
    async def tell(memberships: SavedMembers, _redis: Redis) -> None:
        for at in range(50):
            memberships.changed(group(f"g{at}", member("m")))
        await memberships.flush()
        assert len(await memberships.load()) == 50
        await until(lambda: not memberships._dirty)

    story(server, tell)
