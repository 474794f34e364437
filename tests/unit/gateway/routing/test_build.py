"""Addresses of virtual brokers by listener, as nodes tell each other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gateway.core.forwarding.rewrite import Address
from gateway.listen.listening import Listening
from gateway.routing.build import by_listener, endpoints_of


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
