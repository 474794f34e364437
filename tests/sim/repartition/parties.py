"""Who takes part in the simulation of several nodes (nodes.py): they, and the producers with their
connections; and what of the producers an onlooker knows that no node does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gateway.core.repartition.adoption import Adopting
from gateway.core.repartition.consumers import Client
from gateway.core.repartition.holding import LogEnds
from gateway.core.repartition.record import Repartition
from tests.sim.repartition.world import Producer


@dataclass(slots=True)
class Node:
    name: str
    ends: LogEnds
    skew_ms: int
    record: Repartition | None = None  # as it knows it; None: it has just started
    up: bool = True
    heard_ms: int = 0  # by the others
    adopting: Adopting | None = None
    late_ms: int = 0
    counted: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Link:
    """A producer's connection to one node."""

    connection: int
    produces: bool = False
    topics: tuple[str, ...] = ()
    produced_ms: int = 0  # for the first time


@dataclass(slots=True)
class ProducerAt:
    """A producer with its connections. Times are `now_ms`."""

    producer: Producer
    asks_ms: int  # for Metadata, after so long
    links: dict[str, Link] = field(default_factory=dict)  # by node
    asked_ms: int = 0
    learned_ms: int = -1  # when it heard of the new partitions; -1: not yet
    frozen_ms: int = 0  # until then
    moves_ms: int = 0  # its operator moves it then
    rests: bool = False  # it has nothing to send while the topic changes
    since_ms: dict[int, int] = field(default_factory=dict)  # by partition: what it has sent there
    stuck: set[int] = field(default_factory=set)  # partitions that it does not reach now

    @property
    def client(self) -> Client:
        return f"10.0.0.{id(self)}", "app"


class Unadopted(AssertionError):
    """Boundaries were taken though somebody could still produce by the Metadata of before."""


def judge_boundaries(
    before: int,
    taker: Node,
    clients: Iterable[ProducerAt],
    nodes: Iterable[Node],
    owners: Mapping[int, Node],
) -> None:
    """At the moment at which `taker` takes them. The client of each connection that had produced
    when its node told of it last knows the new partitions, and has nothing on its way there that it
    had sent before. What it could not send until then is another matter: that is late.
    """
    told = {node.name: node for node in nodes}
    for client in clients:
        for name, link in client.links.items():
            node = told[name]
            known = node is taker or link.produced_ms < node.heard_ms
            if not (link.produces and known):
                continue
            if client.learned_ms < 0:
                raise Unadopted(f"{name} has {client.producer.keys}: it knows {before}")
            for at in range(before):
                on_its_way = client.producer.sent.get(at) and at not in client.stuck
                if owners[at] is node and on_its_way and client.since_ms[at] <= client.learned_ms:
                    raise Unadopted(f"{name} has an older request to partition {at}")
