"""Nodes that share a table: they join, move, leave, die, and lose sight of Redis; on the virtual
clock, over a model of routing.lua.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest

from gateway.core.routing.orders import NobodyElse
from gateway.core.routing.ownership import Standing
from gateway.routing.limits import BROKERS_SEEN_S_MAX, SESSION_MS
from gateway.routing.owners import CannotJoin, SharedOwners
from gateway.routing.shared_table import RoutingUnavailable
from tests.rig.table_in_memory import Shared, TableInMemory
from tests.rig.virtual_time import now_ms, run

MOVED_S = 1.0  # a few beats


@dataclass
class Running:
    owners: SharedOwners
    task: asyncio.Task[None]
    reach: list[frozenset[int]]  # silent, reached
    serves: set[int]
    let_go: list[frozenset[int]] = field(default_factory=list)
    changes: int = 0

    def owned(self) -> list[int]:
        return [broker for broker in (1, 2) if self.owners.standing(broker) is Standing.OWNED]

    async def die(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


async def started(
    shared: Shared, name: str, *, cluster: str = "c", incarnation: str = ""
) -> Running:
    reach: list[frozenset[int]] = [frozenset(), frozenset({1, 2})]
    serves = {1, 2}
    owners = SharedOwners(
        name,
        TableInMemory(shared, incarnation or name),
        serves=lambda: {broker: {"clients": (name, broker)} for broker in sorted(serves)},
        agreed=lambda: {"upstream cluster": cluster},
        facts=dict,
        reach=lambda: (reach[0], reach[1]),
        clock=lambda: now_ms() / 1000,
    )
    await owners.enter()
    await owners.join()
    node = Running(owners, asyncio.get_running_loop().create_task(owners.run()), reach, serves)

    async def let_go(brokers: frozenset[int]) -> None:
        assert all(owners.standing(broker) is Standing.HANDING_OVER for broker in brokers)
        node.let_go.append(brokers)

    def changed() -> None:
        node.changes += 1

    owners.on_let_go(let_go)
    owners.on_change(changed)
    return node


def story(tell: Callable[[Shared], Awaitable[None]]) -> None:
    async def work() -> None:
        await tell(Shared())
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    run(work())


def test_a_node_that_joins_gets_its_part_once_the_owner_has_let_go() -> None:
    async def tell(shared: Shared) -> None:
        a = await started(shared, "a")
        assert a.owned() == [1, 2]
        b = await started(shared, "b")
        await asyncio.sleep(MOVED_S)
        assert (a.owned(), b.owned(), a.let_go) == ([1], [2], [frozenset({2})])
        assert a.owners.endpoints() == b.owners.endpoints()
        assert a.owners.endpoints() == {1: {"clients": ("a", 1)}, 2: {"clients": ("b", 2)}}

    story(tell)


def test_a_node_that_leaves_is_followed_before_it_is_gone() -> None:
    async def tell(shared: Shared) -> None:
        a, b = await started(shared, "a"), await started(shared, "b")
        await asyncio.sleep(MOVED_S)
        await b.owners.leave()
        assert b.let_go == [frozenset({2})]
        assert shared.routing.owners == {1: "a", 2: "a"}, "at once, not after a beat of others"
        assert b.owners.endpoints()[2] == {"clients": ("a", 2)}, "its clients are sent there"
        await asyncio.sleep(MOVED_S)
        assert a.owned() == [1, 2]

    story(tell)


def test_a_dead_node_is_followed_when_its_session_is_over() -> None:
    async def tell(shared: Shared) -> None:
        a, b = await started(shared, "a"), await started(shared, "b")
        await asyncio.sleep(MOVED_S)
        await b.die()
        await asyncio.sleep(SESSION_MS / 1000 - MOVED_S)
        assert a.owned() == [1]
        await asyncio.sleep(2 * MOVED_S)
        assert a.owned() == [1, 2]
        assert not a.let_go[1:], "a dead node lets nothing go"

    story(tell)


def test_a_clock_that_is_put_forward_kills_nobody() -> None:
    """Who beats first after it finds all others' sessions over."""

    async def tell(shared: Shared) -> None:
        a, b = await started(shared, "a"), await started(shared, "b")
        c = await started(shared, "c")
        await asyncio.sleep(MOVED_S)
        published, changes = shared.publications, a.changes
        shared.forward_ms += 10 * SESSION_MS
        await asyncio.sleep(MOVED_S)
        assert (shared.publications, a.changes) == (published, changes), "nothing moves"
        await b.die()
        await asyncio.sleep(SESSION_MS / 1000 + MOVED_S)
        await c.die()
        shared.forward_ms += 10 * SESSION_MS
        await asyncio.sleep(2 * SESSION_MS / 1000 + MOVED_S)
        assert a.owners.others() == [], "who is dead is dead, a session later"
        assert a.owned() == [1, 2]

    story(tell)


