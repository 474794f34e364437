"""The bytes of one connection to a broker, cut into responses as they arrive. There is no reader
task: the protocol object cuts frames and completes futures.
"""

from __future__ import annotations

import asyncio
import io
import struct
from collections import deque
from typing import cast

from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.wire.frames import request_frame
from gateway.upstream.errors import Unreachable, UpstreamError
from gateway.upstream.limits import ANSWER_BYTES_MAX, LONG_ANSWER_BYTES

_INT = struct.Struct(">i")


class LongAnswers:
    """Answers of more than LONG_ANSWER_BYTES. One at a time is read, the others wait on the wire:
    each is in memory whole until its records have been taken apart.
    """

    def __init__(self) -> None:
        self._coming: Frames | None = None
        self._waiting: dict[Frames, None] = {}

    def begin(self, frames: Frames) -> None:
        if self._coming is None:
            self._coming = frames
        else:
            self._waiting[frames] = None
            frames.read(on=False)

    def end(self, frames: Frames) -> None:
        """The answer has come, or never will."""
        self._waiting.pop(frames, None)
        if self._coming is frames:
            self._coming = next(iter(self._waiting), None)
            if self._coming is not None:
                del self._waiting[self._coming]
                self._coming.read(on=True)


class Frames(asyncio.Protocol):
    """Cuts the byte stream into responses, each for the oldest request that has none yet."""

    def __init__(self, long_answers: LongAnswers) -> None:
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._long = io.BytesIO()  # a long response, of which `_missing` bytes are to come
        self._missing = 0
        self._long_answers = long_answers
        self._waiting: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        self._next_id = 0
        self._closing = False

    @property
    def usable(self) -> bool:
        return self.transport is not None and not self._closing and not self.transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._missing:
            piece = data if len(data) <= self._missing else data[: self._missing]
            data = data[len(piece) :]
            self._long.write(piece)
            self._missing -= len(piece)
            if self._missing:
                return None
            frame = self._long.getvalue()  # no copy: it is the only holder of its bytes
            self._long = io.BytesIO()
            self._long_answers.end(self)
            if not self._completed(frame):
                return None
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4:
            size = _INT.unpack_from(buffer)[0]
            if not 4 <= size <= ANSWER_BYTES_MAX:
                return self.abort(Unreachable(f"frame of {size} bytes: this is not a Kafka broker"))
            if len(buffer) < 4 + size:
                if size > LONG_STEP_BYTES:
                    self._long.write(memoryview(buffer)[4:])
                    self._missing = 4 + size - len(buffer)
                    buffer.clear()
                    if size > LONG_ANSWER_BYTES:
                        self._long_answers.begin(self)
                return None
            frame = bytes(memoryview(buffer)[4 : 4 + size])
            del buffer[: 4 + size]
            if not self._completed(frame):
                return None
        return None

    def _completed(self, frame: bytes) -> bool:
        if not self._waiting or _INT.unpack_from(frame)[0] != self._waiting[0][0]:
            self.abort(Unreachable("answer to a request that was not asked: this is not Kafka"))
            return False
        _, answer = self._waiting.popleft()
        if not answer.done():  # else its caller gave up
            answer.set_result(frame)
        if self._closing and not self._waiting:
            self.abort(Unreachable("connection closed"))
            return False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.abort(Unreachable(f"connection lost: {exc or 'closed by the broker'}"))

    def ask(self, key: int, version: int, client_id: str, body: bytes) -> asyncio.Future[bytes]:
        assert self.transport is not None
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) & 0x7FFFFFFF
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append((correlation_id, answer))
        self.transport.write(request_frame(key, version, correlation_id, client_id, body))
        return answer

    def abort(self, error: UpstreamError) -> None:
        """Closes at once; everything that still waits fails with `error`."""
        self._closing = True
        self._long = io.BytesIO()
        self._long_answers.end(self)
        if self.transport is not None:
            self.transport.abort()
        waiting, self._waiting = self._waiting, deque()
        for _, answer in waiting:
            if not answer.done():
                answer.set_exception(error)

    def give_up_transport(self) -> asyncio.Transport:
        """Hands the transport over to another protocol. Everything that was asked is answered."""
        assert self.transport is not None
        assert not self._waiting, "an answer is still to come"
        assert not self._buffer, "more came than was asked for"
        transport, self.transport, self._closing = self.transport, None, True
        return transport

    def read(self, *, on: bool) -> None:
        """Lets more bytes come, or not for now."""
        transport = self.transport
        if transport is None or transport.is_closing() or transport.is_reading() == on:
            return
        if on:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def retire(self) -> None:
        """Takes no more requests and closes when the last one is answered."""
        self._closing = True
        if not self._waiting:
            self.abort(Unreachable("connection closed"))
