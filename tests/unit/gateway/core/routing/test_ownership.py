"""Owners of virtual brokers: who gets which, what moves, and in how many steps."""

from __future__ import annotations

from dataclasses import replace

from gateway.core.routing.ownership import (
    Node,
    Routing,
    Standing,
    assigned,
    endpoints,
    handed_over,
    left,
    moved,
    planned,
)


def node(name: str, *brokers: int, leaving: bool = False) -> Node:
    serves = {broker: {"clients": (f"{name}.example", 9200 + broker)} for broker in brokers}
    return Node(id=name, serves=serves, leaving=leaving)


def alive(*nodes: Node) -> dict[str, Node]:
    return {known.id: known for known in nodes}


A, B = node("a", 1, 2, 3), node("b", 1, 2, 3)
SPLIT = Routing(generation=5, owners={1: "a", 2: "b", 3: "a"})


def test_the_first_node_owns_everything() -> None:
    assert planned(Routing(), alive(A)).owners == {1: "a", 2: "a", 3: "a"}


def test_a_second_node_gets_its_part_from_a_live_owner_in_two_steps() -> None:
    before = Routing(owners={1: "a", 2: "a", 3: "a"})
    plan = planned(before, alive(A, B))
    assert plan.owners == before.owners, "the owner lives: it lets go first"
    assert plan.next_owners == {3: "b"}
    assert plan.standing("a", 3) is Standing.HANDING_OVER
    assert plan.standing("b", 3) is Standing.ELSEWHERE
    assert plan.standing("a", 1) is Standing.OWNED
    assert planned(plan, alive(A, B)) == plan, "the move is under way: nothing else to change"
    after = handed_over(plan, "a", plan.handing_over("a"))
    assert after.owners == {1: "a", 2: "a", 3: "b"}
    assert not after.next_owners
    assert planned(after, alive(A, B)).same_content(after)


def test_what_a_dead_node_owned_goes_to_others_at_once() -> None:
    plan = planned(SPLIT, alive(B))
    assert plan.owners == {1: "b", 2: "b", 3: "b"}
    assert not plan.next_owners


def test_a_next_owner_that_dies_gets_nothing() -> None:
    moving = Routing(owners={1: "a", 2: "a", 3: "a"}, next_owners={3: "b"})
    plan = planned(moving, alive(A))
    assert plan.owners == moving.owners
    assert not plan.next_owners


def test_an_owner_that_dies_in_a_move_is_followed_by_the_next_one() -> None:
    moving = Routing(owners={1: "b", 2: "a", 3: "a"}, next_owners={3: "b"})
    plan = planned(moving, alive(B))
    assert plan.owners == {1: "b", 2: "b", 3: "b"}
    assert not plan.next_owners


def test_a_node_that_leaves_names_its_followers_and_then_is_gone() -> None:
    plan = planned(SPLIT, alive(node("a", 1, 2, 3, leaving=True), B))
    assert plan.owners == SPLIT.owners
    assert plan.next_owners == {1: "b", 3: "b"}
    gone = left(plan, "a")
    assert gone.owners == {1: "b", 2: "b", 3: "b"}
    assert not gone.next_owners


def test_the_last_node_owns_what_it_has_to_its_end() -> None:
    only = Routing(owners={1: "a", 2: "a", 3: "a"})
    plan = planned(only, alive(node("a", 1, 2, 3, leaving=True)))
    assert plan.same_content(only)
    assert left(plan, "a").owners == {}


def test_a_node_owns_only_what_it_listens_for() -> None:
    assert planned(Routing(), alive(node("a", 1), node("b", 1, 2, 3))).owners == {
        1: "a",
        2: "b",
        3: "b",
    }
    assert assigned({"a": [], "b": [1]}, {}) == {1: "b"}


def test_a_broker_that_nobody_listens_for_any_more_has_no_owner() -> None:
    plan = planned(SPLIT, alive(node("a", 1, 3), node("b", 1, 3)))
    assert sorted(plan.owners) == [1, 3]


def test_clients_are_shown_the_owners_that_live() -> None:
    shown = endpoints(SPLIT, alive(A))
    assert shown == {broker: {"clients": ("a.example", 9200 + broker)} for broker in (1, 3)}


def test_a_drained_node_gives_up_all_and_gets_nothing() -> None:
    plan = planned(replace(SPLIT, drained=frozenset("a")), alive(A, B))
    assert plan.owners == SPLIT.owners, "it lets go first"
    assert plan.next_owners == {1: "b", 3: "b"}
    after = handed_over(plan, "a", plan.handing_over("a"))
    assert planned(after, alive(A, B, node("c", 1, 2, 3))).next_owners.keys() == {3}
    assert "a" not in planned(after, alive(A, B, node("c", 1, 2, 3))).next_owners.values()
    assert left(after, "a").drained == frozenset(), "a restart ends it"


def test_silence_of_a_drained_node_does_not_end_its_drain() -> None:
    gone = planned(replace(SPLIT, drained=frozenset("a")), alive(B))
    back = planned(gone, alive(A, B))
    assert back.drained == {"a"}
    assert not back.next_owners


def test_a_drained_node_owns_what_nobody_else_can() -> None:
    alone = planned(replace(SPLIT, drained=frozenset("a")), alive(A))
    assert alone.owners == {1: "a", 2: "a", 3: "a"}
    assert planned(alone, alive(A, B)).next_owners == {1: "b", 2: "b", 3: "b"}


