"""SavedMembers kept in a real Redis: after a restart, and while Redis is away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from gateway.core.share.membership import EVERYBODY, ShareGroup, ShareMember
from gateway.embedded.redis import EmbeddedRedis
from gateway.members.limits import SAVED_DEPARTED_MAX
from gateway.members.redis_table import RedisTable, TableUnavailable
from gateway.members.saved_members import SavedMembers
from tests.rig.loopback import until
from tests.rig.patience import patient_s

KEY, MEMBERS_KEY = "keyway:share_groups", "keyway:share_members"
OLD_KEY = "keyway:members"  # of before 0.1.0
ONCE = Retry(NoBackoff(), 0)
Tell = Callable[[SavedMembers, Redis], Awaitable[None]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path) as redis:
        yield redis


def story(server: EmbeddedRedis, tell: Tell) -> None:
    async def work() -> None:
        async with Redis.from_url(server.url, retry=ONCE) as redis:
            memberships = SavedMembers(redis)
            async with asyncio.timeout(patient_s(120)), asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(memberships.write_forever())
                await tell(memberships, redis)
                writing.cancel()

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
    found = ShareGroup(name, 45_000, 3_000, 10, 1_000, epoch=epoch)
    found.members.update({m.member_id: m for m in members})
    return found


async def written(redis: Redis, *names: str) -> None:
    """Waits until Redis has the rows `names` and no others; a busy machine may take its time."""

    async def kept() -> set[Any]:
        try:
            return set(await redis.hkeys(KEY))
        except RedisError as error:
            return {error}

    wanted, seen = {name.encode() for name in names}, set[Any]()
    try:
        async with asyncio.timeout(patient_s(60)):
            while (seen := await kept()) != wanted:  # noqa: ASYNC110  a server
                await asyncio.sleep(0.005)
    except TimeoutError:
        pytest.fail(f"Redis has {seen}, not {wanted}")


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
        assert found["empty"] == (4, [], ())
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
            b"half": b"{}",
            b"null": b'{"epoch": null}',
            b"deep": b"[" * 100_000,
            b"number": b'{"epoch": "x"}',
        }
        row = await redis.hget(MEMBERS_KEY, '["good", "m"]')
        names: dict[Any, Any] = {b"no name": row, b"[1]": row, b'["good", "half"]': b"{}"}
        await redis.hset(KEY, mapping=bad)
        await redis.hset(MEMBERS_KEY, mapping=names)
        with structlog.testing.capture_logs() as logs:
            found = await memberships.load()
        assert list(found) == ["good"]
        assert [m.member_id for m in found["good"].members] == ["m"]
        assert len(logs) == 7 + len(names)

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
        epoch, members, _ = (await memberships.load())["g"]
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


async def written_bytes(redis: Redis) -> int:
    return int((await redis.info("stats"))["total_net_input_bytes"])


def test_a_join_costs_the_same_however_many_members_the_group_has(server: EmbeddedRedis) -> None:
    async def tell(memberships: SavedMembers, redis: Redis) -> None:
        topics = tuple(f"topic-{at:04}" for at in range(100))
        large = group("g", *(member(f"m{at}", topics=topics) for at in range(1_000)))
        memberships.changed(large)
        await memberships.flush()
        before = await written_bytes(redis)
        for at in range(10):
            large.members[f"late-{at}"] = member(f"late-{at}", topics=topics)
            large.epoch += 1
            memberships.changed(large)
            await memberships.flush()
        assert await written_bytes(redis) - before < 10 * 2_500, "a row holds 1,300 bytes of topics"
        del large.members["m500"]
        memberships.changed(large)
        await memberships.flush()
        found = (await SavedMembers(redis).load())["g"]
        assert (found.epoch, [m.member_id for m in found.members]) == (14, list(large.members))

    story(server, tell)


def test_a_member_that_leaves_and_joins_again_is_the_last_one(server: EmbeddedRedis) -> None:
    async def tell(memberships: SavedMembers, redis: Redis) -> None:
        known = group("g", member("m1"), member("m2"), member("m3"))
        memberships.changed(known)
        await memberships.flush()
        known.members["m1"] = known.members.pop("m1")
        memberships.changed(known)
        await memberships.flush()
        again = SavedMembers(redis)
        found = (await again.load())["g"]
        assert [m.member_id for m in found.members] == ["m2", "m3", "m1"]
        known.members["m0"] = member("m0")
        again.changed(known)
        await again.flush()
        found = (await SavedMembers(redis).load())["g"]
        assert [m.member_id for m in found.members] == ["m2", "m3", "m1", "m0"]

    story(server, tell)


def test_who_left_a_group_with_key_filters_is_saved_until_nobody_waits(
    server: EmbeddedRedis,
) -> None:
    """One for all with the same filters and topics."""
    filters = {"a": (b"a-*",), "b": (b"b-*",), "b2": (b"b-*",)}

    async def tell(_: SavedMembers, redis: Redis) -> None:
        memberships = SavedMembers(redis, lambda _, client: filters.get(client, ()))
        names = ("a", "b", "b2", "all")
        known = group("g", *(member(name, client_id=name) for name in names))
        others = group("others", member("all"), member("all2"))
        for one, gone in ((known, ("b", "b2", "all")), (others, ("all2",))):
            for name in gone:
                one.remove(name, 5)
            memberships.changed(one)
        await memberships.flush()
        saved = await SavedMembers(redis).load()
        topics = ("t1", "t2")
        assert saved["g"].departed == (("b2", topics), ("all", topics))
        assert saved["others"].departed == (), "every key has a taker"
        known.departed.clear()
        memberships.changed(known)
        await memberships.flush()
        assert (await SavedMembers(redis).load())["g"].departed == ()

    story(server, tell)


def prefixed(_: str, client: str) -> tuple[bytes, ...]:
    return (client.encode() + b"-*",)


def test_if_more_filters_have_left_than_are_saved_everybody_is_awaited(
    server: EmbeddedRedis,
) -> None:
    async def tell(_: SavedMembers, redis: Redis) -> None:
        memberships = SavedMembers(redis, prefixed)
        known = group("g", member("stays"))
        for at in range(SAVED_DEPARTED_MAX + 1):
            known.members[f"m{at}"] = member(f"m{at}", client_id=f"m{at}")
            known.remove(f"m{at}", at)
            memberships.changed(known)
            await memberships.flush()
            saved = (await SavedMembers(redis).load())["g"]
            assert (EVERYBODY in saved.departed) is (at == SAVED_DEPARTED_MAX)
        assert len(saved.departed) == SAVED_DEPARTED_MAX + 1

    story(server, tell)


@pytest.mark.parametrize("commands", range(4))
def test_who_leaves_is_known_whenever_the_node_dies(
    server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch, commands: int
) -> None:
    """As a member, or as one that left: a node that dies between two rows has lost neither."""

    async def tell(_: SavedMembers, redis: Redis) -> None:
        memberships = SavedMembers(redis, prefixed)
        known = group("g", member("a", client_id="a"), member("b", client_id="b"))
        memberships.changed(known)
        await memberships.flush()
        known.remove("b", 5)
        known.members["c"] = member("c", client_id="c")
        memberships.changed(known)
        left = [None] * commands

        def until_it_dies(name: str) -> None:
            command = getattr(Redis, name)

            async def sent(*args: Any, **more: Any) -> Any:
                if not left:
                    raise RedisConnectionError("the node is dead")
                left.pop()
                return await command(*args, **more)

            monkeypatch.setattr(Redis, name, sent)

        with monkeypatch.context():
            for name in ("hset", "hdel"):
                until_it_dies(name)
            with suppress(TableUnavailable):
                await memberships.flush()
        monkeypatch.undo()
        saved = (await SavedMembers(redis).load())["g"]
        there = [one.client_id for one in saved.members]
        assert "b" in [*there, *(client for client, _ in saved.departed)]
        if not left and commands == 3:
            assert (there, saved.departed) == (["a", "c"], (("b", ("t1", "t2")),))

    story(server, tell)


def test_whoever_left_a_group_whose_row_is_lost_is_awaited(server: EmbeddedRedis) -> None:
    async def tell(memberships: SavedMembers, redis: Redis) -> None:
        memberships.changed(group("g", member("m1")))
        await memberships.flush()
        await redis.delete(KEY)
        saved = (await SavedMembers(redis).load())["g"]
        assert ([one.member_id for one in saved.members], saved.departed) == (["m1"], (EVERYBODY,))

    story(server, tell)


def test_rows_that_redis_has_lost_are_written_again(server: EmbeddedRedis) -> None:
    """A member that leaves later was all that Redis knew of the group."""

    async def tell(memberships: SavedMembers, redis: Redis) -> None:
        known = group("g", member("m1"), member("m2"))
        memberships.changed(known)
        await memberships.flush()
        await redis.flushall()
        memberships.doubted()
        del known.members["m2"]
        memberships.changed(known)
        await memberships.flush()
        saved = (await SavedMembers(redis).load())["g"]
        assert [one.member_id for one in saved.members] == ["m1"]

    story(server, tell)


def test_what_was_half_written_is_put_right(
    server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a write is lost: a row that nobody knows of must not stay."""

    async def tell(memberships: SavedMembers, redis: Redis) -> None:
        known = group("g", member("m1"), member("m2"))
        memberships.changed(known)
        await written(redis, "g")
        write = RedisTable.write

        async def lost_answer(table: RedisTable[Any], *args: Any) -> None:
            await write(table, *args)
            raise TableUnavailable("the answer was lost")

        known.members["m3"] = member("m3")
        with monkeypatch.context() as patched:
            patched.setattr(RedisTable, "write", lost_answer)
            memberships.changed(known)
            with pytest.raises(TableUnavailable):
                await memberships.flush()
        del known.members["m3"]
        await memberships.flush()
        found = (await SavedMembers(redis).load())["g"]
        assert [m.member_id for m in found.members] == ["m1", "m2"]

    story(server, tell)


