"""One simulated `keyway serve` among several: the parts of gateway/node/wiring.py that know of
other nodes, on an event loop of its own. Sockets, Redis and Kafka are models; all decisions are the
node's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import gateway.members.build as members_build
import gateway.routing.build as routing_build
import gateway.windows.build as windows_build
from gateway.core.cluster.topology import TopicPartition, Topology
from gateway.core.forwarding.rewrite import Address
from gateway.core.repartition.holds import Holds
from gateway.core.routing.orders import OrderRefused
from gateway.core.wire.long_bytes import whole
from gateway.group_log import GroupLog
from gateway.handlers.share_requests import ShareServices
from gateway.listen.authoriser import Authoriser
from gateway.listen.server import Request
from gateway.node.lifecycle import run_parts
from gateway.part import Part
from gateway.routing.owners import CannotJoin, SharedOwners
from gateway.routing.shared_table import NodeTaken, RoutingUnavailable
from gateway.upstream.cluster import EARLIEST
from gateway.windows.table import WindowTable
from tests.rig.node_parts import ScriptedDeadLetters
from tests.rig.scripted_log import ScriptedLog
from tests.rig.share_client import HANDLERS, ScriptedConnection
from tests.sim.nodes.redis import Link, StoreLink
from tests.sim.nodes.timeline import Loop

if TYPE_CHECKING:
    from gateway.core.wire.apis import ApiKey
    from gateway.core.wire.frames import RequestHeader
    from gateway.core.wire.schema import Message
    from tests.sim.nodes.world import World

PORT = 9000  # + the number of the virtual broker
LISTENER = "clients"


class Cluster:
    """gateway/upstream/cluster.py: the node's view of Kafka, which may be late."""

    watched: frozenset[str] = frozenset()

    def __init__(self, world: World) -> None:
        self._world = world
        self.topology: Topology = world.topology
        self._callbacks: list[Callable[[Topology], None]] = []
        self._coordinators: dict[str, int] = {}

    def on_topology(self, callback: Callable[[Topology], None]) -> None:
        self._callbacks.append(callback)

    def look(self) -> None:
        if self.topology != self._world.topology:
            self.topology = self._world.topology
            for callback in self._callbacks:
                callback(self.topology)

    def request_refresh(self) -> None:
        asyncio.get_running_loop().call_later(0.1, self.look)

    def silent_brokers(self) -> dict[int, str]:
        return {}

    async def refresh(self, topics: Iterable[str] = ()) -> Topology:  # noqa: ARG002
        await asyncio.sleep(0.001)
        self.look()
        return self.topology

    def watch(self, topics: Iterable[str]) -> None: ...

    def unwatch(self, topics: Iterable[str]) -> None: ...

    def known_coordinator(self, group: str) -> int | None:
        return self._coordinators.get(group)

    async def coordinator(self, group: str) -> int:
        if group not in self._coordinators:
            await asyncio.sleep(0.001)
            self._coordinators[group] = self._world.coordinator
        return self._coordinators[group]

    def forget_coordinator(self, group: str) -> None:
        self._coordinators.pop(group, None)

    async def look_for_coordinators(self, groups: Sequence[str]) -> None:
        for group in groups:
            self.forget_coordinator(group)
        if groups:
            await asyncio.sleep(0.001)
            self._coordinators |= dict.fromkeys(groups, self._world.coordinator)

    async def list_offset(self, tp: TopicPartition, timestamp: int, isolation: int) -> int:  # noqa: ARG002
        return 0 if timestamp == EARLIEST else len(self._world.records[tp.partition])


class Server:
    """gateway/listen/server.py: where the node listens, and the clients' lines to it."""

    def __init__(self, world: World, name: str) -> None:
        brokers = range(1, world.options.brokers + 1)
        self.addresses = {broker: Address(name, PORT + broker) for broker in brokers}
        self.elsewhere: dict[int, Address] = {}
        self.lines: dict[int, Line] = {}
        self.listens = False
        self._on_disconnect: list[Callable[[int], None]] = []
        self._on_drain: list[Callable[[], None]] = []

    @property
    def listening(self) -> Server:
        """Of one listener."""
        return self

    @property
    def all(self) -> dict[str, Server]:
        return {LISTENER: self}

    def show_elsewhere(self, found: dict[str, dict[int, Address]]) -> None:
        self.elsewhere = found.get(LISTENER, {})

    @property
    def shown(self) -> dict[int, Address]:
        return {**self.addresses, **self.elsewhere}

    def on_disconnect(self, callback: Callable[[int], None]) -> None:
        self._on_disconnect.append(callback)

    def on_drain(self, callback: Callable[[], None]) -> None:
        self._on_drain.append(callback)

    def on_metadata(self, callback: Callable[[int, Message], None]) -> None:
        self.told_metadata = callback

    def forget_coordinators(self, forgotten: object) -> None:
        """The simulated clients take their coordinator's address from each answer."""

    async def serve(self) -> None:
        self.listens = True

    async def drain(self) -> None:
        for callback in self._on_drain:
            callback()
        self.listens = False
        for line in list(self.lines.values()):
            line.drain()
        try:
            async with asyncio.timeout(5):
                while self.lines:  # noqa: ASYNC110 - they end by themselves
                    await asyncio.sleep(0.05)
        except TimeoutError:
            for line in list(self.lines.values()):
                line.end()

    def gone(self, line: Line) -> None:
        """The connection has ended; its requests end with it."""
        if self.lines.pop(line.id, None) is not None:
            for task in line.requests:
                task.cancel()
            for callback in self._on_disconnect:
                callback(line.id)


