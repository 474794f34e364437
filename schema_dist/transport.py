"""httpx's requests carried by aiohttp's connections. They cost half the CPU time of httpx's own
pool, which looks at the sockets of all its connections for every request.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import aiohttp
import httpx
from yarl import URL

from schema_dist.limits import CONNECTION_IDLE_S_MAX, REQUESTS_AT_ONCE

_AS_SENT = ("Accept-Encoding", "User-Agent", "Content-Type")  # aiohttp adds none of these


@contextmanager
def _named_by_httpx(request: httpx.Request) -> Iterator[None]:
    """aiohttp's errors as httpx's."""
    try:
        yield
    except TimeoutError as error:
        raise httpx.ReadTimeout("no answer in time", request=request) from error
    except (aiohttp.ClientConnectorError, aiohttp.ClientSSLError) as error:
        raise httpx.ConnectError(str(error), request=request) from error
    except (aiohttp.ClientError, ValueError) as error:  # ValueError: what is no HTTP, or no address
        what = str(error) or type(error).__name__
        raise httpx.RemoteProtocolError(what, request=request) from error


class _Body(httpx.AsyncByteStream):
    def __init__(self, response: aiohttp.ClientResponse, request: httpx.Request) -> None:
        self._response = response
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _named_by_httpx(self._request):
            async for chunk in self._response.content.iter_any():
                yield chunk

    async def aclose(self) -> None:
        self._response.release()  # read to its end, the connection is used again; else it is closed


class Transport(httpx.AsyncBaseTransport):
    """Connections to one registry. Opened with the first request, in the running event loop."""

    def __init__(self, trust: ssl.SSLContext) -> None:
        self._trust = trust
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._session is None:
            self._session = self._opened()
        limits = request.extensions.get("timeout", {})
        with _named_by_httpx(request):
            response = await self._session.request(
                request.method,
                URL(str(request.url), encoded=True),  # as it is: some registries decode no %3A
                headers=request.headers.multi_items(),
                data=await request.aread() or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    sock_connect=limits.get("connect"), sock_read=limits.get("read")
                ),
            )
        return httpx.Response(
            response.status,
            headers=response.raw_headers,
            stream=_Body(response, request),
            request=request,
        )

    def _opened(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            ssl=self._trust, limit=REQUESTS_AT_ONCE, keepalive_timeout=CONNECTION_IDLE_S_MAX
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_AS_SENT,
            trust_env=False,
        )

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
