"""Addresses of virtual brokers by listener, as nodes tell each other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gateway.core.cluster.slots import Slots
from gateway.core.cluster.topology import Broker, Topology
from gateway.core.forwarding.rewrite import Address
from gateway.listen.listening import Listening
from gateway.routing.build import by_listener, endpoints_of, reach_of
from gateway.routing.limits import REACHED_S


def listening(**addresses: dict[int, Address]) -> Listening:
    all_: Any = {
        name: SimpleNamespace(addresses=of_listener) for name, of_listener in addresses.items()
    }
    return cast(Listening, SimpleNamespace(all=all_))


def test_a_broker_is_served_once_every_listener_has_it() -> None:
    """Clients of the other listener would have no way to it."""
    found = endpoints_of(
        listening(
            inside={1: Address("a", 1), 2: Address("a", 2)},
            outside={1: Address("a.example", 11)},
        )
    )
    assert found == {1: {"inside": ("a", 1), "outside": ("a.example", 11)}}


def test_without_listeners_nothing_is_served() -> None:
    assert endpoints_of(listening()) == {}


def test_each_listener_is_told_its_own_addresses() -> None:
    endpoints = {
        1: {"inside": ("a", 1), "outside": ("a.example", 11)},
        2: {"inside": ("b", 2), "outside": ("b.example", 12)},
    }
    assert by_listener(endpoints) == {
        "inside": {1: Address("a", 1), 2: Address("b", 2)},
        "outside": {1: Address("a.example", 11), 2: Address("b.example", 12)},
    }


def test_all_slots_of_a_broker_are_silent_with_it() -> None:
    upstream = SimpleNamespace(
        topology=Topology(brokers={n: Broker(n, "kafka", n) for n in (1, 2)}),
        silent_brokers=lambda: {2: "Connection refused"},
    )
    now_s = 0.0
    look = reach_of(cast(Any, upstream), Slots(2), lambda: now_s)
    assert look() == (frozenset(), frozenset())
    now_s = REACHED_S
    assert look() == (frozenset({2, 1_000_002}), frozenset({1, 1_000_001}))