class Line(ScriptedConnection):
    """A client's connection to a virtual broker of one process, both ends of it."""

    def __init__(self, process: Process, number: int, broker: int) -> None:
        super().__init__(number, broker)
        self.facts.since_ms = process.now_ms()
        self.process = process
        self.requests: set[asyncio.Task[bytes]] = set()
        self.broken = False  # as the client sees it
        self.drains = False
        self.answers: set[asyncio.Future[bytes | None]] = set()  # None: broken
        self.when_broken: Callable[[], None] = lambda: None

    def drain(self) -> None:
        """The node ends it once it has answered what it was asked."""
        self.drains = True
        if not self.requests:
            self.end()

    def end(self) -> None:
        self.process.server.gone(self)
        self.process.world.timeline.after(0.5, self.break_off)

    def break_off(self) -> None:
        """The client's end of it; a client that works notices later."""
        if self.broken:
            return
        self.broken = True
        self.when_broken()
        for answer in list(self.answers):
            if not answer.done():
                answer.set_result(None)

    def hang_up(self) -> None:
        """By the client, or by the network: the node hears of it when it runs."""
        self.break_off()
        self.process.call(lambda: self.process.server.gone(self))

    def arrives(
        self,
        key: ApiKey,
        header: RequestHeader,
        payload: bytes,
        answer: asyncio.Future[bytes | None],
    ) -> None:
        """At the process, in its loop."""
        if self.id not in self.process.server.lines or self.broken:
            return
        request = Request(header, payload, self.as_connection())

        async def work() -> bytes:
            return whole(await HANDLERS[key](self.process.services, request))

        task = asyncio.get_running_loop().create_task(work())
        self.requests.add(task)

        def done(_: asyncio.Task[bytes]) -> None:
            self.requests.discard(task)
            if not task.cancelled():
                self._reply(task.result(), answer)
            if self.drains and not self.requests and not self.broken:
                self.end()

        task.add_done_callback(done)

    def _reply(self, said: bytes, answer: asyncio.Future[bytes | None]) -> None:
        def heard() -> None:
            if not self.broken and not answer.done():
                answer.set_result(said)

        self.process.world.timeline.after(self.process.world.rng.random() / 2, heard)


