"""A server of a test's own on loopback, within the test's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tests.rig.fake_broker import stop_accepting

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[str]:
    """Its URL. `serve` has each connection; at the end they are all closed."""
    connections: dict[asyncio.Task[object], asyncio.StreamWriter] = {}

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections[task] = writer
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is gone
        finally:
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await stop_accepting(server)
        for opened, writer in connections.items():
            opened.cancel()
            writer.transport.abort()  # also those whose client does not read what is left
        await asyncio.gather(*connections, return_exceptions=True)
        await asyncio.sleep(0)  # closed transports tell their sockets in the next turn


async def until(done: Callable[[], bool]) -> None:
    """Polls `done`; bound it by a timeout."""
    while not done():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)
