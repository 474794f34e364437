"""A primary behind a name that moves, as that of a managed Redis: the former one becomes a replica,
and the connections to it live on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest
import redis
from redis.asyncio import Redis
from redis.exceptions import RedisError

from dispatcher.core.steps import CursorMoved
from dispatcher.store.address import read_address
from dispatcher.store.base import StoreError, Write
from dispatcher.store.redis import RedisStore
from gateway.core.routing.ownership import Node
from gateway.embedded.process import free_ports
from gateway.embedded.redis import EmbeddedRedis
from gateway.routing.shared_table import RoutingUnavailable, SharedTable
from tests.rig.patience import patient_s, wait_until
from tests.rig.store_contract import KEY, opened

pytestmark = pytest.mark.integration


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[EmbeddedRedis, EmbeddedRedis]]:
    first = free_ports(2)
    with (
        EmbeddedRedis(tmp_path / "former", port=first) as former,
        EmbeddedRedis(tmp_path / "next", port=first + 1) as later,
    ):
        yield former, later


class Name:
    """An address that means one of the servers: each connection stays with the one that it meant at
    its start.
    """

    def __init__(self, means: EmbeddedRedis) -> None:
        self.means = means
        self.url = ""
        self._passing: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
        try:
            yield
        finally:
            server.close()
            for task in self._passing:
                task.cancel()
            await asyncio.gather(*self._passing, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_connection("127.0.0.1", self.means.port)
        self._passing += map(asyncio.ensure_future, (_pass(reader, to), _pass(there, writer)))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with closing(writer), suppress(OSError):
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()


def follow(replica: EmbeddedRedis, primary: EmbeddedRedis) -> None:
    """Waits until it has all that the primary has."""

    def up() -> bool:
        try:
            with redis.Redis(port=replica.port) as client:
                return bool(client.info("replication")["master_link_status"] == "up")
        except RedisError:
            return False  # it loads what it was sent

    with redis.Redis(port=replica.port) as client:
        client.replicaof("127.0.0.1", str(primary.port))
    wait_until(up, what="a replica that follows", deadline_s=60)


async def at_last(call: Callable[[], Awaitable[object]]) -> None:
    """Again and again, as a node does it."""
    async with asyncio.timeout(patient_s(30)):
        while True:
            with suppress(StoreError, RoutingUnavailable):
                await call()
                return
            await asyncio.sleep(0.05)


def test_connections_to_a_former_primary_end_by_themselves(
    servers: tuple[EmbeddedRedis, EmbeddedRedis],
) -> None:
    former, later = servers

    async def run(name: Name, store: RedisStore, client: Redis) -> None:
        table = SharedTable(client, "1")
        fence = await opened(store)
        await table.beat(Node(id="a"), {}, {})
        await asyncio.to_thread(follow, later, former)
        with redis.Redis(port=later.port) as admin:
            admin.replicaof("NO", "ONE")
        await asyncio.to_thread(follow, former, later)
        name.means = later

        async def step() -> None:
            (failure,) = await store.apply([Write(KEY, fence, [CursorMoved(65_001, 65_002)])])
            if failure is not None:
                raise failure

        await at_last(step)
        await at_last(lambda: store.claim(KEY, "one"))
        await at_last(lambda: table.beat(Node(id="a"), {}, {}))

    async def whole() -> None:
        name = Name(former)
        async with name.listening():
            store = RedisStore(name.url)
            client = Redis.from_pool(read_address(name.url).pool())
            try:
                await run(name, store, client)
            finally:
                await store.close()
                await client.aclose()

    asyncio.run(whole())
