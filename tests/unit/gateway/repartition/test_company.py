"""Who takes the steps, and what the live nodes have told."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, cast

from gateway.core.repartition.progress import NodeSaid
from gateway.core.routing.ownership import Node
from gateway.repartition.company import FACT, Company
from gateway.routing.owners import SharedOwners
from gateway.routing.shared_table import NodeRow


@dataclass
class Owners:
    node_id: str
    alive: list[str] = field(default_factory=list)
    rows: tuple[NodeRow, ...] = ()
    sure: bool = True

    def others(self) -> list[str]:
        return self.alive

    def certain(self) -> bool:
        return self.sure


def company(owners: Owners) -> Company:
    return Company(cast(SharedOwners, owners), {})


def row(node: str, facts: dict[str, Any]) -> NodeRow:
    return NodeRow(node=Node(id=node, serves={}), alive_ms=1, agreed={}, facts=facts)


def test_a_node_that_stands_alone_leads() -> None:
    alone = Company(None, {})
    mine = NodeSaid(3)
    assert alone.leads()
    assert alone.said("orders", mine) == {alone.me: mine}
    assert alone.live == [alone.me]


def test_the_first_live_node_leads_unless_it_may_count_as_dead() -> None:
    assert company(Owners("a", ["b"])).leads()
    assert not company(Owners("a", ["b"], sure=False)).leads()
    second = company(Owners("b", ["a"]))
    assert (second.leads(), second.leader) == (False, "a")
    assert company(Owners("b", [])).leads(), "the first one is dead"


def test_what_a_node_tells_is_what_the_others_hear() -> None:
    teller = company(Owners("a"))
    teller.tell(lambda: {"orders": NodeSaid(4, 2, 99)})
    heard = json.loads(json.dumps({FACT: teller.told[FACT]()}))
    mine = NodeSaid(4)
    rows = (row("a", heard), row("c", heard), row("d", {}))
    listener = company(Owners("b", ["a", "d"], rows))
    assert listener.said("orders", mine) == {"b": mine, "a": NodeSaid(4, 2, 99)}, "c is dead"
    assert listener.said("payments", mine) == {"b": mine}
