"""The owners of virtual brokers among the live nodes: who owns which now, and what should change.

Every node reads the same content (`Routing`) and the same live nodes, and comes to the same plan:
there is no leader among them. Whoever publishes first wins: the store takes a plan only from a node
that knows the newest generation.

A virtual broker whose owner is dead, or is none, goes to another node at once. One whose owner
lives moves in two steps: the plan names its next owner, and the present owner makes the move once
it has let go of its windows (`handed_over`).

A node that does not reach an upstream broker for a while gives up its virtual brokers to one that
does (reach.py). If nobody does, they stay where they are.

What operators have ordered (orders.py) is content, too. A drained node gets nothing that another
one can have; silence does not end that, only a restart does. A placed virtual broker stays where it
was put while that node can own it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

Endpoint = tuple[str, int]  # host and port, as clients are told
Endpoints = Mapping[
    str, Endpoint
]  # by listener: clients are told the endpoint of the listener they came to


class Standing(Enum):
    """What a virtual broker is to one node."""

    OWNED = "owned"
    HANDING_OVER = "handing over"  # still its owner: it lets go, and nobody else has it yet
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A live node, as it describes itself. It can own the virtual brokers that it serves. `silent`,
    `reached`: those of them whose upstream broker has not answered it for a while, or has for long.
    """

    id: str
    serves: Mapping[int, Endpoints] = field(default_factory=dict)  # by virtual broker
    leaving: bool = False
    silent: frozenset[int] = frozenset()
    reached: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """What all nodes agree on. The generation grows with each change of the rest."""

    generation: int = 0
    owners: Mapping[int, str] = field(default_factory=dict)  # node ids, by virtual broker
    next_owners: Mapping[int, str] = field(default_factory=dict)  # of brokers that are to move
    drained: frozenset[str] = frozenset()  # nodes, by an operator
    placed: Mapping[int, str] = field(default_factory=dict)  # node ids, by an operator

    def same_content(self, other: Routing) -> bool:
        return replace(self, generation=other.generation) == other

    def standing(self, node: str, broker: int) -> Standing:
        if self.owners.get(broker) != node:
            return Standing.ELSEWHERE
        return Standing.HANDING_OVER if broker in self.next_owners else Standing.OWNED

    def handing_over(self, node: str) -> frozenset[int]:
        return frozenset(broker for broker in self.next_owners if self.owners.get(broker) == node)


def planned(routing: Routing, live: Mapping[str, Node]) -> Routing:
    """The routing as it should be with these nodes; its generation is not set."""
    placed = {
        broker: name for broker, name in routing.placed.items() if can_own(name, routing, live)
    }
    wanted = _wanted(replace(routing, placed=placed), live)
    owners: dict[int, str] = {}
    next_owners: dict[int, str] = {}
    for broker, name in wanted.items():
        owner = routing.owners.get(broker)
        if owner is None or owner == name or owner not in live:
            owners[broker] = name
        else:
            owners[broker] = owner
            next_owners[broker] = name
    owners |= {  # Nobody else could take it from a node that leaves: it owns it to its end.
        broker: owner
        for broker, owner in routing.owners.items()
        if broker not in wanted and owner in live and broker in live[owner].serves
    }
    return replace(routing, generation=0, owners=owners, next_owners=next_owners, placed=placed)


def can_own(name: str, routing: Routing, live: Mapping[str, Node]) -> bool:
    return name in live and not live[name].leaving and name not in routing.drained


def _wanted(routing: Routing, live: Mapping[str, Node]) -> dict[int, str]:
    holders = {**routing.owners, **routing.next_owners}
    able = {name: node for name, node in live.items() if can_own(name, routing, live)}
    reached = {broker for node in able.values() for broker in node.serves.keys() & node.reached}
    serving = {name: node.serves.keys() - (node.silent & reached) for name, node in able.items()}
    found = assigned(serving, holders, routing.placed)
    last = {  # Better a drained node than none.
        name: node.serves.keys() - found.keys()
        for name, node in live.items()
        if name in routing.drained and not node.leaving
    }
    return found | assigned(last, holders)


