"""Which virtual brokers this node owns: of a node that stands alone, and of one among several.

`SharedOwners` beats: it shows itself in Redis, reads the others, publishes the plan of
gateway/core/routing if it differs, and makes the moves that are its own. Order never depends on it:
two nodes that both take themselves for the owner are kept apart by the fences of the windows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import structlog

from gateway.core.routing.orders import drained, placed, undrained
from gateway.core.routing.ownership import (
    Endpoints,
    Node,
    Routing,
    Standing,
    differing,
    endpoints,
    handed_over,
    left,
    moved,
    planned,
)
from gateway.routing.limits import (
    BEAT_MS,
    BROKERS_SEEN_S_MAX,
    CLOCK_FORWARD_MS,
    HAND_OVER_S_MAX,
    SESSION_MS,
)
from gateway.routing.lost_cancel import cancelled
from gateway.routing.shared_table import NodeRow, NodeTaken, RoutingUnavailable, SharedTable

log = structlog.get_logger("keyway.nodes")

_ATTEMPTS_MAX = 5  # each one loses against another node that changed something
_NONE: frozenset[int] = frozenset()


def since_boot_s() -> float:
    """Goes on while the machine sleeps: a node that wakes is no clock that was put forward."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class CannotJoin(Exception):
    """The node cannot be one of those that share its Redis; one line that names the reason."""


class Owners(Protocol):
    """The owners of virtual brokers, as the rooms above see them."""

    @property
    def identity(self) -> tuple[str, str]:
        """The node, and which process of it: as the store knows the writer."""
        ...

    @property
    def generation(self) -> int:
        """The generation of the owners that are known; 0: the node stands alone."""
        ...

    def standing(self, broker: int | None) -> Standing:
        """What the virtual broker is to this node. None: the bootstrap port, which nobody owns."""
        ...

    def certain(self) -> bool:
        """No other node can have taken over what this one owns. What no store fences depends on it.
        False after the node stood still for a session, or did not reach Redis.
        """
        ...

    def endpoints(self) -> Mapping[int, Endpoints]:
        """Where clients find the owners. A node that stands alone names only itself."""
        ...

    def on_change(self, callback: Callable[[], None]) -> None:
        """`callback` is called when owners or their endpoints have changed."""
        ...

    def on_moved(self, callback: Callable[[frozenset[int]], int]) -> None:
        """`callback` tells the clients of these virtual brokers, whose owner or address is another
        now, to look again. It returns how many it told.
        """
        ...

    def on_let_go(self, callback: Callable[[frozenset[int]], Awaitable[None]]) -> None:
        """`callback` gives up all of these virtual brokers, before another node gets them."""
        ...

    def look_soon(self) -> None:
        """Somebody asked for what this node does not own: perhaps the owners have changed."""
        ...

    def others(self) -> Sequence[str]:
        """The ids of the other live nodes."""
        ...


class Alone:
    """A node that owns everything, for ever."""

    generation = 0
    identity = ("", "")

    def standing(self, broker: int | None) -> Standing:  # noqa: ARG002
        return Standing.OWNED

    def certain(self) -> bool:
        return True

    def endpoints(self) -> Mapping[int, Endpoints]:
        return {}

    def on_change(self, callback: Callable[[], None]) -> None: ...

    def on_moved(self, callback: Callable[[frozenset[int]], int]) -> None: ...

    def on_let_go(self, callback: Callable[[frozenset[int]], Awaitable[None]]) -> None: ...

    def look_soon(self) -> None: ...

    def others(self) -> Sequence[str]:
        return ()


