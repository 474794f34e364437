"""`GET /v1/events`: the overview as server-sent events, one every OVERVIEW_S.

A viewer asks for the latest snapshot whenever its turn comes, so a slow one misses some and holds
none back. One that does not take a snapshot within VIEWER_SEND_S_MAX is dropped, and there are at
most VIEWERS_MAX: other browsers poll `GET /v1/overview` instead. A stream ends after VIEW_S_MAX,
and the browser asks for the next one: a caller whose token or session has ended sees no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.admin.limits import OVERVIEW_S, VIEW_S_MAX, VIEWER_SEND_S_MAX, VIEWERS_MAX

RETRY_MS = 2_000  # until a browser tries again, told to it


@dataclass(slots=True)
class Viewers:
    """The open event streams."""

    count: int = 0
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def end(self) -> None:
        """The node stops: every stream ends at once."""
        self._ended.set()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def pause(self) -> None:
        """OVERVIEW_S, or until the end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(OVERVIEW_S):
                await self._ended.wait()


class EventStream(Response):
    """The overviews of one viewer, until it leaves, is too slow, or the node stops."""

    media_type = "text/event-stream"

    def __init__(self, overview: Callable[[], Awaitable[bytes]], viewers: Viewers) -> None:
        """`overview`: as JSON. Raises HTTPException: there are too many viewers."""
        if viewers.count >= VIEWERS_MAX:
            raise HTTPException(503, f"{VIEWERS_MAX} dashboards are open on this node already")
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.overview = overview
        self.viewers = viewers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.viewers.count += 1
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            with suppress(TimeoutError):
                await self._stream(request, send)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.viewers.count -= 1

    async def _stream(self, request: Request, send: Send) -> None:
        """Raises TimeoutError for a viewer that does not read."""
        opening = b"retry: %d\n\n" % RETRY_MS
        left = int(VIEW_S_MAX / OVERVIEW_S)
        while left and not self.viewers.ended and not await request.is_disconnected():
            left -= 1
            event = b"%bevent: overview\ndata: %b\n\n" % (opening, await self.overview())
            opening = b""
            async with asyncio.timeout(VIEWER_SEND_S_MAX):
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await self.viewers.pause()
