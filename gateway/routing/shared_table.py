"""The nodes and owners in Redis (routing.lua): what a node says there, and reads of the others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.core.routing.ownership import Endpoint, Node, Routing
from gateway.routing.limits import BEAT_S_MAX, GONE_SHOWN_MS, SESSION_MS

KEY = "keyway:routing"
_TAKEN, _STALE = -1, -2
_NODE = b"node:"


class RoutingUnavailable(Exception):
    """Redis did not answer, or something else than expected. Retriable."""


class NodeTaken(Exception):
    """Another process is the node of this id; `for_ms`: it counts as alive for so long."""

    def __init__(self, node: str, for_ms: int) -> None:
        super().__init__(f"another process is node {node!r}")
        self.for_ms = for_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One node as it is stored."""

    node: Node
    alive_ms: int  # it counts as alive for so long; negative: so long ago it died
    agreed: Mapping[str, str]  # settings that all nodes must have alike
    facts: Mapping[str, Any]  # shown to operators
    incarnation: str = ""  # of the process that wrote it


@dataclass(frozen=True, slots=True)
class View:
    """`clock_ms`: of Redis, by which `rows` are judged."""

    routing: Routing
    rows: Sequence[NodeRow]
    clock_ms: int


class SharedTable:
    """`incarnation` differs between two processes of the same node. `now_ms`: its clock, which is
    compared with that of Redis.
    """

    def __init__(
        self, redis: Redis, incarnation: str, now_ms: Callable[[], int] | None = None
    ) -> None:
        self._redis = redis
        self.incarnation = incarnation
        self.clock_off_ms: float | None = None  # the clock of Redis, less that of this node
        self._now_ms = now_ms
        self._script = resources.files("gateway.routing").joinpath("routing.lua").read_text()

    async def beat(self, node: Node, agreed: Mapping[str, str], facts: Mapping[str, Any]) -> View:
        """Shows this node, and reads all. Raises NodeTaken, RoutingUnavailable."""
        description = {
            "serves": {str(broker): dict(at) for broker, at in node.serves.items()},
            "leaving": node.leaving,
            "silent": sorted(node.silent),
            "reached": sorted(node.reached),
            "agreed": dict(agreed),
            "facts": dict(facts),
        }
        began_ms = None if self._now_ms is None else self._now_ms()
        answer = await self._call(
            "beat",
            node.id,
            str(SESSION_MS * 1000),
            str(GONE_SHOWN_MS * 1000),
            json.dumps(description, separators=(",", ":")),
        )
        if answer[0] == _TAKEN:
            raise NodeTaken(node.id, int(answer[1]) // 1000 + 1)
        if began_ms is not None and self._now_ms is not None:
            self.clock_off_ms = int(answer[0]) / 1000 - (began_ms + self._now_ms()) / 2
        try:
            return _view(answer)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise RoutingUnavailable(f"{KEY} in Redis cannot be read: {error!r}") from error

    async def publish(self, node: str, generation: int, content: Routing) -> bool:
        """Puts `content` in the place of what was there at `generation`; False: it is newer. Raises
        NodeTaken, RoutingUnavailable.
        """
        return await self._put("publish", node, generation, content)

    async def leave(self, node: str, generation: int, content: Routing) -> bool:
        """Publishes as `publish` does, and takes the node out."""
        return await self._put("leave", node, generation, content)

    async def _put(self, verb: str, node: str, generation: int, content: Routing) -> bool:
        owners = {
            "owners": {str(broker): name for broker, name in content.owners.items()},
            "next": {str(broker): name for broker, name in content.next_owners.items()},
            "drained": sorted(content.drained),
            "placed": {str(broker): name for broker, name in content.placed.items()},
        }
        answer = await self._call(verb, node, str(generation), json.dumps(owners))
        if answer == _TAKEN:
            raise NodeTaken(node, 0)
        return bool(answer != _STALE)

    async def _call(self, verb: str, node: str, *arguments: str) -> Any:  # noqa: ANN401
        try:
            async with asyncio.timeout(BEAT_S_MAX):
                return await self._redis.eval(
                    self._script, 1, KEY, verb, node, self.incarnation, *arguments
                )
        except (RedisError, OSError, TimeoutError) as error:
            raise RoutingUnavailable(str(error) or "Redis does not answer in time") from error


async def living_nodes(redis: Redis) -> list[NodeRow]:
    """The nodes that share this Redis and are alive, by id. Raises RoutingUnavailable."""
    try:
        async with asyncio.timeout(BEAT_S_MAX):
            stored: dict[Any, Any] = await redis.hgetall(KEY)
            seconds, micros = await redis.time()
    except (RedisError, OSError, TimeoutError) as error:
        raise RoutingUnavailable(str(error) or "Redis does not answer in time") from error
    now_us = seconds * 1_000_000 + micros
    rows = [_row(name, row, now_us) for name, row in stored.items() if name.startswith(_NODE)]
    return sorted((row for row in rows if row.alive_ms > 0), key=lambda row: row.node.id)


def _view(answer: Sequence[Any]) -> View:
    now_us, generation, owners, fields = answer
    content = json.loads(owners) if owners else {}
    routing = Routing(
        generation=int(generation),
        owners=_names(content, "owners"),
        next_owners=_names(content, "next"),
        drained=frozenset(map(str, content.get("drained", ()))),
        placed=_names(content, "placed"),
    )
    pairs = zip(fields[::2], fields[1::2], strict=True)
    rows = [_row(name, row, int(now_us)) for name, row in pairs]
    return View(routing, rows, int(now_us) // 1000)


def _names(content: Mapping[str, Any], what: str) -> dict[int, str]:
    return {int(broker): str(name) for broker, name in content.get(what, {}).items()}


def _row(name: bytes, row: bytes, now_us: int) -> NodeRow:
    incarnation, alive_until, description = row.split(b" ", 2)
    said = json.loads(description)
    return NodeRow(
        node=Node(
            id=name.removeprefix(_NODE).decode(),
            serves={int(broker): _endpoints(at) for broker, at in said["serves"].items()},
            leaving=bool(said["leaving"]),
            # A node of before 0.3 says nothing of them.
            silent=frozenset(map(int, said.get("silent", ()))),
            reached=frozenset(map(int, said.get("reached", ()))),
        ),
        alive_ms=(int(alive_until) - now_us) // 1000,
        agreed={str(key): str(value) for key, value in said["agreed"].items()},
        facts=said["facts"],
        incarnation=incarnation.decode(),
    )


def _endpoints(said: Any) -> dict[str, Endpoint]:  # noqa: ANN401
    """A node of an earlier format says one address. It is not used: `agreed` differs, too."""
    if not isinstance(said, dict):
        return {}
    return {str(name): (str(at[0]), int(at[1])) for name, at in said.items()}
