"""One connection of the gateway itself to one upstream broker: ApiVersions, SASL, pipelined
requests, time limits.

A broker answers the requests of a connection one after the other, so a long poll delays everything
behind it: polls take a connection of their own (`Upstream.call(lane=...)`). There is no reader
task: the protocol object cuts frames and completes futures as bytes arrive.
"""

from __future__ import annotations

import asyncio
import io
import os
import secrets
import socket
import ssl
import struct
from collections import deque
from typing import cast

from gateway.core.cluster.scram import ScramClient, ScramError, check_server_final
from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.wire.apis import APIS, ApiKey
from gateway.core.wire.codec import decode_response, encode_request
from gateway.core.wire.errors import ErrorCode, WireError
from gateway.core.wire.frames import parse_response_header, request_frame
from gateway.core.wire.schema import Message
from gateway.upstream.errors import Refused, TimedOut, Unreachable, UpstreamError
from gateway.upstream.limits import ANSWER_BYTES_MAX, LONG_ANSWER_BYTES, REAUTHENTICATE_AT
from gateway.upstream.settings import Address, SaslSettings, UpstreamSettings

API_VERSIONS_VERSION = 3  # every broker since 2.4 knows it; older ones say so in v0

_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")


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
        """It has come, or never will."""
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


class BrokerConnection:
    """Connects when first asked and after it broke; waits longer after each failure."""

    def __init__(
        self,
        address: Address,
        settings: UpstreamSettings,
        long_answers: LongAnswers | None = None,
    ) -> None:
        self.address = address
        self._settings = settings
        self._long_answers = long_answers or LongAnswers()
        self._frames: Frames | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self._expires_at: float | None = None  # loop time at which the SASL session is renewed
        self._connecting = asyncio.Lock()
        self._attempts = 0
        self._failures = 0  # in a row
        self._failed: UpstreamError | None = None
        self._not_before = 0.0  # loop time
        self._closed = False

    @property
    def connected(self) -> bool:
        return self._frames is not None and self._frames.usable

    async def call(
        self, key: int, body: Message, *, version: int | None = None, timeout_ms: int
    ) -> Message:
        """Asks with the highest version both know (at most `version`). Raises UpstreamError."""
        frames: Frames | None = None  # others may have opened a newer one by the time this fails
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                frames = await self._ready()
                return await self._ask(frames, key, self._version(key, version), body)
        except TimeoutError:
            # Answers come in order: a stuck one holds up all behind it.
            what = f"{self.address} did not answer {ApiKey(key).name} in {timeout_ms} ms"
            if frames is not None:
                frames.abort(Unreachable(what))
            raise TimedOut(what) from None

    async def _ask(self, frames: Frames, key: int, version: int, body: Message) -> Message:
        encoded = encode_request(key, version, body)
        frame = await frames.ask(key, version, self._settings.client_id, encoded)
        try:
            return decode_response(
                key, version, frame, parse_response_header(key, version, frame).body_at
            )
        except WireError as error:
            broken = Unreachable(f"{self.address}: unreadable {ApiKey(key).name}: {error}")
            frames.abort(broken)
            raise broken from error

    def _version(self, key: int, version_max: int | None) -> int:
        api = APIS[key]
        theirs = self._versions.get(key, (0, -1))
        best = min(api.max_version, theirs[1])
        if version_max is not None:
            best = min(best, version_max)
        if best < max(api.min_version, theirs[0]):
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"{ApiKey(key).name} at {self.address}")
        return best

    async def _ready(self) -> Frames:
        if self._frames is not None and self._frames.usable and not self._expired():
            return self._frames
        attempts = self._attempts
        async with self._connecting:
            if self._frames is not None and self._frames.usable and not self._expired():
                return self._frames
            if attempts != self._attempts and self._failed is not None:
                # it failed while we waited for the lock: that was our attempt too
                raise self._failed
            if self._closed:
                raise Unreachable(f"{self.address}: the gateway is stopping")
            return await self._connect()

    def _expired(self) -> bool:
        return self._expires_at is not None and _loop_time() >= self._expires_at

    async def _connect(self) -> Frames:
        if self._frames is not None:
            self._frames.retire()
        await asyncio.sleep(max(0.0, self._not_before - _loop_time()))
        self._attempts += 1
        try:
            self._frames = await self._open()
        except UpstreamError as error:
            self._failed = error
            self._failures += 1
            self._not_before = _loop_time() + self._settings.backoff_ms(self._failures) / 1000
            raise
        self._failed = None
        self._failures = 0
        return self._frames

    async def _open(self) -> Frames:
        frames = Frames(self._long_answers)
        timeout_ms = self._settings.connect_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._open_socket(frames)
                self._versions = await self._negotiate(frames)
                if self._settings.sasl is not None:
                    await self._authenticate(frames, self._settings.sasl)
        except TimeoutError:
            frames.abort(Unreachable("connection closed"))
            raise TimedOut(f"{self.address}: no connection in {timeout_ms} ms") from None
        except OSError as error:  # ssl.SSLError and gaierror are OSErrors
            frames.abort(Unreachable("connection closed"))
            raise Unreachable(f"{self.address}: {_why(error)}") from error
        except BaseException:
            frames.abort(Unreachable("connection closed"))
            raise
        return frames

    async def _open_socket(self, frames: Frames) -> None:
        tls = self._settings.tls
        await asyncio.get_running_loop().create_connection(
            lambda: frames,
            self.address.host,
            self.address.port,
            ssl=None if tls is None else tls.context(),
        )

    async def _negotiate(self, frames: Frames) -> dict[int, tuple[int, int]]:
        key, client_id = ApiKey.API_VERSIONS, self._settings.client_id
        body = {"ClientSoftwareName": "keyway", "ClientSoftwareVersion": "0"}
        version = API_VERSIONS_VERSION
        encoded = encode_request(key, version, body)
        frame = await frames.ask(key, version, client_id, encoded)
        if _SHORT.unpack_from(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION:
            version = 0  # KIP-511: an older broker answers in v0
            frame = await frames.ask(key, version, client_id, encode_request(key, version, {}))
        try:
            response = decode_response(
                key, version, frame, parse_response_header(key, version, frame).body_at
            )
        except WireError as error:
            raise Unreachable(f"{self.address}: unreadable ApiVersions: {error}") from error
        if response["ErrorCode"] != 0:
            raise Refused(response["ErrorCode"], f"ApiVersions at {self.address}")
        return {
            entry["ApiKey"]: (entry["MinVersion"], entry["MaxVersion"])
            for entry in response["ApiKeys"]
        }

    async def _authenticate(self, frames: Frames, sasl: SaslSettings) -> None:
        key = ApiKey.SASL_HANDSHAKE
        version = self._version(key, None)
        response = await self._ask(frames, key, version, {"Mechanism": sasl.mechanism})
        if response["ErrorCode"] != 0:
            offered = ", ".join(response["Mechanisms"])
            what = f"SASL {sasl.mechanism} at {self.address} (it offers: {offered})"
            raise Refused(response["ErrorCode"], what)
        if sasl.mechanism == "PLAIN":
            token = f"\0{sasl.username}\0{sasl.password}".encode()
            response = await self._sasl_step(frames, sasl, token)
        else:
            response = await self._scram(frames, sasl)
        lifetime_ms = response["SessionLifetimeMs"]
        self._expires_at = None
        if lifetime_ms > 0:
            self._expires_at = _loop_time() + lifetime_ms / 1000 * REAUTHENTICATE_AT

    async def _scram(self, frames: Frames, sasl: SaslSettings) -> Message:
        hash_name = sasl.mechanism.removeprefix("SCRAM-").replace("SHA-", "sha")
        scram = ScramClient(hash_name, sasl.username, sasl.password, secrets.token_hex(16))
        challenge = await self._sasl_step(frames, sasl, scram.first())
        try:
            answer, signature = scram.final(challenge["AuthBytes"])
            response = await self._sasl_step(frames, sasl, answer)
            check_server_final(response["AuthBytes"], signature)
        except ScramError as error:
            what = f"SASL {sasl.mechanism} at {self.address}: {error}"
            raise Refused(ErrorCode.SASL_AUTHENTICATION_FAILED, what) from error
        return response

    async def _sasl_step(self, frames: Frames, sasl: SaslSettings, token: bytes) -> Message:
        key = ApiKey.SASL_AUTHENTICATE
        response = await self._ask(frames, key, self._version(key, None), {"AuthBytes": token})
        if response["ErrorCode"] != 0:
            what = f"SASL {sasl.mechanism} as {sasl.username!r} at {self.address}"
            raise Refused(response["ErrorCode"], what)
        return response

    def close(self) -> None:
        self._closed = True
        if self._frames is not None:
            self._frames.abort(Unreachable(f"{self.address}: the gateway is stopping"))


def _why(error: OSError) -> str:
    """The system's reason; the event loop's own words repeat the address."""
    if isinstance(error, ssl.SSLError | socket.gaierror) or error.errno is None:
        return str(error)  # their numbers are not the system's
    return os.strerror(error.errno)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
