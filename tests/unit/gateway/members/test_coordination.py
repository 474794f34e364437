"""The groups that a node coordinates among several, by what Kafka says of their coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from gateway.core.routing.ownership import Standing
from gateway.core.share.membership import ShareMember
from gateway.members.change_log import Changes, GroupChange
from gateway.members.coordination import NotCoordinator, SharedCoordination
from gateway.members.limits import COORDINATOR_KEPT_MS
from gateway.members.saved_members import SavedGroup
from tests.rig.node_parts import GROUP, Node
from tests.rig.virtual_time import now_ms, run


class Kafka:
    """Coordinators as gateway.upstream.cluster.Upstream remembers them."""

    def __init__(self) -> None:
        self.coordinates = 1
        self.asked = 0
        self._known: dict[str, int] = {}

    async def coordinator(self, group: str) -> int:
        if group not in self._known:
            self.asked += 1
            self._known[group] = self.coordinates
        return self._known[group]

    def known_coordinator(self, group: str) -> int | None:
        return self._known.get(group)

    def forget_coordinator(self, group: str) -> None:
        self._known.pop(group, None)

    async def look_for_coordinators(self, groups: Sequence[str]) -> None:
        for group in groups:
            self.forget_coordinator(group)
            await self.coordinator(group)

    def request_refresh(self) -> None: ...


class Owning:
    """Virtual broker 1 is this node's, until it is `lost`."""

    identity = ("n", "process")

    def __init__(self) -> None:
        self.owned = {1}
        self.changed: Callable[[], None] = lambda: None

    def standing(self, broker: int | None) -> Standing:
        return Standing.OWNED if broker in self.owned else Standing.ELSEWHERE

    def lost(self) -> None:
        self.owned = set()
        self.changed()

    def on_change(self, callback: Callable[[], None]) -> None:
        self.changed = callback

    def on_let_go(self, callback: Any) -> None: ...

    def look_soon(self) -> None: ...


class Saved:
    """Rows of Redis, as `reload` and `reread` find them."""

    def __init__(self) -> None:
        self.rows: dict[str, SavedGroup] = {}
        self.meanwhile: Callable[[], None] = lambda: None

    def share(self, writer: Any, led_at: Any, told: Any) -> None: ...

    async def reload(self) -> dict[str, SavedGroup]:
        return dict(self.rows)

    async def reread(self, changes: Any) -> dict[str, SavedGroup | None]:
        self.meanwhile()
        return {name: self.rows.get(name) for name in changes}

    def writes(self, name: str) -> bool:  # noqa: ARG002
        return False

    def changed(self, group: Any) -> None: ...
    def superseded(self, name: str) -> None: ...


class NoFilters:
    async def reread(self, changed: Any) -> None: ...


class NobodyElse:
    async def tell(self, names: Any, connected: Any) -> None: ...


class Log:
    """Gives each of `changes` once."""

    def __init__(self) -> None:
        self.changes: list[Changes] = []
        self.asked = 0

    async def newest(self) -> str:
        return "1-0"

    async def since(self, position: str) -> Changes:
        self.asked += 1
        return self.changes.pop(0) if self.changes else Changes(position)


@dataclass
class Site:
    node: Node
    kafka: Kafka = field(default_factory=Kafka)
    owning: Owning = field(default_factory=Owning)
    saved: Saved = field(default_factory=Saved)
    log: Log = field(default_factory=Log)

    def coordination(self) -> SharedCoordination:
        return SharedCoordination(
            self.node.evictions,
            cast(Any, self.saved),
            cast(Any, NoFilters()),
            cast(Any, self.log),
            cast(Any, NobodyElse()),
            cast(Any, self.owning),
            self.kafka,
            now_ms,
        )


def test_a_coordinator_that_moved_is_found_though_no_member_says_so() -> None:
    """Members go on here until they are told otherwise, and the next node hears none of them."""

    async def work() -> None:
        async with Node() as node:
            site = Site(node)
            kafka, coordination = site.kafka, site.coordination()
            await coordination.check(GROUP, 1)
            node.beat("m1")
            looks = asyncio.get_running_loop().create_task(coordination.follow_forever())
            await asyncio.sleep(COORDINATOR_KEPT_MS / 1000 / 2)
            assert coordination.leads(GROUP)
            assert kafka.asked == 1, "not with each look"
            kafka.coordinates = 2
            await asyncio.sleep(COORDINATOR_KEPT_MS / 1000)
            assert not coordination.leads(GROUP)
            looks.cancel()

    run(work())


