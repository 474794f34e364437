"""A TCP proxy that can fall silent: connections stay open and nothing passes, as in a network that
loses everything.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

CHUNK_BYTES = 65_536

Address = tuple[str, int]


class Proxies:
    """All of them on one event loop, in a thread. `speak` and `silence` are for other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._speaking: dict[str, asyncio.Event] = {}  # by name; several ways may share one
        self._servers: list[asyncio.Server] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(10)
            self._loop.close()

    def open(self, name: str, ways: Mapping[Address, Address]) -> None:
        """From each address to another. The targets need not listen yet."""
        asyncio.run_coroutine_threadsafe(self._open(name, ways), self._loop).result(10)

    def silence(self, name: str) -> None:
        self._loop.call_soon_threadsafe(self._speaking[name].clear)

    def speak(self, name: str) -> None:
        self._loop.call_soon_threadsafe(self._speaking[name].set)

    async def _open(self, name: str, ways: Mapping[Address, Address]) -> None:
        speaking = self._speaking.setdefault(name, asyncio.Event())
        speaking.set()
        for here, there in ways.items():

            async def accepted(
                reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter,
                there: Address = there,
            ) -> None:
                await _between(reader, writer, there, speaking)

            self._servers.append(await asyncio.start_server(accepted, *here))

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)


async def _between(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    there: Address,
    speaking: asyncio.Event,
) -> None:
    await speaking.wait()
    try:
        other_reader, other_writer = await asyncio.open_connection(*there)
    except OSError:
        writer.transport.abort()  # as a port where nobody listens
        return
    ways = (_pass(reader, other_writer, speaking), _pass(other_reader, writer, speaking))
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await speaking.wait()
    finally:
        for task in tasks:
            task.cancel()
        for end in (writer, other_writer):
            end.close()


async def _pass(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, speaking: asyncio.Event
) -> None:
    with suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            await speaking.wait()
            writer.write(chunk)
            await writer.drain()