# Long: `Owners`, the orders of operators, and the beat that both are made of.
class SharedOwners:
    """`serves`: the virtual brokers that this node listens for; `agreed`: what every node must have
    alike; `facts`: for operators; `reach`: the virtual brokers whose upstream broker is silent, and
    is reached (gateway/core/routing/reach.py). `clock`: in seconds; nobody puts it forward.
    """

    def __init__(
        self,
        node_id: str,
        table: SharedTable,
        *,
        serves: Callable[[], Mapping[int, Endpoints]],
        agreed: Callable[[], Mapping[str, str]],
        facts: Callable[[], Mapping[str, Any]],
        reach: Callable[[], tuple[frozenset[int], frozenset[int]]] = lambda: (_NONE, _NONE),
        clock: Callable[[], float] = since_boot_s,
    ) -> None:
        self.node_id = node_id
        self.routing = Routing()
        self.rows: tuple[NodeRow, ...] = ()  # of all nodes, as of the last beat
        self.trouble = ""  # why the last beat failed
        self.moves = 0  # virtual brokers that this node handed over, and ...
        self.moves_ms = 0  # ... the time that took
        self.pushes = 0  # fetches that were told to look again
        self._table = table
        self._serves = serves
        self._agreed = agreed
        self._facts = facts
        self._reach = reach
        self._clock = clock
        self._beat_at: tuple[int, float] | None = None  # the clock of Redis, and this node's before
        self._live: dict[str, Node] = {}
        self._endpoints: dict[int, Endpoints] = {}
        self._joined = False
        self._leaving = False
        self._certain_until_s = 0.0  # the others count this node as alive for longer
        # Redis was away, or its clock was put forward: silence of others is no death before this.
        self._doubts_until_s = 0.0
        self._agreed_s = 0.0  # when the nodes last listened for the same brokers
        self._beating = asyncio.Lock()
        self._look = asyncio.Event()
        self._on_change: list[Callable[[], None]] = []
        self._on_moved: list[Callable[[frozenset[int]], int]] = []
        self._on_let_go: list[Callable[[frozenset[int]], Awaitable[None]]] = []

    @property
    def identity(self) -> tuple[str, str]:
        return self.node_id, self._table.incarnation

    @property
    def generation(self) -> int:
        return self.routing.generation

    def standing(self, broker: int | None) -> Standing:
        if broker is None:
            return Standing.OWNED
        return self.routing.standing(self.node_id, broker)

    def certain(self) -> bool:
        return asyncio.get_running_loop().time() < self._certain_until_s

    def endpoints(self) -> Mapping[int, Endpoints]:
        return self._endpoints

    def on_change(self, callback: Callable[[], None]) -> None:
        self._on_change.append(callback)

    def on_moved(self, callback: Callable[[frozenset[int]], int]) -> None:
        self._on_moved.append(callback)

    def on_let_go(self, callback: Callable[[frozenset[int]], Awaitable[None]]) -> None:
        self._on_let_go.append(callback)

    def look_soon(self) -> None:
        self._look.set()

    def others(self) -> list[str]:
        return sorted(self._live.keys() - {self.node_id})

    def unowned(self) -> list[int]:
        """Virtual brokers that no live node owns, also those that nobody listens for any more."""
        served = {broker for node in self._live.values() for broker in node.serves}
        brokers = served | self.routing.owners.keys()
        return sorted(
            broker for broker in brokers if self.routing.owners.get(broker) not in self._live
        )

    # ------------------------------------------------------------------------------ start and stop

    async def enter(self) -> None:
        """Takes the node's id, and compares what all nodes must have alike; waits for Redis. Raises
        CannotJoin.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + 2 * SESSION_MS / 1000
        while True:
            try:
                await self._beat()
            except NodeTaken as taken:
                if loop.time() > until_s:
                    raise CannotJoin(
                        f"nodes.id: another process is node {self.node_id!r}, and alive"
                    ) from taken
                log.info("node_id_taken", node=self.node_id, for_ms=taken.for_ms)
                await asyncio.sleep(BEAT_MS / 1000)
            except RoutingUnavailable:
                await asyncio.sleep(BEAT_MS / 1000)
            else:
                break
        self._check_agreed()

    def _check_agreed(self) -> None:
        ours = dict(self._agreed())
        for row in self.rows:
            if row.node.id == self.node_id or row.alive_ms <= 0:
                continue
            for name in sorted({*ours, *row.agreed}):
                if ours.get(name) != row.agreed.get(name):
                    raise CannotJoin(
                        f"node {row.node.id!r} shares this Redis (state.redis_url) and has another"
                        f" {name}: {row.agreed.get(name)}, here {ours.get(name)}"
                    )

    async def join(self) -> None:
        """From now on the node serves clients, and may own virtual brokers."""
        self._joined = True
        async with self._beating:
            try:
                await self._beat()  # A restart is the end of a drain.
                await self._change(lambda: undrained(self.routing, self._live, self.node_id))
                await self._settle()
            except RoutingUnavailable as error:
                log.warning("joined_later", reason=str(error))

    async def run(self) -> None:
        """Runs until cancelled. Raises CannotJoin when another process has become this node."""
        while not cancelled():
            self._look.clear()
            try:
                async with self._beating:
                    if not self._leaving:
                        await self._settle()
            except RoutingUnavailable:
                pass  # noted; the next beat tries again
            except NodeTaken as taken:
                raise CannotJoin(f"{taken}: this one was away for too long") from taken
            try:
                async with asyncio.timeout(BEAT_MS / 1000):
                    await self._look.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(BEAT_MS / 1000 / 8)  # many may ask at once

    async def leave(self) -> None:
        """A planned stop: others get the virtual brokers before clients are sent away."""
        self._leaving = True
        async with self._beating:
            try:
                await self._settle()
                for _ in range(_ATTEMPTS_MAX):
                    await self._let_go(frozenset(self._owned()))
                    content = left(self.routing, self.node_id)
                    generation = self.routing.generation
                    if await self._table.leave(self.node_id, generation, content):
                        live = {
                            other: node
                            for other, node in self._live.items()
                            if other != self.node_id
                        }
                        self._learn(content, live)
                        log.info("left", node=self.node_id)
                        return
                    await self._beat()
            except (RoutingUnavailable, NodeTaken) as error:
                log.warning("not_left", node=self.node_id, reason=str(error))

    # ------------------------------------------------------------------------- orders of operators

    async def drain(self, node: str) -> None:
        """The node is to give up all it owns. Raises OrderRefused, RoutingUnavailable."""
        await self._order(lambda: drained(self.routing, self._live, node))

    async def undrain(self, node: str) -> None:
        """The node may own something again. Raises OrderRefused, RoutingUnavailable."""
        await self._order(lambda: undrained(self.routing, self._live, node))

    async def move(self, broker: int, node: str | None) -> None:
        """The virtual broker is to go to this node; None: wherever Keyway would have it. Raises
        OrderRefused, RoutingUnavailable.
        """
        await self._order(lambda: placed(self.routing, self._live, broker, node))

    async def _order(self, change: Callable[[], Routing]) -> None:
        """The order is stored when this returns. The owners hand over with their next beats."""
        async with self._beating:
            try:
                await self._beat()
                await self._change(change)
            except NodeTaken as taken:
                raise RoutingUnavailable(str(taken)) from taken
        self.look_soon()

    async def _change(self, change: Callable[[], Routing]) -> None:
        """Publishes what the nodes plan after this change. It is asked anew when another node was
        faster.
        """
        for _ in range(_ATTEMPTS_MAX):
            content = planned(change(), self._live)
            if content.same_content(self.routing):
                return
            if await self._store(content):
                with suppress(RoutingUnavailable, NodeTaken):  # It is stored whatever comes now.
                    await self._beat()
                return
            await self._beat()
        raise RoutingUnavailable("other nodes change owners all the time")

    def _owned(self) -> list[int]:
        return [broker for broker, owner in self.routing.owners.items() if owner == self.node_id]

    # ------------------------------------------------------------------------------------- one beat

    async def _settle(self) -> None:
        """Beats, publishes what should change, and makes this node's own moves. Raises NodeTaken,
        RoutingUnavailable.
        """
        await self._beat()
        wanted = planned(self.routing, self._live)
        if self._agree_on_brokers() and not wanted.same_content(self.routing):
            await self._publish(wanted)
        moving = self.routing.handing_over(self.node_id)
        if moving and not self._leaving:
            await self._let_go(moving)
            await self._publish(handed_over(self.routing, self.node_id, moving))

    def _agree_on_brokers(self) -> bool:
        """False while one node has noticed that a broker of Kafka has gone or come, and another has
        not: a plan of that moment would move healthy brokers there and back.
        """
        now_s = asyncio.get_running_loop().time()
        served = {frozenset(node.serves) for node in self._live.values() if node.serves}
        if len(served) <= 1:
            self._agreed_s = now_s
            return True
        return now_s - self._agreed_s >= BROKERS_SEEN_S_MAX

    async def _publish(self, content: Routing) -> None:
        await self._store(content)
        await self._beat()

    async def _store(self, content: Routing) -> bool:
        """False: another node was faster."""
        done = await self._table.publish(self.node_id, self.routing.generation, content)
        if done:
            log.info(
                "owners_changed",
                owners=dict(content.owners),
                moving=dict(content.next_owners),
                drained=sorted(content.drained),
                placed=dict(content.placed),
            )
        return done

    async def _beat(self) -> None:
        silent, reached = self._reach()
        node = Node(
            id=self.node_id,
            serves=dict(self._serves()) if self._joined else {},
            leaving=self._leaving,
            silent=silent,
            reached=reached,
        )
        loop = asyncio.get_running_loop()
        began_s, clock_s = loop.time(), self._clock()
        try:
            view = await self._table.beat(node, self._agreed(), self._facts())
        except RoutingUnavailable as error:
            if not self.trouble:
                log.warning("nodes_not_heard", reason=str(error))
            self.trouble = str(error)
            raise
        if self.trouble:
            self.trouble = ""
            self._doubts_until_s = loop.time() + SESSION_MS / 1000
            log.info("nodes_heard_again")
        forward_ms = self._put_forward_ms(view.clock_ms, clock_s)
        if forward_ms > CLOCK_FORWARD_MS:
            log.warning("redis_clock_put_forward", ms=round(forward_ms))
            self._doubts_until_s = loop.time() + SESSION_MS / 1000
        self._certain_until_s = began_s + SESSION_MS / 1000
        doubts = loop.time() < self._doubts_until_s
        self.rows = tuple(sorted(view.rows, key=lambda row: row.node.id))
        live = {
            row.node.id: row.node
            for row in self.rows
            if row.alive_ms > 0 or (doubts and row.node.id in self._live)
        }
        self._learn(view.routing, live)

    def _put_forward_ms(self, clock_ms: int, clock_s: float) -> float:
        """How much more time has passed for Redis than for this node since the last beat.
        `clock_s`: before this one was sent.
        """
        before, self._beat_at = self._beat_at, (clock_ms, clock_s)
        if before is None:
            return 0.0
        return clock_ms - before[0] - (self._clock() - before[1]) * 1000

    def _learn(self, routing: Routing, live: dict[str, Node]) -> None:
        for name in sorted(live.keys() - self._live.keys()):
            log.info("node_seen", node=name)
        for name in sorted(self._live.keys() - live.keys()):
            log.info("node_gone", node=name)
        before, shown = self.routing, self._endpoints
        self.routing, self._live = routing, live
        self._endpoints = endpoints(routing, live)
        if not before.same_content(routing) or shown != self._endpoints:
            for callback in self._on_change:
                callback()
        brokers = moved(before, routing) | differing(shown, self._endpoints)
        if brokers:
            self.pushes += sum(tell(brokers) for tell in self._on_moved)

    async def _let_go(self, brokers: frozenset[int]) -> None:
        if not brokers:
            return
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.timeout(HAND_OVER_S_MAX):
                for callback in self._on_let_go:
                    await callback(brokers)
        except TimeoutError:
            log.warning("let_go_unfinished", brokers=sorted(brokers), seconds=HAND_OVER_S_MAX)
        took_ms = round((loop.time() - began_s) * 1000)
        self.moves += len(brokers)
        self.moves_ms += took_ms
        log.info("let_go", brokers=sorted(brokers), took_ms=took_ms)