def test_rows_of_before_are_moved_once(server: EmbeddedRedis) -> None:
    async def tell(memberships: SavedMembers, redis: Redis) -> None:
        entry = {
            "client_id": "client",
            "client_host": "10.0.0.1",
            "rack_id": None,
            "topics": ["t2", "t1"],
            "epoch": 4,
            "previous_epoch": 3,
        }
        rows = [{**entry, "member_id": "m2"}, {**entry, "member_id": "m1"}]
        old: dict[Any, Any] = {
            "g": json.dumps({"epoch": 7, "members": rows}),
            "empty": json.dumps({"epoch": 2, "members": []}),
            "bad": "{",
        }
        await redis.hset(OLD_KEY, mapping=old)
        for reader in (memberships, SavedMembers(redis), SavedMembers(redis)):
            found = await reader.load()
            assert set(found) == {"g", "empty"}
            assert (found["g"].epoch, found["empty"].epoch) == (7, 2)
            assert [m.member_id for m in found["g"].members] == ["m2", "m1"]
            assert found["g"].members[0].topics == ("t1", "t2")
            assert not await redis.exists(OLD_KEY)
        known = group("g", *found["g"].members, epoch=8)
        del known.members["m2"]
        memberships.changed(known)
        await memberships.flush()
        assert await redis.hkeys(MEMBERS_KEY) == [b'["g", "m1"]']
        await memberships.forget("g")
        assert await redis.hkeys(MEMBERS_KEY) == []

    story(server, tell)


