"""A server of a test's own on loopback, within the test's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[str]:
    """Its URL. `serve` has each connection; at the end they are all closed."""
    connections: set[asyncio.Task[object] | None] = set()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.current_task())
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
        server.close()
        left = [opened for opened in connections if opened is not None]
        for opened in left:
            opened.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0)  # closed transports tell their sockets in the next turn


async def until(done: Callable[[], bool]) -> None:
    """Polls `done`; bound it by a timeout."""
    while not done():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)
