"""Nodes and owners as parts of the node: one that enters first, and one that joins last."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from redis.asyncio import Redis

from gateway.config.file import Config
from gateway.config.listen import ANY_ADDRESS
from gateway.core.cluster.slots import Slots
from gateway.core.forwarding.metadata_answer import ListedTopic
from gateway.core.forwarding.rewrite import Address
from gateway.core.routing.adoption import Adoption
from gateway.core.routing.coordinators import MovedCoordinators
from gateway.core.routing.ownership import Endpoints
from gateway.core.routing.reach import Reach
from gateway.listen.build import ListenRoom
from gateway.listen.listening import Listening
from gateway.listen.server import ConnectionId
from gateway.part import Part, Trouble
from gateway.routing.limits import COORDINATOR_MOVED_S, REACHED_S, SILENT_S
from gateway.routing.lone import LoneNode, refuse_lone
from gateway.routing.metrics import ADOPTED, NodesCollector
from gateway.routing.moves import PendingMoves
from gateway.routing.owners import Alone, CannotJoin, Owners, SharedOwners, since_boot_s
from gateway.routing.shared_table import RoutingUnavailable, SharedTable, living_nodes
from gateway.routing.shared_topics import SharedTopics
from gateway.upstream.build import Brokers, UpstreamRoom

log = structlog.get_logger("keyway.nodes")

# Facts of a node that others read.
SETTINGS = "groups"
CLOCK_OFF_MS = "clock_off_ms"
ADMIN_TLS = "admin_tls"

_FORMAT = "3"  # of what nodes tell each other


@dataclass(frozen=True, slots=True)
class RoutingRoom:
    owners: Owners
    shared: SharedOwners | None  # None: the node stands alone
    told: dict[str, Callable[[], Any]] = field(default_factory=dict)  # facts of rooms above
    topics: SharedTopics | None = None


def build(
    config: Config,
    upstream: UpstreamRoom,
    listen: ListenRoom,
    redis: Redis,
    now_ms: Callable[[], int],
    clock: Callable[[], float] = since_boot_s,
) -> Part[RoutingRoom]:
    """Starts behind the upstream, whose cluster id all nodes must share. `clock`: as of
    SharedOwners.
    """
    node_id = config.nodes.id
    if node_id is None:
        return _alone(config, redis)
    facts = {
        "admin": _rest_address(config),
        ADMIN_TLS: config.admin.tls is not None,
        SETTINGS: settings_digest(config),
    }
    adoption = Adoption()
    told: dict[str, Callable[[], Any]] = {ADOPTED: adoption.lowest}
    table = SharedTable(redis, secrets.token_hex(8), now_ms)
    owners = SharedOwners(
        node_id,
        table,
        serves=lambda: endpoints_of(listen.server.listening),
        agreed=lambda: agreed_settings(config, str(upstream.cluster.topology.cluster_id)),
        facts=lambda: {**facts, CLOCK_OFF_MS: table.clock_off_ms, **_told(told)},
        reach=reach_of(upstream.cluster, Slots(config.listen.slots_per_broker), _loop_s),
        clock=clock,
    )
    topics = SharedTopics(redis, lambda: owners.generation)
    upstream.cluster.on_topology(topics.look_at)

    def served(connection: ConnectionId, metadata: Sequence[ListedTopic]) -> None:
        # A broker that is behind shows older content, whatever this node knows.
        adoption.served(connection, owners.generation if topics.shown_by(metadata) else 0)

    listen.server.on_metadata(served)
    listen.server.on_disconnect(adoption.closed)

    listening = listen.server.listening
    owners.on_change(lambda: listening.show_elsewhere(by_listener(owners.endpoints())))
    moves = PendingMoves(time.monotonic)
    owners.on_change(lambda: moves.look(owners.routing.next_owners))

    async def troubles() -> Sequence[Trouble]:
        return [Trouble(f"other nodes are not heard: {owners.trouble}")] if owners.trouble else []

    def differing() -> list[str]:
        rows = [row for row in owners.rows if row.alive_ms > 0]
        return [row.node.id for row in rows if row.facts.get(SETTINGS) != facts[SETTINGS]]

    def warnings() -> Sequence[str]:
        others = differing()
        return [f"nodes {', '.join(others)} have other settings of groups"] if others else []

    def figures() -> Mapping[str, Any]:
        alive = sum(row.alive_ms > 0 for row in owners.rows)
        return {"node": node_id, "nodes": alive, "generation": owners.generation}

    return Part(
        name="routing",
        room=RoutingRoom(owners, owners, told, topics),
        troubles=troubles,
        warnings=warnings,
        figures=figures,
        collectors=(NodesCollector(owners, moves, differing, lambda: table.clock_off_ms),),
        start=_entering(owners, listen, redis),
        background=(owners.run, topics.run),
    )


def _alone(config: Config, redis: Redis) -> Part[RoutingRoom]:
    """The embedded Redis is nobody else's."""
    room = RoutingRoom(Alone(), None)
    if config.state.embedded:
        return Part(name="routing", room=room)
    where = config.listen.all()[0]
    name = f"{socket.gethostname()}:{where.bootstrap_port}"
    lone = LoneNode(redis, name, secrets.token_hex(8))

    async def enter() -> None:
        await _refuse_company(redis)
        await lone.enter()

    return Part(name="routing", room=room, start=enter, background=(lone.run,), stop=lone.leave)