def test_a_node_that_could_not_read_at_its_start_leaves_no_stale_member(
    server: EmbeddedRedis,
) -> None:
    async def tell(memberships: SavedMembers, redis: Redis) -> None:
        memberships.changed(group("g", member("m1"), member("m2")))
        memberships.changed(group("h", member("m3")))
        await memberships.flush()
        server.kill()
        late = SavedMembers(redis)
        assert await late.load() == {}
        server.start()
        late.changed(group("g", member("m2"), epoch=1))
        await late.flush()
        found = await SavedMembers(redis).load()
        assert [m.member_id for m in found["g"].members] == ["m2"]
        assert [m.member_id for m in found["h"].members] == ["m3"]

    story(server, tell)


def test_a_node_that_starts_before_redis_reads_its_rows_later(server: EmbeddedRedis) -> None:
    """Before it writes its own: they name who left."""

    async def tell(memberships: SavedMembers, redis: Redis) -> None:
        memberships.changed(group("g", member("m1"), member("m2")))
        await memberships.flush()
        server.kill()
        late = SavedMembers(redis)
        assert late.loaded(), "nobody has asked yet"
        heard: list[list[str]] = []
        late.on_late(lambda saved: heard.append([one.member_id for one in saved["g"].members]))
        assert await late.load() == {}
        assert not late.loaded()
        late.changed(group("g", member("m2")))
        with pytest.raises(TableUnavailable):
            await late.flush()
        server.start()
        await late.flush()
        await late.flush()
        assert heard == [["m1", "m2"]]
        assert late.loaded()
        assert [one.member_id for one in (await late.load())["g"].members] == ["m2"]

    story(server, tell)
