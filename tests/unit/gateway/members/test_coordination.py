"""The groups that a node coordinates among several, by what Kafka says of their coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from gateway.core.routing.ownership import Standing
from gateway.members.change_log import Changes
from gateway.members.coordination import SharedCoordination
from gateway.members.limits import COORDINATOR_KEPT_MS
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

    def forget_coordinator(self, group: str) -> None:
        self._known.pop(group, None)

    async def look_for_coordinators(self, groups: Sequence[str]) -> None:
        for group in groups:
            self.forget_coordinator(group)
            await self.coordinator(group)

    def request_refresh(self) -> None: ...


class Owning:
    """Virtual broker 1 is this node's."""

    identity = ("n", "process")

    def standing(self, broker: int | None) -> Standing:
        return Standing.OWNED if broker == 1 else Standing.ELSEWHERE

    def on_change(self, callback: Any) -> None: ...

    def on_let_go(self, callback: Any) -> None: ...

    def look_soon(self) -> None: ...


class NothingSaved:
    def share(self, writer: Any, led_at: Any) -> None: ...

    async def reload(self) -> dict[str, Any]:
        return {}

    def superseded(self, name: str) -> None: ...


class NoFilters:
    async def reread(self, changed: Any) -> None: ...


class NobodyElse:
    async def tell(self, names: Any, connected: Any) -> None: ...


class NoChanges:
    async def newest(self) -> str:
        return ""

    async def since(self, position: str) -> Changes:
        return Changes(position)


def test_a_coordinator_that_moved_is_found_though_no_member_says_so() -> None:
    """Members go on here until they are told otherwise, and the next node hears none of them."""

    async def work() -> None:
        kafka = Kafka()
        async with Node() as node:
            coordination = SharedCoordination(
                node.evictions,
                cast(Any, NothingSaved()),
                cast(Any, NoFilters()),
                cast(Any, NoChanges()),
                cast(Any, NobodyElse()),
                cast(Any, Owning()),
                kafka,
                now_ms,
            )
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
