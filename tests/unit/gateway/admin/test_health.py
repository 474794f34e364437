"""Troubles, and the node's readiness: Redis, upstream, windows, commits, reading."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from redis.exceptions import ConnectionError as RedisAway
from redis.exceptions import OutOfMemoryError

from gateway.admin.health import Health, HealthCollector, look
from gateway.core.cluster.topology import Topology
from gateway.node.process import process_part
from gateway.node.redis_state import redis_troubles
from gateway.part import Part, Trouble
from gateway.reading.build import reading_troubles
from gateway.upstream.build import broker_troubles
from gateway.windows.build import window_figures, window_troubles
from gateway.windows.waiting_windows import WaitingWindows
from keyway.logs import lost_lines
from tests.rig.node_parts import GROUP, Node, topology
from tests.rig.virtual_time import run, settle


@dataclass(slots=True)
class World:
    """Redis and upstream."""

    topology: Topology = field(default_factory=lambda: topology(2))
    silent: dict[int, str] = field(default_factory=dict)
    redis_s: float = 0.0  # until it answers
    redis_failure: Exception | None = None
    failing: int = 0
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def silent_brokers(self) -> dict[int, str]:
        return self.silent

    async def set(self, _name: str, _value: str, *, xx: bool) -> bool:
        assert xx, "it changes nothing"
        await asyncio.sleep(self.redis_s)
        if self.redis_failure is not None:
            raise self.redis_failure
        return True


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """The troubles of all parts that have any, in their order in a node."""

    node: Node
    world: World
    waiting: WaitingWindows

    async def look(self) -> Health:
        world, waiting = self.world, self.waiting

        async def redis() -> list[Trouble]:
            return await redis_troubles(world)

        async def brokers() -> list[Trouble]:
            return broker_troubles(world)

        async def reading() -> list[Trouble]:
            return reading_troubles(world.failing)

        async def of_windows() -> list[Trouble]:
            return window_troubles(waiting, self.node.windows.committer.failing())

        known = {"cluster_id": world.topology.cluster_id, "brokers": len(world.topology.brokers)}
        return await look(
            [
                Part(name="redis", room=None, troubles=redis),
                Part(name="upstream", room=None, troubles=brokers, figures=lambda: known),
                Part(name="reading", room=None, troubles=reading),
                Part(
                    name="windows",
                    room=None,
                    troubles=of_windows,
                    figures=lambda: window_figures(waiting),
                ),
                Part(name="process", room=None, troubles=process_part(world.stop).troubles),
            ]
        )


def story(tell: Callable[[Node, World, NodeHealth], Awaitable[None]]) -> None:
    async def work() -> None:
        world = World()
        async with Node(topology=topology(2)) as node:
            node.beat()
            await settle()
            await tell(node, world, NodeHealth(node, world, WaitingWindows(node.windows.table)))

    run(work())


def test_all_is_well() -> None:
    async def tell(_node: Node, _world: World, health: NodeHealth) -> None:
        found = await health.look()
        assert found.ready
        assert found.shown() == {
            "status": "up",
            "reasons": [],
            "warnings": [],
            "cluster_id": "c",
            "brokers": 2,
            "windows": 2,
            "windows_waiting": 0,
        }

    story(tell)


def test_what_keeps_the_node_from_serving() -> None:
    async def tell(_node: Node, world: World, health: NodeHealth) -> None:
        async def reasons() -> list[str]:
            found = await health.look()
            assert not found.ready
            assert found.shown()["status"] == "not ready"
            return list(found.reasons)

        world.redis_failure = RedisAway("refused")
        assert await reasons() == ["Redis does not answer: refused"]
        world.redis_failure = OutOfMemoryError("command not allowed when used memory > 'maxmemory'")
        assert await reasons() == [
            "Redis refuses to write: command not allowed when used memory > 'maxmemory'"
        ]
        world.redis_failure, world.redis_s = None, 60.0
        assert await reasons() == ["Redis does not answer: in time"]
        world.redis_s = 0.0
        world.silent = {1: "reset", 2: "refused"}
        assert (await reasons())[0] == "none of 2 upstream brokers answers"
        world.silent, world.topology = {}, Topology()
        assert await reasons() == ["none of 0 upstream brokers answers"]
        world.topology = topology(2)
        world.stop.set()
        assert await reasons() == ["the node is stopping"]

    story(tell)


def test_a_group_that_is_gone_has_nothing_to_commit() -> None:
    async def tell(node: Node, _world: World, health: NodeHealth) -> None:
        node.commits.errors = [30]
        await node.windows.committer.commit()
        assert (await health.look()).shown()["status"] == "degraded"
        for window in node.windows.table.all():
            node.windows.table.drop(window.key)
        assert (await health.look()).reasons == ()

    story(tell)


def test_what_is_amiss_while_it_serves() -> None:
    async def tell(node: Node, world: World, health: NodeHealth) -> None:
        async def reason() -> str:
            found = await health.look()
            assert found.ready
            assert found.shown()["status"] == "degraded"
            (only,) = found.reasons
            return only

        world.silent = {2: "reset"}
        assert await reason() == "broker 2 does not answer: reset"
        world.silent, world.failing = {}, 3
        assert await reason() == "3 partitions cannot be read"
        world.failing = 0
        node.commits.errors = [30]
        await node.windows.committer.commit()
        assert await reason() == f"commits of group {GROUP} fail"
        await node.windows.committer.commit()
        assert (await health.look()).reasons == ()
        node.window(1).fail(RuntimeError("no room"))
        assert await reason() == "1 windows wait, the first: RuntimeError: no room"
        assert (await health.look()).figures["windows_waiting"] == 1

    story(tell)


def test_a_log_that_cannot_be_written_is_amiss(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(_node: Node, _world: World, health: NodeHealth) -> None:
        monkeypatch.setattr(lost_lines, "reason", "No space left on device")
        found = await health.look()
        assert found.ready
        assert found.reasons == ("the log cannot be written: No space left on device",)

    story(tell)


def test_troubles_are_counted_by_part_for_prometheus() -> None:
    async def tell(_node: Node, world: World, health: NodeHealth) -> None:
        registry = CollectorRegistry()
        collector = HealthCollector()
        registry.register(collector)
        assert generate_latest(registry) == b"", "nobody has looked yet"
        world.silent = {1: "reset", 2: "refused"}
        collector.seen = await health.look()
        text = generate_latest(registry).decode()
        assert "keyway_health_ready 0.0\n" in text
        assert 'keyway_health_troubles{part="upstream"} 3.0\n' in text
        assert 'keyway_health_troubles{part="redis"} 0.0\n' in text

    story(tell)


def test_a_warning_leaves_the_node_up() -> None:
    """It has no trouble of its own: no load balancer and no supervisor need to know."""

    async def work() -> None:
        part = Part(name="groups", room=None, warnings=lambda: ["group g has stopped"])
        found = await look([part])
        assert found.ready
        assert found.shown() == {"status": "up", "reasons": [], "warnings": ["group g has stopped"]}
        assert found.outlined() == {"status": "up", "reasons": [], "warnings": ["groups"]}
        registry = CollectorRegistry()
        registry.register(HealthCollector(found))
        assert b'keyway_health_warnings{part="groups"} 1.0\n' in generate_latest(registry)

    run(work())
