"""Connections to upstream are opened a few at a time."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from gateway.core.cluster.topology import Broker, Topology
from gateway.core.forwarding.rewrite import Address
from gateway.listen.limits import CONNECTS_AT_ONCE, UPSTREAM_AGAIN_S, UPSTREAM_PATIENCE_S
from gateway.listen.server import Server, ServerSettings
from gateway.upstream.errors import Unreachable
from tests.rig.virtual_time import run

CLIENTS = 5 * CONNECTS_AT_ONCE
Connected = tuple[asyncio.Transport, asyncio.Protocol]
CONNECTED = asyncio.Transport(), asyncio.Protocol()


def test_many_clients_that_come_at_once_do_not_overflow_the_brokers_accept_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """23 of 200 clients that sent a byte at a time were cut off, by SYN cookies of a broker's port.
    A broker that takes no connection holds up nobody else.
    """

    async def work() -> None:
        gates = {9_092: asyncio.Event(), 9_093: asyncio.Event()}
        under_way: Counter[int] = Counter()

        async def create_connection(
            _factory: object, _host: str, port: int, **_: object
        ) -> Connected:
            under_way[port] += 1
            await gates[port].wait()
            under_way[port] -= 1
            return CONNECTED

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", create_connection)
        topology = Topology(brokers={2: Broker(2, "kafka", 9_093)})
        server = Server(ServerSettings((Address("kafka", 9_092),)), topology, {})
        async with asyncio.TaskGroup() as tasks:
            first = [
                tasks.create_task(server.connect(2, asyncio.Protocol())) for _ in range(CLIENTS)
            ]
            second = tasks.create_task(server.connect(None, asyncio.Protocol()))
            await asyncio.sleep(1)
            assert under_way == {9_092: 1, 9_093: CONNECTS_AT_ONCE}
            gates[9_092].set()
            await second
            assert not any(task.done() for task in first)
            gates[9_093].set()
        assert under_way.total() == 0

    run(work())


def test_one_knocks_for_all_clients_at_a_broker_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1,000 clients that came again and again took half a core, most of it for connections."""

    async def work() -> None:
        knocks = 0
        back = False

        async def create_connection(*_: object, **__: object) -> Connected:
            nonlocal knocks
            knocks += 1
            if not back:
                raise ConnectionRefusedError("refused")
            return CONNECTED

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", create_connection)
        server = Server(ServerSettings((Address("kafka", 9_092),)), Topology(), {})

        async def client() -> bool:
            try:
                await server.connect(None, asyncio.Protocol())
            except Unreachable:
                return False
            return True

        assert not any(await asyncio.gather(*(client() for _ in range(CLIENTS))))
        assert 1 < knocks <= UPSTREAM_PATIENCE_S / UPSTREAM_AGAIN_S + 1
        back = True
        assert all(await asyncio.gather(*(client() for _ in range(CLIENTS))))

    run(work())
