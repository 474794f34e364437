"""Who may still produce by the Metadata of before."""

from __future__ import annotations

from dataclasses import replace

from gateway.core.repartition.adoption import Adopting, Producing
from gateway.core.repartition.consumers import Client

ME: Client = ("10.0.0.1", "app")


def adopting(newest: int = 5) -> Adopting:
    return Adopting("orders", newest=newest, since_ms=0, produced=frozenset({5}))


def producing(connection: int, oldest_ns: int | None = None, *topics: str) -> Producing:
    return Producing(connection, True, oldest_ns, ME, topics, whole_ns=oldest_ns or 0)


def test_only_those_that_produce_and_were_not_served() -> None:
    asked = adopting()
    idle = Producing(4, produces=False, oldest_ns=None)
    elsewhere = producing(3, None, "payments")
    assert asked.outstanding([producing(5), idle, elsewhere]) == [5]
    asked.served(5, ME, now_ns=100)
    assert asked.outstanding([producing(5)]) == []


def test_one_that_begins_to_produce_is_as_the_others() -> None:
    asked = adopting()
    assert asked.outstanding([producing(4, None, "orders")]) == [4]
    asked.served(5, ME, now_ns=100)  # its client's, but on another connection of before
    assert asked.outstanding([producing(4, None, "orders")]) == [4]


def test_a_request_of_before_is_waited_for() -> None:
    asked = adopting()
    asked.served(5, ME, now_ns=100)
    asked.served(5, ME, now_ns=900)  # again: the first time counts
    for oldest_ns, outstanding in ((0, [5]), (100, [5]), (101, []), (0, [])):
        assert asked.outstanding([producing(5, oldest_ns)]) == outstanding
    asked.closed(5)
    assert asked.outstanding([]) == []


def test_one_that_is_opened_later_goes_by_what_its_client_was_served() -> None:
    asked = adopting()
    later = producing(6, None, "orders")
    assert asked.outstanding([later, producing(7, None, "payments")]) == [6]
    asked.served(9, ("10.0.0.1", "another"), now_ns=100)
    assert asked.outstanding([later]) == [6]
    assert asked.to_close([later]) == [6]
    asked.served(8, ME, now_ns=100)
    assert asked.outstanding([later]) == []


def test_what_one_that_is_opened_later_sent_before_is_waited_for() -> None:
    """Nobody closes it: its client knows the new partitions."""
    asked = adopting()
    asked.served(8, ME, now_ns=100)
    asked.served(9, ME, now_ns=900)  # again: the first time counts
    for oldest_ns, outstanding in ((100, [6]), (101, []), (None, [])):
        assert asked.outstanding([producing(6, oldest_ns, "orders")]) == outstanding
        assert asked.to_close([producing(6, oldest_ns, "orders")]) == []
    in_the_middle = producing(6, 0, "orders")
    assert asked.outstanding([in_the_middle]) == [], "it has nothing that is whole"
    for whole_ns, outstanding in ((100, [6]), (101, [])):
        pipelined = replace(in_the_middle, whole_ns=whole_ns)
        assert asked.outstanding([pipelined]) == outstanding, "an earlier one is upstream"