def handed_over(routing: Routing, node: str, brokers: Collection[int]) -> Routing:
    """The content once `node` has let go of `brokers`; its generation is not set."""
    letting_go = routing.handing_over(node) & set(brokers)
    moved = {broker: routing.next_owners[broker] for broker in letting_go}
    rest = {broker: name for broker, name in routing.next_owners.items() if broker not in moved}
    owners = {**routing.owners, **moved}
    return replace(routing, generation=0, owners=owners, next_owners=rest)


def left(routing: Routing, node: str) -> Routing:
    """The content once `node` has let go of everything and is gone; its generation is not set."""
    after = handed_over(routing, node, routing.handing_over(node))
    return replace(
        after,
        owners={broker: name for broker, name in after.owners.items() if name != node},
        next_owners={broker: name for broker, name in after.next_owners.items() if name != node},
        drained=after.drained - {node},
        placed={broker: name for broker, name in after.placed.items() if name != node},
    )


def assigned(
    serving: Mapping[str, Collection[int]],
    holders: Mapping[int, str],
    placed: Mapping[int, str] | None = None,
) -> dict[int, str]:
    """An owner for each virtual broker that a node serves. A placed one is where it was put. A
    holder keeps the others that it has, as far as no node has two of them more than another one
    that could take it: what an operator moves away draws nothing else after it.
    """
    fixed = {
        broker: name for broker, name in (placed or {}).items() if broker in serving.get(name, ())
    }
    loads: dict[str, list[int]] = {name: [] for name in sorted(serving)}
    free: list[int] = []
    for broker in sorted({broker for brokers in serving.values() for broker in brokers}):
        holder = holders.get(broker)
        if broker in fixed:
            continue
        if holder is not None and broker in serving.get(holder, ()):
            loads[holder].append(broker)
        else:
            free.append(broker)
    for broker in free:
        takers = [name for name in loads if broker in serving[name]]
        loads[min(takers, key=lambda name: len(loads[name]))].append(broker)
    while (move := _levelling(loads, serving)) is not None:
        giver, taker, broker = move
        loads[giver].remove(broker)
        loads[taker].append(broker)
    return fixed | {broker: name for name, brokers in loads.items() for broker in brokers}


def _levelling(
    loads: Mapping[str, list[int]], serving: Mapping[str, Collection[int]]
) -> tuple[str, str, int] | None:
    """A move (giver, taker, virtual broker) from a node that has two more than the taker."""
    for giver in sorted(loads, key=lambda name: (-len(loads[name]), name)):
        for taker in sorted(loads, key=lambda name: (len(loads[name]), name)):
            if len(loads[giver]) < len(loads[taker]) + 2:
                break
            for broker in sorted(loads[giver], reverse=True):
                if broker in serving[taker]:
                    return giver, taker, broker
    return None


def endpoints(routing: Routing, live: Mapping[str, Node]) -> dict[int, Endpoints]:
    """Where clients find the owner of each virtual broker. A virtual broker whose owner is not
    known to live is left out.
    """
    found: dict[int, Endpoints] = {}
    for broker, name in routing.owners.items():
        node = live.get(name)
        if node is not None and broker in node.serves:
            found[broker] = node.serves[broker]
    return found


def moved(before: Routing, after: Routing) -> frozenset[int]:
    """The virtual brokers whose clients have to look again. Nobody else has."""
    return differing(before.owners, after.owners) | differing(before.next_owners, after.next_owners)


def differing(before: Mapping[int, object], after: Mapping[int, object]) -> frozenset[int]:
    brokers = before.keys() | after.keys()
    return frozenset(broker for broker in brokers if before.get(broker) != after.get(broker))
