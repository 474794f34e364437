"""Owners of virtual brokers over histories of nodes that join, leave and die."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.routing.ownership import Node, Routing, assigned, handed_over, planned

NAMES = "abcdef"
BROKERS = range(1, 13)

names = st.sets(st.sampled_from(NAMES), min_size=1)
holders = st.dictionaries(st.sampled_from(BROKERS), st.sampled_from(NAMES))


@given(names, st.sets(st.sampled_from(BROKERS)), holders)
def test_loads_are_level_and_no_more_moves_than_must(
    nodes: set[str], brokers: set[int], held: dict[int, str]
) -> None:
    found = assigned(dict.fromkeys(nodes, brokers), held)
    assert found.keys() == brokers
    loads = {name: [broker for broker in found if found[broker] == name] for name in nodes}
    sizes = sorted(map(len, loads.values()))
    assert sizes[-1] - sizes[0] <= 1
    # A holder gives only what is above the level, and then gets nothing.
    for name in nodes:
        had = {broker for broker in brokers if held.get(broker) == name}
        kept = had & set(loads[name])
        assert len(kept) >= min(len(had), sizes[0])
        if kept != had:
            assert set(loads[name]) <= had
    assert assigned(dict.fromkeys(nodes, brokers), found) == found


@given(
    st.dictionaries(st.sampled_from(NAMES), st.sets(st.sampled_from(BROKERS)), min_size=1), holders
)
def test_nodes_that_serve_some_own_only_those(
    serving: dict[str, set[int]], held: dict[int, str]
) -> None:
    found = assigned(serving, held)
    assert found.keys() == set().union(*serving.values())
    assert all(broker in serving[name] for broker, name in found.items())


@given(
    st.lists(
        st.tuples(
            names,
            st.sets(st.sampled_from(NAMES)),
            st.frozensets(st.sampled_from(NAMES)),
            st.dictionaries(st.sampled_from(BROKERS), st.sampled_from(NAMES), max_size=3),
            st.dictionaries(st.sampled_from(NAMES), st.frozensets(st.sampled_from(BROKERS))),
        ),
        max_size=12,
    )
)
def test_every_history_of_nodes_comes_to_rest(
    history: list[
        tuple[set[str], set[str], frozenset[str], dict[int, str], dict[str, frozenset[int]]]
    ],
) -> None:
    """Each step: the nodes that live, those of them that leave, what operators order, and the
    brokers that nodes do not reach. A live owner keeps what it has until it hands it over; a plan
    changes nothing that was planned before.
    """
    routing = Routing()
    for lives, leaves, drained, placed, silent in history:
        live = {
            name: Node(
                id=name,
                serves={number: {"clients": (name, number)} for number in BROKERS},
                leaving=name in leaves,
                silent=silent.get(name, frozenset()),
                reached=frozenset(BROKERS) - silent.get(name, frozenset()),
            )
            for name in lives
        }
        routing = replace(routing, drained=drained, placed=placed)
        plan = planned(routing, live)
        assert planned(plan, live) == plan
        for broker, owner in routing.owners.items():
            if owner in live:
                assert plan.owners[broker] == owner
        assert all(plan.owners[broker] in live for broker in plan.next_owners)
        for name in sorted(live):
            plan = handed_over(plan, name, plan.handing_over(name))
        assert not plan.next_owners
        assert planned(plan, live).same_content(plan)
        takers = lives - leaves - drained or lives - leaves
        if takers:
            assert plan.owners.keys() == set(BROKERS)
            assert set(plan.owners.values()) <= takers
        able = lives - leaves - drained
        for broker, owner in plan.owners.items():
            if owner in able and broker in live[owner].silent:
                assert all(broker in live[name].silent for name in able), "others reach it"
        for broker, name in placed.items():
            if name in able and broker not in live[name].silent:
                assert plan.owners[broker] == name
        routing = plan