def _entering(
    owners: SharedOwners, listen: ListenRoom, redis: Redis
) -> Callable[[], Awaitable[None]]:
    """The start of the part. Clients forget the coordinators whose address changes from then on."""
    coordinators = MovedCoordinators(COORDINATOR_MOVED_S)

    def look() -> None:
        coordinators.look(owners.endpoints(), time.monotonic())

    async def enter() -> None:
        await refuse_lone(redis)
        await owners.enter()
        look()  # the first one, if there was nothing to be told of

    owners.on_change(look)
    listen.server.forget_coordinators(
        lambda connection, named: coordinators.forgotten(connection, named, time.monotonic())
    )
    listen.server.on_disconnect(coordinators.closed)
    return enter


def reach_of(
    upstream: Brokers, slots: Slots, clock: Callable[[], float]
) -> Callable[[], tuple[frozenset[int], frozenset[int]]]:
    """The virtual brokers whose upstream broker is silent, and is reached."""
    reach = Reach(SILENT_S, REACHED_S)

    def look() -> tuple[frozenset[int], frozenset[int]]:
        silent = upstream.silent_brokers()
        answering = {broker: broker not in silent for broker in upstream.topology.brokers}
        reach.look(answering, clock())
        return _virtual(reach.silent), _virtual(reach.reached)

    def _virtual(brokers: frozenset[int]) -> frozenset[int]:
        return frozenset(virtual for broker in brokers for virtual in slots.all_of(broker))

    return look


def _loop_s() -> float:
    return asyncio.get_running_loop().time()


def _told(told: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    return {name: tell() for name, tell in told.items()}


def endpoints_of(listening: Listening) -> dict[int, dict[str, tuple[str, int]]]:
    """The virtual brokers that every listener has an address for."""
    addresses = {name: listener.addresses for name, listener in listening.all.items()}
    served = (
        set.intersection(*(set(of_listener) for of_listener in addresses.values()))
        if addresses
        else set()
    )
    return {
        broker: {
            name: (known[broker].host, known[broker].port) for name, known in addresses.items()
        }
        for broker in sorted(served)
    }


def by_listener(endpoints: Mapping[int, Endpoints]) -> dict[str, dict[int, Address]]:
    found: dict[str, dict[int, Address]] = {}
    for broker, addresses in endpoints.items():
        for name, at in addresses.items():
            found.setdefault(name, {})[broker] = Address(*at)
    return found


def joining(room: RoutingRoom) -> list[Part[None]]:
    """The last part: the node owns something only while it serves clients, and lets go of it before
    they are sent away.
    """
    shared = room.shared
    if shared is None:
        return []
    return [Part(name="joining", room=None, ready=shared.join, drain=shared.leave)]


async def _refuse_company(redis: Redis) -> None:
    """Raises CannotJoin if this Redis is that of several nodes."""
    try:
        living = [row.node.id for row in await living_nodes(redis)]
    except RoutingUnavailable as error:
        log.warning("other_nodes_not_looked_for", reason=str(error))
        return
    if living:
        raise CannotJoin(
            f"nodes {', '.join(living)} share this Redis (state.redis_url): set nodes.id, or use"
            " another Redis"
        )


def _rest_address(config: Config) -> str:
    """Where other nodes find this node's REST. If it is bound to all addresses, they find it where
    clients are told to connect.
    """
    host = config.admin.host
    if host in ANY_ADDRESS:
        host = config.listen.advertised_host or config.listen.host
    return f"[{host}]:{config.admin.port}" if ":" in host else f"{host}:{config.admin.port}"


def agreed_settings(config: Config, cluster_id: str) -> dict[str, str]:
    """The settings that all nodes must have alike; a node with others is refused."""
    return {
        "upstream cluster": cluster_id,
        "format": _FORMAT,
        "listen.slots_per_broker": str(config.listen.slots_per_broker),
        "names of listeners": ", ".join(sorted(listener.name for listener in config.listen.all())),
    }


def settings_digest(config: Config) -> str:
    """Tells whether two nodes have the same settings of groups."""
    sections = [section.model_dump(mode="json") for section in config.groups]
    return hashlib.sha256(json.dumps(sections, sort_keys=True).encode()).hexdigest()[:16]
