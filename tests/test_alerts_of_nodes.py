"""Each alert of several nodes is silent while all is well, and fires when it should. The nodes are
real ones on a table in memory.
"""

from __future__ import annotations

import asyncio

import pytest

from gateway.routing.metrics import NodesCollector
from gateway.routing.moves import PendingMoves
from gateway.routing.owners import SharedOwners
from tests.rig.alerts import Stories, Watch, rules
from tests.rig.table_in_memory import Shared, TableInMemory
from tests.rig.virtual_time import now_ms, run

RULES = rules()
STORIES = Stories()


class NodesOfStory:
    """Nodes on the clock of the story, as node `a` sees them and tells it in metrics."""

    def __init__(self, watch: Watch) -> None:
        self.shared = Shared()
        self.table = TableInMemory(self.shared, "a")
        self.clock = asyncio.get_running_loop().time
        self.moves = PendingMoves(self.clock)
        self.differing: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.a = self._node("a", self.table)
        self.a.on_change(lambda: self.moves.look(self.a.routing.next_owners))
        off_ms = lambda: self.table.clock_off_ms  # noqa: E731
        watch.register(NodesCollector(self.a, self.moves, lambda: self.differing, off_ms))

    def _node(self, name: str, table: TableInMemory) -> SharedOwners:
        return SharedOwners(
            name,
            table,
            serves=lambda: {broker: {"clients": (name, broker)} for broker in (1, 2)},
            agreed=dict,
            facts=dict,
            clock=lambda: now_ms() / 1000,
        )

    async def start(self, name: str) -> SharedOwners:
        owners = self.a if name == "a" else self._node(name, TableInMemory(self.shared, name))
        await owners.enter()
        await owners.join()
        self.tasks[name] = asyncio.get_running_loop().create_task(owners.run())
        return owners

    async def kill(self, name: str) -> None:
        self.tasks[name].cancel()
        await asyncio.wait([self.tasks[name]])

    async def end(self) -> None:
        for name in self.tasks:
            await self.kill(name)


@STORIES.of("KeywayNodeSilent")
async def a_node_dies(watch: Watch) -> None:
    nodes = NodesOfStory(watch)
    for name in ("a", "b", "c"):
        c = await nodes.start(name)
    await watch.calm(5)
    await c.leave()  # as planned: nobody needs to know
    await nodes.kill("c")
    await watch.calm(5)
    await nodes.kill("b")
    await watch.amiss(3)
    await nodes.end()


@STORIES.of("KeywayBrokersWithoutOwner")
async def nobody_takes_over(watch: Watch) -> None:
    """The store takes no new owners: of this node, which another one is faster than each time."""
    nodes = NodesOfStory(watch)
    for name in ("a", "b"):
        await nodes.start(name)
    await watch.calm()
    nodes.shared.faster = 1_000_000
    await nodes.kill("b")
    await watch.amiss(3)
    await nodes.end()


@STORIES.of("KeywayMoveTakesLong")
async def a_node_does_not_let_go(watch: Watch) -> None:
    nodes = NodesOfStory(watch)

    async def hang(_: frozenset[int]) -> None:
        nodes.shared.faster = 1_000_000

    await nodes.start("a")
    await watch.calm()
    nodes.a.on_let_go(hang)
    await nodes.start("b")
    await watch.amiss(3)
    await nodes.end()


@STORIES.of("KeywayNodesDiffer")
async def a_rolling_change_stops_half_way(watch: Watch) -> None:
    nodes = NodesOfStory(watch)
    await nodes.start("a")
    await watch.calm()
    nodes.differing = ["b"]
    await watch.calm(5)
    await watch.amiss(20)
    await nodes.end()


@STORIES.of("KeywayClockOff")
async def a_clock_goes_wrong(watch: Watch) -> None:
    nodes = NodesOfStory(watch)
    await nodes.start("a")
    nodes.table.clock_off_ms = -400.0
    await watch.calm()
    nodes.table.clock_off_ms = -2_500.0
    await watch.amiss(8)
    await nodes.end()


@pytest.mark.parametrize("alert", STORIES)
def test_an_alert_fires_when_its_condition_happens_and_not_before(alert: str) -> None:
    run(STORIES[alert](Watch(RULES[alert])))
