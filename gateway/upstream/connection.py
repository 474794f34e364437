"""One connection of the gateway itself to one upstream broker: ApiVersions, SASL, pipelined
requests, time limits.

A broker answers the requests of a connection one after the other, so a long poll delays everything
behind it: polls take a connection of their own (`Upstream.call(lane=...)`).
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from functools import partial

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.schema import Message
from gateway.upstream.errors import TimedOut, Unreachable, UpstreamError
from gateway.upstream.frames import Frames, LongAnswers
from gateway.upstream.limits import REAUTHENTICATE_AT
from gateway.upstream.opening import Versions, ask, authenticate, negotiate, version_for
from gateway.upstream.scram_keys import ScramKeyring
from gateway.upstream.settings import Address, SaslSettings, UpstreamSettings


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
        self._versions: Versions = {}
        self._keyring = ScramKeyring()
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
                best = version_for(self._versions, self.address, key, version)
                return await self._ask(frames, key, best, body)
        except TimeoutError:
            # Answers come in order: a stuck one holds up all behind it.
            what = f"{self.address} did not answer {ApiKey(key).name} in {timeout_ms} ms"
            if frames is not None:
                frames.abort(Unreachable(what))
            raise TimedOut(what) from None

    async def _ask(self, frames: Frames, key: int, version: int, body: Message) -> Message:
        return await ask(frames, self.address, self._settings.client_id, key, version, body)

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
                self._versions = await negotiate(frames, self.address, self._settings.client_id)
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

    async def _authenticate(self, frames: Frames, sasl: SaslSettings) -> None:
        ask = partial(self._ask, frames)
        lifetime_ms = await authenticate(ask, self._versions, self.address, sasl, self._keyring)
        self._expires_at = None
        if lifetime_ms > 0:
            self._expires_at = _loop_time() + lifetime_ms / 1000 * REAUTHENTICATE_AT

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
