"""How far clients have come: connections, nodes, the cluster."""

from __future__ import annotations

from gateway.core.routing.adoption import Adoption, of_cluster


def test_a_connection_reflects_the_metadata_that_it_was_served_last() -> None:
    node = Adoption()
    assert node.lowest() is None, "nobody has asked: not adopted yet"
    node.served(1, 5)
    assert node.lowest() == 5
    node.served(1, 7)
    assert node.lowest() == 7


def test_the_lowest_connection_counts_until_it_is_closed() -> None:
    node = Adoption()
    node.served(1, 5)
    node.served(2, 9)
    assert node.lowest() == 5
    node.closed(1)
    assert node.lowest() == 9
    node.closed(2)
    node.closed(2)  # one that never asked is closed, too
    assert node.lowest() is None


def test_a_broker_that_is_behind_takes_nothing_back() -> None:
    node = Adoption()
    node.served(1, 5)
    node.served(1, 0)
    assert node.lowest() == 5
    node.served(2, 0)
    assert node.lowest() == 0, "it has seen nothing newer"


def test_the_cluster_is_as_far_as_its_last_live_node() -> None:
    assert of_cluster({"a": 7, "b": 5}) == 5
    assert of_cluster({"a": 7}) == 7, "b is dead: it does not hold the others back"
    assert of_cluster({"a": 7, "b": None}) is None, "nobody has asked b"
    assert of_cluster({}) is None
