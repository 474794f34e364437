"""`python -m tests.bench.floor_server SOCKET FILE`: the least that a share fetch can cost.

A server on uvloop, on a port of its own that it prints. For each request of REQUEST_BYTES it sends
the command in FILE, RESP as it is to be sent, to the Redis at SOCKET, waits for its answer, one for
each of WINDOWS windows, and answers ANSWER_BYTES. It looks at nothing: what a gateway costs above
this is its work.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from pathlib import Path
from typing import cast

import hiredis
import uvloop

REQUEST_BYTES = 300
ANSWER_BYTES = 1_500
WINDOWS = 4  # of a fetch
SERVED_S_MAX = 600.0
_ANSWER = bytes(ANSWER_BYTES)


class Redis(asyncio.Protocol):
    def __init__(self) -> None:
        self.waiting: deque[asyncio.Transport] = deque()
        self._reader = hiredis.Reader()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (answer := self._reader.gets()) is not False:
            taken = cast("list[int]", answer)
            assert len(taken) == WINDOWS
            assert min(taken) > 0, answer  # else a step was refused
            self.waiting.popleft().write(_ANSWER)


class Client(asyncio.Protocol):
    def __init__(self, redis: Redis, line: asyncio.Transport, commands: bytes) -> None:
        self._redis = redis
        self._line = line
        self._commands = commands
        self._had = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._had += len(data)
        while self._had >= REQUEST_BYTES:
            self._had -= REQUEST_BYTES
            self._redis.waiting.append(self._transport)
            self._line.write(self._commands)


async def serve(socket: str, commands: bytes) -> None:
    loop = asyncio.get_running_loop()
    line, redis = await loop.create_unix_connection(Redis, socket)
    server = await loop.create_server(lambda: Client(redis, line, commands), "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.sleep(SERVED_S_MAX)


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], Path(sys.argv[2]).read_bytes()))