class Process:
    """From its start to its end. The next process of the same node is another one."""

    def __init__(self, world: World, name: str, skew_ms: int) -> None:
        self.world = world
        self.name = name
        self.skew_ms = skew_ms
        self.link = Link(world.redis)
        self.loop = Loop(world.timeline, self._failed)
        world.timeline.loops.append(self.loop)
        self.cluster = Cluster(world)
        self.server = Server(world, name)
        self.log = ScriptedLog()
        self.log.records = world.records
        self.log.leaders = world.epochs
        self.dead = False
        self.leaving = False
        self.cut_off = False  # clients do not reach it
        self._stop: asyncio.Event
        self._main = self.loop.create_task(self._run())
        self.owners: SharedOwners
        self.services: ShareServices
        self.table: WindowTable
        world.processes.append(self)

    def __repr__(self) -> str:
        return f"{self.name}{' paused' if self.paused else ''}{' dead' if self.dead else ''}"

    def now_ms(self) -> int:
        return self.world.timeline.now_ms + self.skew_ms

    @property
    def paused(self) -> bool:
        return self.loop.stands_still

    def _failed(self, error: BaseException) -> None:
        if not self.dead and not isinstance(error, CannotJoin):
            self.world.failed(error)

    def call(self, work: Callable[[], object]) -> None:
        """From outside, in its loop, when that is turned."""
        if not self.dead:
            self.loop.call_soon(work)

    # ------------------------------------------------------------------------------------ the parts

    async def _run(self) -> None:
        self._stop = asyncio.Event()
        if self.leaving:
            self._stop.set()
        tasks = asyncio.TaskGroup()
        try:
            await run_parts(self._wired(tasks), tasks, self._stop)
        except BaseExceptionGroup as group:
            rest = group.split(CannotJoin)[1]
            if rest is not None and not self.dead:
                self.world.failed(rest)
        if not self.dead:
            self.world.note("CannotJoin" if not self._stop.is_set() else "Stopped")
            self.world.timeline.after(0, self.gone)

    def _wired(self, tasks: asyncio.TaskGroup) -> list[Part[Any]]:
        world = self.world
        config = world.config(self.name)
        upstream = cast(Any, SimpleNamespace(cluster=self.cluster, commits=world.commits))
        listen = cast(Any, SimpleNamespace(server=self.server, authoriser=Authoriser(self.now_ms)))
        reader = SimpleNamespace(
            read_on=self.log.read_on,
            hasten=self.log.hasten,
            stop=self.log.stop,
            forget_below=self.log.forget_below,
            records=self.log,
            failing=self.log,
        )
        reading = cast(Any, SimpleNamespace(reader=reader, dead_letters=ScriptedDeadLetters()))
        redis = cast(Any, self.link)
        clock = lambda: world.timeline.now_ms / 1000  # noqa: E731
        nodes = routing_build.build(config, upstream, listen, redis, self.now_ms, clock)
        shared = nodes.room.shared
        assert shared is not None
        self.owners = shared
        groups = members_build.build(config, upstream, listen, shared, redis, self.now_ms)
        groups.room.settings.ask = _nothing_set
        store = StoreLink(self.link, self.name, world.judge.claimed, world.judge.fenced)
        windows = windows_build.build(
            config,
            upstream,
            reading,
            groups.room,
            shared,
            store,
            tasks,
            GroupLog(self.now_ms),
            self.now_ms,
            Holds(loaded=True),
        )
        self.table = windows.room.windows.table
        self.cluster.on_topology(windows.room.windows.news.topology_changed)
        self.services = self._services(groups.room, windows.room)
        server = Part(name="server", room=None, start=self.server.serve, drain=self.server.drain)
        last = [members_build.farewell(groups.room, shared), *routing_build.joining(nodes.room)]
        return [nodes, groups, windows, server, *last]

    def _services(
        self, members: members_build.MembersRoom, windows: windows_build.WindowsRoom
    ) -> ShareServices:
        return ShareServices(
            settings=members.settings,
            topology=lambda: self.cluster.topology,
            advertised=lambda _: dict(self.server.shown),
            refresh=self.cluster.refresh,
            groups=members.groups,
            windows=windows.windows.table,
            news=windows.windows.news,
            records=self.log,
            authoriser=Authoriser(self.now_ms),
            ready=windows.ready,
            other_type_active=_no_other,
            clear_overtaken=_nothing_overtaken,
            delivered=_nothing_told,
            now_ms=self.now_ms,
            owners=self.owners,
            coordination=members.coordination,
        )

    # --------------------------------------------------------------------------------- its troubles

    def stop(self) -> None:
        """SIGTERM."""
        self.leaving = True

        def said() -> None:
            if hasattr(self, "_stop"):
                self._stop.set()

        self.call(said)

    def kill(self) -> None:
        """kill -9: nothing of its code runs any more; its clients notice."""
        self.gone()
        self.loop.stands_still = True

    def gone(self) -> None:
        if self.dead:
            return
        self.dead = True
        self.link.over = True
        self.server.listens = False
        self.world.process_gone(self)
        for line in list(self.server.lines.values()):
            self.world.timeline.after(self.world.rng.random(), line.break_off)

    def order(self, what: Callable[[SharedOwners], Coroutine[Any, Any, None]]) -> None:
        """An operator asks this node."""

        async def asked() -> None:
            with suppress(OrderRefused, RoutingUnavailable, NodeTaken):
                await what(self.owners)

        self.call(lambda: self.loop.create_task(asked()))

    def pause(self) -> None:
        self.loop.stands_still = True

    def go_on(self) -> None:
        if not self.dead:
            self.loop.stands_still = False

    def end(self) -> None:
        """At the end of the history."""
        self.dead = self.link.over = True
        self.loop.end()


async def _nothing_set(_group: str) -> dict[str, str]:
    return {}


async def _nothing_overtaken(_group: str) -> None: ...


async def _no_other(_group: str) -> bool:
    return False


def _nothing_told(_group: str, _topic: str, _records: int, _size: int) -> None: ...
