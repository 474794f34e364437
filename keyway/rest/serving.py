"""A REST server: uvicorn inside an event loop, behind connections that are counted and have their
time.
"""

from __future__ import annotations

import asyncio
import socket
import ssl

import uvicorn
from starlette.applications import Starlette

from keyway.rest.connections import CallerSide, RestConnections


class Serving:
    """`context` None: plain HTTP."""

    def __init__(
        self, app: Starlette, connections_max: int, context: ssl.SSLContext | None
    ) -> None:
        # The audit names the peer of the connection: anybody may write X-Forwarded-For.
        config = uvicorn.Config(
            app,
            http=CallerSide,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            proxy_headers=False,
        )
        config.load()
        # Not `serve()`: that installs signal handlers of its own.
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self.connections = RestConnections(
            connections_max,
            lambda: CallerSide(config, self._server.server_state, self._server.lifespan.state),
            context,
        )
        self._listening: socket.socket | None = None
        self._started = asyncio.Event()

    async def start(self, listening: socket.socket) -> None:
        """`listening` does not block; it is the caller's to close."""
        self._listening = listening
        await self._server.startup(sockets=[])  # connections are accepted here
        self._started.set()

    async def run(self) -> None:
        await self._started.wait()
        await self._server.main_loop()

    async def accept(self) -> None:
        await self._started.wait()
        assert self._listening is not None
        await self.connections.accept_forever(self._listening)