def saved_member(name: str) -> ShareMember:
    return ShareMember(name, "c", "h", None, ("orders",), 1, 1, {}, 0)


def test_a_change_that_came_while_the_group_was_given_up_is_not_passed_over() -> None:
    """A node reads changes, leaves out that of a group which it leads, and loses the group before
    it has noted how far it has read.
    """

    async def work() -> None:
        async with Node() as node:
            site = Site(node)
            coordination = site.coordination()
            await coordination.start()
            await coordination.check(GROUP, 1)
            node.beat("m1", fetches=False)
            site.saved.rows[GROUP] = SavedGroup(2, [saved_member("m2")])  # by the next node
            others = {GROUP: GroupChange({"m2"}), "another group": GroupChange({"m"})}
            site.log.changes = [Changes("2-0", others, entries={"2-0"})]
            site.saved.meanwhile = site.owning.lost
            looks = asyncio.get_running_loop().create_task(coordination.follow_forever())
            await asyncio.sleep(2)
            assert not coordination.leads(GROUP)
            assert node.groups.member(GROUP, "m2") is not None
            looks.cancel()

    run(work())


def test_configs_that_an_admin_set_at_another_node_count_here() -> None:
    async def work() -> None:
        async with Node() as node:
            site, settings = Site(node), node.groups.settings
            coordination = site.coordination()
            await coordination.start()
            await settings.known(GROUP)
            configs: dict[str, str | None] = {"share.delivery.count.limit": "9"}
            site.log.changes = [Changes("2-0", configs={GROUP: configs}, entries={"2-0"})]
            looks = asyncio.get_running_loop().create_task(coordination.follow_forever())
            await asyncio.sleep(2)
            assert settings.of(GROUP).deliveries_max == 9
            looks.cancel()

    run(work())


def test_a_group_is_not_taken_by_a_node_that_loses_it_while_it_reads() -> None:
    async def work() -> None:
        async with Node() as node:
            site = Site(node)
            coordination = site.coordination()
            await coordination.start()
            site.log.changes = [Changes("2-0", {"x": GroupChange({"m"})}, entries={"2-0"})]
            site.saved.meanwhile = site.owning.lost
            with pytest.raises(NotCoordinator):
                await coordination.check(GROUP, 1)
            assert not coordination.leads(GROUP)

    run(work())


def test_names_that_are_no_groups_are_not_remembered() -> None:
    """Anybody may send heartbeats that are refused, under any name."""

    async def work() -> None:
        async with Node() as node:
            coordination = Site(node).coordination()
            await coordination.start()
            await coordination.check(GROUP, 1)
            node.beat("m1", fetches=False)
            for at in range(10):
                await coordination.check(f"name-{at}", 2)
            looks = asyncio.get_running_loop().create_task(coordination.follow_forever())
            await asyncio.sleep(2 * COORDINATOR_KEPT_MS / 1000)
            assert coordination.leads(GROUP)
            assert not any(coordination.leads(f"name-{at}") for at in range(10))
            assert not coordination._asked_ms
            looks.cancel()

    run(work())


def test_groups_without_a_coordinator_keep_nobody_waiting() -> None:
    """While a broker is away, Kafka may have none for some groups; members of all others go on."""

    class Nobody(Kafka):
        async def coordinator(self, group: str) -> int:
            return await super().coordinator(group) if group == GROUP else await asyncio.Future()

        async def look_for_coordinators(self, groups: Sequence[str]) -> None:
            await super().look_for_coordinators([name for name in groups if name == GROUP])

    async def work() -> None:
        async with Node() as node:
            site = Site(node, Nobody())
            coordination = site.coordination()
            site.saved.rows["lost"] = SavedGroup(1, [saved_member("m")])
            await coordination.start()
            looks = asyncio.get_running_loop().create_task(coordination.follow_forever())
            await asyncio.sleep(2)
            site.saved.rows["other"] = SavedGroup(1, [saved_member("m3")])
            others = {"other": GroupChange({"m3"})}
            site.log.changes = [Changes("2-0", others, entries={"2-0"})]
            await asyncio.sleep(2)
            assert node.groups.member("other", "m3") is not None
            looks.cancel()

    run(work())


def test_many_that_wait_for_their_member_ask_redis_as_often_as_one() -> None:
    """Anybody may fetch as a member that never was, on as many connections as he gets."""

    async def work() -> None:
        async with Node() as node:
            site = Site(node)
            coordination = site.coordination()
            await coordination.start()
            await asyncio.gather(
                *(coordination.await_member(GROUP, f"never-{at}") for at in range(100))
            )
            assert 8 <= site.log.asked <= 20

    run(work())
