"""Coordinators that have moved: each connection is made to forget them once."""

from __future__ import annotations

from gateway.core.routing.coordinators import MovedCoordinators

A, B = ("a", 9093), ("b", 9093)


def test_each_connection_forgets_once_after_each_move() -> None:
    moved = MovedCoordinators(300)
    moved.look({}, 0)
    moved.look({1: A, 2: A}, 1)
    assert moved.forgotten(7, [1], 2) == set(), "nobody was at another address before"
    moved.look({1: B, 2: A}, 10)
    assert moved.forgotten(7, [1, 2], 11) == {1}
    assert moved.forgotten(7, [1], 11) == set()
    assert moved.forgotten(8, [1], 11) == {1}, "another connection, perhaps of another client"
    moved.look({1: A, 2: A}, 20)
    assert moved.forgotten(7, [1], 21) == {1}


def test_a_coordinator_without_a_node_for_a_while_has_moved_if_its_next_address_is_another() -> (
    None
):
    moved = MovedCoordinators(300)
    moved.look({}, 0)
    moved.look({1: A, 2: A}, 1)
    moved.look({2: A}, 2)
    assert moved.forgotten(7, [1], 2) == set()
    moved.look({1: B, 2: A}, 8)
    assert moved.forgotten(7, [1, 2], 9) == {1}
    moved.look({2: A}, 10)
    moved.look({1: B, 2: A}, 11)
    assert moved.forgotten(7, [1], 12) == set(), "it came back to where it was"


def test_a_node_that_begins_beside_others_does_not_know_what_has_moved() -> None:
    moved = MovedCoordinators(300)
    moved.look({1: A, 2: B}, 0)
    assert moved.forgotten(7, [1], 1) == {1}
    assert moved.forgotten(7, [2], 1) == {2}, "of each coordinator by itself"
    assert moved.forgotten(7, [1, 2, 3], 1) == set()


def test_it_ends_when_every_client_has_noticed() -> None:
    moved = MovedCoordinators(300)
    moved.look({1: A}, 20)
    assert moved.forgotten(7, [1], 319) == {1}
    assert moved.forgotten(8, [1], 320) == set()


def test_connections_that_are_closed_leave_nothing() -> None:
    moved = MovedCoordinators(300)
    moved.look({1: A}, 0)
    moved.forgotten(7, [1], 1)
    moved.closed(7)
    moved.closed(9)
    assert moved._told == {}
