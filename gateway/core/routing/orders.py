"""What an operator may order of the nodes: to drain one, and to move a virtual broker.

An order changes the content that all nodes plan from (ownership.py); the owners then hand over what
must move. An order that cannot be carried out is refused, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gateway.core.routing.ownership import Node, Routing, can_own


class OrderRefused(Exception):
    """The order cannot be carried out; one line tells the operator why."""


class UnknownNode(OrderRefused):
    """No live node has this name."""


class UnknownBroker(OrderRefused):
    """No live node listens for this virtual broker."""


class CannotOwn(OrderRefused):
    """The node lives, but may not own this virtual broker, or anything."""


class NobodyElse(OrderRefused):
    """No other node could own what the node would give up."""


def drained(routing: Routing, live: Mapping[str, Node], name: str) -> Routing:
    """The node gives up all it owns, and gets nothing more until it is undrained or restarted.
    Raises UnknownNode, NobodyElse.
    """
    _check_lives(live, name)
    after = replace(routing, drained=routing.drained | {name})
    others = {
        broker
        for other, node in live.items()
        if can_own(other, after, live)
        for broker in node.serves
    }
    staying = sorted(live[name].serves.keys() - others)
    if staying:
        raise NobodyElse(
            f"node {name!r} cannot be drained: no other node can own virtual brokers"
            f" {', '.join(map(str, staying))}"
        )
    return after


def undrained(routing: Routing, live: Mapping[str, Node], name: str) -> Routing:
    """Raises UnknownNode."""
    if name not in routing.drained:
        _check_lives(live, name)
    return replace(routing, drained=routing.drained - {name})


def placed(routing: Routing, live: Mapping[str, Node], broker: int, name: str | None) -> Routing:
    """The virtual broker goes to this node, and stays there until the node is drained or gone, or
    it is moved again. None: Keyway chooses. Raises UnknownBroker, UnknownNode, CannotOwn.
    """
    if not any(broker in node.serves for node in live.values()):
        raise UnknownBroker(f"no node listens for virtual broker {broker}")
    rest = {other: at for other, at in routing.placed.items() if other != broker}
    if name is None:
        return replace(routing, placed=rest)
    _check_lives(live, name)
    if name in routing.drained:
        raise CannotOwn(f"node {name!r} is drained: undrain it first")
    if live[name].leaving:
        raise CannotOwn(f"node {name!r} is stopping")
    if broker not in live[name].serves:
        raise CannotOwn(f"node {name!r} does not listen for virtual broker {broker}")
    return replace(routing, placed={**rest, broker: name})


def _check_lives(live: Mapping[str, Node], name: str) -> None:
    if name not in live:
        raise UnknownNode(f"no live node is named {name!r}; alive: {', '.join(sorted(live))}")