def test_who_does_not_reach_a_broker_gives_it_to_one_who_does() -> None:
    cut_off = replace(A, silent=frozenset({1, 3}))
    reaching = replace(B, reached=frozenset({1, 2, 3}))
    plan = planned(SPLIT, alive(cut_off, reaching))
    assert plan.owners == SPLIT.owners, "it lives in Redis: it lets go first"
    assert plan.next_owners == {1: "b", 2: "a", 3: "b"}, "the second one it reaches"
    silent = replace(A, silent=frozenset({1, 2, 3}))
    plan = planned(SPLIT, alive(silent, reaching))
    after = handed_over(plan, "a", plan.handing_over("a"))
    assert after.owners == {1: "b", 2: "b", 3: "b"}
    assert planned(after, alive(silent, reaching)).same_content(after)
    assert planned(after, alive(A, B)).next_owners, "both reach it: level again"


def test_a_broker_that_nobody_reaches_stays() -> None:
    """It is down, or just back: moves would help nobody."""
    silent = frozenset({1})
    for other in (replace(B, silent=silent), B, replace(B, leaving=True, reached=silent)):
        plan = planned(SPLIT, alive(replace(A, silent=silent), other))
        assert 1 not in plan.next_owners
    drained_one = replace(SPLIT, drained=frozenset("b"))
    plan = planned(drained_one, alive(replace(A, silent=silent), replace(B, reached=silent)))
    assert 1 not in plan.next_owners


def test_an_order_waits_for_a_node_that_does_not_reach_the_broker() -> None:
    ordered = replace(SPLIT, placed={1: "a"})
    away = alive(replace(A, silent=frozenset({1})), replace(B, reached=frozenset({1})))
    plan = planned(ordered, away)
    assert (plan.next_owners[1], plan.placed) == ("b", {1: "a"})
    back = planned(handed_over(plan, "a", {1}), alive(A, B))
    assert back.next_owners[1] == "a"


def test_a_placed_broker_moves_alone_and_stays() -> None:
    plan = planned(replace(SPLIT, placed={1: "b"}), alive(A, B))
    assert plan.next_owners == {1: "b"}, "nothing else moves for it"
    after = handed_over(plan, "a", {1})
    assert planned(after, alive(A, B)).same_content(after)
    gone = planned(after, alive(A))
    assert not gone.placed, "an order ends with its node"
    assert gone.owners == {1: "a", 2: "a", 3: "a"}


def test_only_what_is_let_go_of_changes_hands() -> None:
    moving = replace(SPLIT, next_owners={1: "b", 2: "a", 3: "b"})
    after = handed_over(moving, "a", [1, 2])
    assert after.owners == {1: "b", 2: "b", 3: "a"}, "2 is not its own to give"
    assert after.next_owners == {2: "a", 3: "b"}


def test_the_store_gives_generations() -> None:
    plans = (planned(SPLIT, alive(A, B)), handed_over(SPLIT, "a", [1]), left(SPLIT, "a"))
    assert {plan.generation for plan in plans} == {0}


def test_who_has_left_is_in_no_part_of_the_content() -> None:
    before = replace(
        SPLIT, next_owners={1: "b", 2: "a"}, placed={2: "a", 3: "b"}, drained=frozenset("ab")
    )
    after = left(before, "a")
    assert after.owners == {1: "b", 2: "b"}
    assert after.next_owners == {}
    assert (after.placed, after.drained) == ({3: "b"}, frozenset("b"))
    assert left(replace(before, next_owners={2: "c"}), "a").next_owners == {2: "c"}


def test_a_drained_node_that_leaves_gets_nothing_more() -> None:
    drained = Routing(drained=frozenset("a"))
    assert planned(drained, alive(node("a", 1))).owners == {1: "a"}, "better than nobody"
    assert planned(drained, alive(node("a", 1, leaving=True))).owners == {}


def test_all_nodes_come_to_the_same_plan() -> None:
    """However they heard of each other."""
    first = assigned({"b": [33, 2, 10], "a": [10, 33, 2]}, {})
    assert first == {2: "a", 10: "b", 33: "a"}
    assert assigned({"a": [2, 33, 10], "b": [10, 2, 33]}, {}) == first


def test_the_most_loaded_node_gives_until_all_are_level() -> None:
    every = range(1, 7)
    held = dict.fromkeys((1, 2), "a") | dict.fromkeys((3, 4, 5, 6), "b")
    after = assigned(dict.fromkeys("abc", every), held)
    assert after == {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    assert assigned(dict.fromkeys("ab", (1, 2)), {1: "a", 2: "a"}) == {1: "a", 2: "b"}


def test_placed_brokers_leave_the_others_their_owners() -> None:
    assert assigned({"a": (1, 2, 3)}, {}, {1: "a"}) == {1: "a", 2: "a", 3: "a"}


def test_clients_of_what_has_another_owner_or_is_to_move_look_again() -> None:
    assert moved(SPLIT, replace(SPLIT, generation=9, drained=frozenset("c"))) == frozenset()
    assert moved(SPLIT, replace(SPLIT, owners={1: "a", 2: "a", 4: "b"})) == {2, 3, 4}
    assert moved(SPLIT, replace(SPLIT, next_owners={1: "b"})) == {1}
