"""HTTP to one registry, by aiohttp's connections: requests as they are, answers read whole.

httpx costs more than twice the CPU time for such requests: it builds cookies, redirects and its own
URLs around each.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, Self

import aiohttp
from yarl import URL

from keyway.clusters.yaml_file import ConfigError
from schema_dist.limits import (
    ANSWER_S_MAX,
    BODY_BYTES_MAX,
    CONNECT_S_MAX,
    CONNECTION_IDLE_S_MAX,
    REQUESTS_AT_ONCE,
    WHOLE_ANSWER_S_MAX,
)

# The limit of each read, and of the whole: an answer in drops would never end.
TIMEOUT = aiohttp.ClientTimeout(
    total=WHOLE_ANSWER_S_MAX, sock_connect=CONNECT_S_MAX, sock_read=ANSWER_S_MAX
)
_AS_SENT = ("User-Agent", "Content-Type")  # aiohttp adds none of these


class HttpError(Exception):
    """There is no answer: nobody listens, it is no HTTP, it is too late or too large. The text has
    the cause.
    """


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of any status. `headers`: by name in any case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Http(Protocol):
    """The sender of requests: `Connections`, or a registry without sockets in tests."""

    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None
    ) -> Answer:
        """`url` is encoded already. Raises HttpError."""
        ...


class Connections:
    """Connections to one registry. The first request opens them, in the running event loop."""

    def __init__(self, *, user: tuple[str, str] | None = None, ca_file: str | None = None) -> None:
        """`user`: name and password, sent with every request. `ca_file`: PEM, instead of the
        system's trust. Raises ConfigError if it cannot be read.
        """
        self._headers = {"Accept-Encoding": "identity"}
        if user is not None:
            credentials = base64.b64encode(":".join(user).encode()).decode()
            self._headers["Authorization"] = f"Basic {credentials}"
        try:
            self._trust = True if ca_file is None else ssl.create_default_context(cafile=ca_file)
        except OSError as error:  # ssl.SSLError is one, too
            raise ConfigError(f"ca_file {ca_file}: {error.strerror or error}") from error
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None
    ) -> Answer:
        """As `Http.send`."""
        if self._session is None:
            self._session = self._opened()
        with _named():
            response = await self._session.request(
                method,
                URL(url, encoded=True),  # as it is: some registries decode no %3A
                headers=headers,
                data=content,
                allow_redirects=False,
            )
            try:
                return Answer(response.status, await _whole(response), response.headers)
            finally:
                response.release()  # read to its end, the connection is used again; else closed

    def _opened(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            ssl=self._trust, limit=REQUESTS_AT_ONCE, keepalive_timeout=CONNECTION_IDLE_S_MAX
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_AS_SENT,
            timeout=TIMEOUT,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._session is not None:
            await self._session.close()


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise HttpError("a compressed answer, which was not asked for")
    if response.content_length is not None and response.content_length <= BODY_BYTES_MAX:
        return await response.read()
    data = bytearray()
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > BODY_BYTES_MAX:
            raise HttpError(f"an answer of more than {BODY_BYTES_MAX} bytes")
    return bytes(data)


@contextmanager
def _named() -> Iterator[None]:
    """Turns aiohttp's errors into HttpError."""
    try:
        yield
    except TimeoutError as error:
        raise HttpError("no answer in time") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: no HTTP, no address
        raise HttpError(str(error) or type(error).__name__) from error
