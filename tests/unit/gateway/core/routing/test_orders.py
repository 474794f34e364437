"""Orders of operators: what they change, and which are refused, with which words."""

from __future__ import annotations

import pytest

from gateway.core.routing.orders import (
    CannotOwn,
    NobodyElse,
    UnknownBroker,
    UnknownNode,
    drained,
    placed,
    undrained,
)
from gateway.core.routing.ownership import Node, Routing


def node(name: str, *brokers: int, leaving: bool = False) -> Node:
    serves = {broker: {"clients": (name, 1)} for broker in brokers}
    return Node(id=name, serves=serves, leaving=leaving)


def alive(*nodes: Node) -> dict[str, Node]:
    return {each.id: each for each in nodes}


BOTH = alive(node("a", 1, 2), node("b", 1, 2))
SPLIT = Routing(generation=5, owners={1: "a", 2: "b"})


def test_drained_and_undrained() -> None:
    once = drained(SPLIT, BOTH, "a")
    assert once.drained == {"a"}
    assert drained(once, BOTH, "a") == once
    assert undrained(once, BOTH, "a") == SPLIT
    assert undrained(SPLIT, BOTH, "a") == SPLIT
    assert undrained(once, alive(node("b", 1, 2)), "a") == SPLIT, "also while it is away"


def test_who_is_not_there_is_not_drained() -> None:
    for order in (drained, undrained):
        with pytest.raises(UnknownNode, match=r"^no live node is named 'c'; alive: a, b$"):
            order(SPLIT, BOTH, "c")


def test_the_last_that_can_own_something_is_not_drained() -> None:
    with pytest.raises(NobodyElse, match=r"no other node can own virtual brokers 1, 2$"):
        drained(drained(SPLIT, BOTH, "a"), BOTH, "b")
    with pytest.raises(NobodyElse, match=r"virtual brokers 2$"):
        drained(SPLIT, alive(node("a", 1, 2), node("b", 1)), "a")
    with pytest.raises(NobodyElse):
        drained(SPLIT, alive(node("a", 1, 2), node("b", 1, 2, leaving=True)), "a")


def test_placed_and_given_back() -> None:
    there = placed(SPLIT, BOTH, 1, "b")
    assert there.placed == {1: "b"}
    assert placed(there, BOTH, 1, "a").placed == {1: "a"}
    assert placed(there, BOTH, 1, None) == SPLIT


def test_a_broker_goes_only_where_it_can_be_owned() -> None:
    live = {**BOTH, **alive(node("c", 1), node("d", 1, 2, leaving=True))}
    with pytest.raises(UnknownBroker, match=r"^no node listens for virtual broker 7$"):
        placed(SPLIT, live, 7, "a")
    with pytest.raises(UnknownNode):
        placed(SPLIT, live, 1, "e")
    with pytest.raises(CannotOwn, match="'b' is drained: undrain it first"):
        placed(drained(SPLIT, live, "b"), live, 1, "b")
    with pytest.raises(CannotOwn, match="'d' is stopping"):
        placed(SPLIT, live, 1, "d")
    with pytest.raises(CannotOwn, match="'c' does not listen for virtual broker 2"):
        placed(SPLIT, live, 2, "c")


def test_refusals_name_nodes_and_brokers_in_order() -> None:
    alone = alive(node("b", 1), node("a", 33, 2, 10))
    with pytest.raises(NobodyElse, match=r"virtual brokers 2, 10, 33$"):
        drained(Routing(), alone, "a")
    with pytest.raises(UnknownNode, match=r"alive: a, b$"):
        drained(Routing(), alone, "c")
