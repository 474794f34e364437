"""The nodes and owners in memory: a model of routing.lua, on the clock of the test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.core.routing.ownership import Node, Routing
from gateway.routing.limits import SESSION_MS
from gateway.routing.shared_table import NodeRow, NodeTaken, RoutingUnavailable, SharedTable, View
from tests.rig.virtual_time import now_ms


@dataclass
class Shared:
    """The hash of routing.lua."""

    routing: Routing = field(default_factory=Routing)
    rows: dict[str, tuple[str, int, NodeRow]] = field(default_factory=dict)
    down: bool = False
    forward_ms: int = 0  # its clock was put forward by so much
    publications: int = 0
    faster: int = 0  # changes by others that come just before
    down_once_stored: bool = False


class TableInMemory(SharedTable):
    def __init__(self, shared: Shared, incarnation: str) -> None:
        self.shared = shared
        self.incarnation = incarnation
        self.clock_off_ms = 0.0

    def _reach(self) -> None:
        if self.shared.down:
            raise RoutingUnavailable("down")

    async def beat(self, node: Node, agreed: Mapping[str, str], facts: Mapping[str, Any]) -> View:
        self._reach()
        now = now_ms() + self.shared.forward_ms
        held = self.shared.rows.get(node.id)
        if held is not None and held[0] != self.incarnation and held[1] > now:
            raise NodeTaken(node.id, held[1] - now)
        row = NodeRow(
            node=node, alive_ms=0, agreed=agreed, facts=facts, incarnation=self.incarnation
        )
        self.shared.rows[node.id] = (self.incarnation, now + SESSION_MS, row)
        rows = [replace(row, alive_ms=until - now) for _, until, row in self.shared.rows.values()]
        return View(self.shared.routing, rows, now)

    async def publish(self, node: str, generation: int, content: Routing) -> bool:
        self._reach()
        if self.shared.rows[node][0] != self.incarnation:
            raise NodeTaken(node, 0)
        if self.shared.faster:
            self.shared.faster -= 1
            stored = self.shared.routing
            self.shared.routing = replace(stored, generation=stored.generation + 1)
        if generation != self.shared.routing.generation:
            return False
        self.shared.routing = replace(content, generation=generation + 1)
        self.shared.publications += 1
        self.shared.down = self.shared.down_once_stored
        return True

    async def leave(self, node: str, generation: int, content: Routing) -> bool:
        done = await self.publish(node, generation, content)
        if done:
            del self.shared.rows[node]
        return done