def test_a_node_that_kafka_does_not_reach_gives_up_what_it_owns_and_gets_it_back() -> None:
    async def tell(shared: Shared) -> None:
        a, b = await started(shared, "a"), await started(shared, "b")
        await asyncio.sleep(MOVED_S)
        b.reach[:] = frozenset({1, 2}), frozenset()
        await asyncio.sleep(MOVED_S)
        assert (a.owned(), b.owned(), b.let_go) == ([1, 2], [], [frozenset({2})])
        b.reach[:] = frozenset(), frozenset({1, 2})
        await asyncio.sleep(MOVED_S)
        assert (a.owned(), b.owned()) == ([1], [2])
        published = shared.publications
        for node in (a, b):  # Kafka is down: neither is said to reach it before both are silent
            node.reach[:] = frozenset(), frozenset()
        await asyncio.sleep(MOVED_S)
        for node in (a, b):
            node.reach[:] = frozenset({1, 2}), frozenset()
            await asyncio.sleep(MOVED_S)
        assert shared.publications == published, "nothing moves"

    story(tell)


def test_a_broker_of_kafka_that_goes_and_comes_moves_no_other() -> None:
    """One node notices it two seconds before the other."""

    async def tell(shared: Shared) -> None:
        a, b = await started(shared, "a"), await started(shared, "b")
        await asyncio.sleep(2 * MOVED_S)
        for change in (set.discard, set.add):
            for node in (b, a):
                change(node.serves, 2)
                await asyncio.sleep(2 * MOVED_S)
        assert (a.owned(), b.owned()) == ([1], [2])
        assert (a.let_go[1:], b.let_go) == ([], [])
        b.serves.discard(2)  # on purpose
        await asyncio.sleep(BROKERS_SEEN_S_MAX + MOVED_S)
        assert (a.owned(), b.owned()) == ([2], [1])

    story(tell)


def test_a_redis_that_was_away_is_nobodys_death() -> None:
    async def tell(shared: Shared) -> None:
        a, b = await started(shared, "a"), await started(shared, "b")
        await asyncio.sleep(MOVED_S)
        published = shared.publications
        shared.down = True
        await asyncio.sleep(5 * SESSION_MS / 1000)
        assert (a.owned(), b.owned()) == ([1], [2]), "nobody knows better"
        assert a.owners.trouble
        shared.down = False
        await asyncio.sleep(5 * SESSION_MS / 1000)
        assert (a.owned(), b.owned()) == ([1], [2])
        assert shared.publications == published
        await b.die()
        await asyncio.sleep(3 * SESSION_MS / 1000)
        assert a.owned() == [1, 2], "silence counts again"

    story(tell)


def test_a_node_is_certain_for_less_than_its_session() -> None:
    async def tell(shared: Shared) -> None:
        a = await started(shared, "a")
        assert a.owners.certain()
        shared.down = True
        await asyncio.sleep(SESSION_MS / 1000 - 2 * MOVED_S)
        assert a.owners.certain()
        await asyncio.sleep(2 * MOVED_S)
        assert not a.owners.certain(), "others may have taken over"
        shared.down = False
        await asyncio.sleep(MOVED_S)
        assert a.owners.certain()

    story(tell)


def test_nothing_is_told_where_nothing_changes() -> None:
    async def tell(shared: Shared) -> None:
        a, b = await started(shared, "a"), await started(shared, "b")
        await asyncio.sleep(MOVED_S)
        before = (a.changes, b.changes, shared.publications)
        shared.routing = replace(shared.routing, generation=shared.routing.generation + 5)
        await asyncio.sleep(60)
        assert (a.changes, b.changes, shared.publications) == before

    story(tell)


