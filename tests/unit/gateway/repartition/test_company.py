"""Who takes the steps, and what the live nodes have told."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, cast

from gateway.core.repartition.progress import NodeSaid
from gateway.core.repartition.record import Move, Pace, Repartition
from gateway.core.routing.ownership import Node, Routing
from gateway.repartition.company import FACT, Company
from gateway.repartition.limits import SILENT_MS_MAX
from gateway.routing.limits import BEAT_MS, SESSION_MS
from gateway.routing.owners import SharedOwners
from gateway.routing.shared_table import NodeRow


@dataclass
class Owners:
    node_id: str
    alive: list[str] = field(default_factory=list)
    rows: tuple[NodeRow, ...] = ()
    sure: bool = True
    routing: Routing = field(default_factory=Routing)
    trouble: str = ""

    def others(self) -> list[str]:
        return self.alive

    def certain(self) -> bool:
        return self.sure


def company(owners: Owners) -> Company:
    return Company(cast(SharedOwners, owners), {})


def row(node: str, facts: dict[str, Any], silent_ms: int = 0) -> NodeRow:
    alive_ms = SESSION_MS - silent_ms
    return NodeRow(node=Node(id=node, serves={}), alive_ms=alive_ms, agreed={}, facts=facts)


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


def test_who_serves_a_virtual_broker_and_was_heard_of() -> None:
    assert Company(None, {}).way(7) == (Company(None, {}).me, 0)
    heard = Owners(
        "a", ["b"], (row("b", {}, silent_ms=300),), routing=Routing(owners={1: "a", 2: "b"})
    )
    assert [company(heard).way(broker) for broker in (1, 2, 3)] == [
        ("a", 0),
        ("b", 300 + BEAT_MS),
        None,
    ]
    assert company(replace(heard, sure=False)).way(1) is None, "another node may have taken it over"
    assert company(replace(heard, trouble="Redis is away")).way(2) is None
    assert company(replace(heard, rows=(row("b", {}, SILENT_MS_MAX),))).way(2) is None
    assert company(replace(heard, rows=())).way(2) is None


def test_the_number_of_partitions_is_withheld_while_another_node_may_tell_another_one() -> None:
    marked = Repartition(
        topic="orders",
        topic_id="00",
        before=2,
        after=4,
        partitioner=None,
        pace=Pace(adoption_ms=0, settle_ms=0, late_ms=0),
    )
    created = marked.moved(Move.CREATE)
    prepared = created.moved(Move.PREPARE, prepared=True)
    records = (marked, created, prepared, prepared.moved(Move.SHOW), prepared.moved(Move.ABORT))

    def withheld(one: Company) -> list[bool]:
        return [one.withholds(record) for record in records]

    assert withheld(Company(None, {})) == [False] * 5
    assert withheld(company(Owners("a"))) == [False, False, True, False, False]
    assert withheld(company(Owners("a", sure=False))) == [True, True, True, False, False]
    assert not company(Owners("a")).withholds(replace(prepared, into="new"))
