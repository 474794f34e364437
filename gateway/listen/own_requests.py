"""Requests that the gateway sends on a client's own upstream connection, so in the client's name.
The client does not see them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway.core.forwarding.own_answers import own_answer
from gateway.core.wire.codec import encode_request
from gateway.core.wire.errors import WireError
from gateway.core.wire.frames import (
    parse_request_header,
    parse_response_header,
    renumbered,
    request_frame,
)
from gateway.core.wire.schema import Message
from gateway.listen.limits import INJECTED_REQUESTS_MAX
from gateway.upstream.errors import Unreachable
from gateway.upstream.opening import Ask

_CORRELATION_IDS_FROM = 0x4B00_0000  # tells these requests apart in a dump
_CORRELATION_IDS = 0x00FF_FFFF


class OwnRequests:
    def __init__(self, inject: Callable[[bytes, int], None]) -> None:
        """`inject` sends a frame with this correlation id."""
        self.client_id: str | None = None  # of the client's last request
        self._inject = inject
        self._asking = asyncio.Semaphore(INJECTED_REQUESTS_MAX)
        self._may_ask = asyncio.Event()  # not while something is asked alone
        self._may_ask.set()
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._next = 0
        self._ended = False

    async def ask(self, api_key: int, api_version: int, body: Message) -> Message:
        """Raises UpstreamError when the connection ends first. The broker works on one request of a
        connection at a time: this waits for the client's earlier requests.
        """
        async with self._asking:
            await self._may_ask.wait()
            return await self._ask(api_key, api_version, body)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Ask]:
        """Other requests wait until the end of the block."""
        self._may_ask.clear()
        try:
            yield self._ask
        finally:
            self._may_ask.set()

    async def pass_on(self, payload: bytes) -> bytes:
        """A request of the client's, without its size. Returns the body of the answer."""
        async with self._asking:
            await self._may_ask.wait()
            number = self._new_number()
            answer = await self._sent(renumbered(payload, number), number)
            asked = parse_request_header(payload)
            header = parse_response_header(asked.api_key, asked.api_version, answer)
            return answer[header.body_at :]

    async def _ask(self, api_key: int, api_version: int, body: Message) -> Message:
        number = self._new_number()
        encoded = encode_request(api_key, api_version, body)
        frame = request_frame(api_key, api_version, number, self.client_id, encoded)
        payload = await self._sent(frame, number)
        try:
            return own_answer(api_key, api_version, payload)
        except WireError as error:
            raise Unreachable(f"unreadable answer: {error}") from error

    def _new_number(self) -> int:
        self._next = (self._next + 1) & _CORRELATION_IDS
        return _CORRELATION_IDS_FROM + self._next

    async def _sent(self, frame: bytes, correlation_id: int) -> bytes:
        if self._ended:
            raise Unreachable("the client's connection has ended")
        future = asyncio.get_running_loop().create_future()
        self._asked[correlation_id] = future
        self._inject(frame, correlation_id)
        return bytes(await future)

    def answered(self, correlation_id: int, payload: bytes) -> None:
        future = self._asked.pop(correlation_id)
        if not future.done():  # The handler may have given up.
            future.set_result(payload)

    def end(self) -> None:
        self._ended = True
        for future in self._asked.values():
            if not future.done():
                future.set_exception(Unreachable("the connection has ended"))
        self._asked.clear()