def test_only_the_fetches_of_brokers_that_move_are_pushed() -> None:
    async def tell(shared: Shared) -> None:
        a = await started(shared, "a")
        pushed: list[frozenset[int]] = []

        def push(brokers: frozenset[int]) -> int:
            pushed.append(brokers)
            return 3 * len(brokers)

        a.owners.on_moved(push)
        for step in range(1, 100):  # another generation with each beat, of unrelated topics
            shared.routing = replace(shared.routing, generation=shared.routing.generation + step)
            await asyncio.sleep(0.25)
        assert (a.owners.pushes, pushed) == (0, [])
        await started(shared, "b")
        await asyncio.sleep(MOVED_S)
        assert set().union(*pushed) == {2}
        assert a.owners.pushes == 3 * len(pushed)

    story(tell)


def test_a_second_process_of_a_live_node_is_refused() -> None:
    async def tell(shared: Shared) -> None:
        await started(shared, "a")
        with pytest.raises(CannotJoin, match=r"^nodes\.id: another process is node 'a', and alive"):
            await started(shared, "a", incarnation="second")

    story(tell)


def test_a_node_that_was_killed_returns_under_its_name() -> None:
    async def tell(shared: Shared) -> None:
        a = await started(shared, "a")
        await a.die()
        again = await started(shared, "a", incarnation="second")
        assert again.owned() == [1, 2]

    story(tell)


def test_a_frozen_process_ends_when_its_name_is_taken() -> None:
    async def tell(shared: Shared) -> None:
        a = await started(shared, "a")
        shared.rows["a"] = ("second", now_ms() + SESSION_MS, shared.rows["a"][2])
        await asyncio.sleep(MOVED_S)
        with pytest.raises(CannotJoin, match="another process is node 'a'"):
            await a.task

    story(tell)


def test_a_node_of_another_cluster_is_refused_with_the_difference() -> None:
    async def tell(shared: Shared) -> None:
        await started(shared, "a")
        with pytest.raises(CannotJoin, match=r"node 'a' .* another upstream cluster: c, here d"):
            await started(shared, "b", cluster="d")

    story(tell)


def test_a_drained_node_lets_go_of_everything_until_it_is_undrained() -> None:
    async def tell(shared: Shared) -> None:
        a, b = await started(shared, "a"), await started(shared, "b")
        await asyncio.sleep(MOVED_S)
        await a.owners.drain("b")
        await asyncio.sleep(MOVED_S)
        assert (a.owned(), b.owned(), b.let_go) == ([1, 2], [], [frozenset({2})])
        with pytest.raises(NobodyElse):
            await b.owners.drain("a")
        await b.owners.undrain("b")
        await asyncio.sleep(MOVED_S)
        assert (a.owned(), b.owned()) == ([1], [2])

    story(tell)


def test_a_drain_ends_with_a_restart() -> None:
    async def tell(shared: Shared) -> None:
        a, b = await started(shared, "a"), await started(shared, "b")
        await a.owners.drain("b")
        await asyncio.sleep(MOVED_S)
        await b.die()
        again = await started(shared, "b", incarnation="second")
        await asyncio.sleep(MOVED_S)
        assert (a.owned(), again.owned()) == ([1], [2])

    story(tell)


def test_a_moved_broker_stays_where_it_was_put() -> None:
    async def tell(shared: Shared) -> None:
        a, b = await started(shared, "a"), await started(shared, "b")
        await asyncio.sleep(MOVED_S)
        await b.owners.move(1, "b")
        await asyncio.sleep(MOVED_S)
        assert (a.owned(), b.owned(), a.let_go[-1]) == ([], [1, 2], frozenset({1}))
        await asyncio.sleep(60)
        assert b.owned() == [1, 2]
        await a.owners.move(1, None)
        await asyncio.sleep(MOVED_S)
        assert (a.owned(), b.owned()) == ([2], [1]), "level again"

    story(tell)


def test_an_order_is_stored_or_refused() -> None:
    async def tell(shared: Shared) -> None:
        a = await started(shared, "a")
        shared.down = True
        with pytest.raises(RoutingUnavailable):
            await a.owners.move(1, "a")
        shared.down = False
        await asyncio.sleep(MOVED_S)
        shared.faster = 2
        await a.owners.move(1, "a")
        assert shared.routing.placed == {1: "a"}
        shared.down_once_stored = True
        await a.owners.move(1, None)
        assert shared.routing.placed == {}, "it is stored, whatever Redis says then"

    story(tell)
