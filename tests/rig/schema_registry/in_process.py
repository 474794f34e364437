"""A registry without sockets, for simulations, and a ledger in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import httpx

from schema_dist.core.ledger import Entry, Ledger, decode, encode
from schema_dist.rest_client import RestClient
from schema_dist.transport import Answer, HttpError
from tests.rig.schema_registry.app import App

URL = "http://registry.test"


class InProcess(httpx.AsyncBaseTransport):
    def __init__(self, app: App) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path, _, query = request.url.raw_path.decode().partition("?")
        body = await request.aread()
        status, data = self._app.carry_out(request.method, path, query, body)
        return httpx.Response(status, content=data)


class Sent:
    """Requests of Keyway's to such a registry, in place of its connections."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None
    ) -> Answer:
        request = httpx.Request(method, url, headers=dict(headers), content=content)
        try:
            response = await self._transport.handle_async_request(request)
            return Answer(response.status_code, await response.aread(), response.headers)
        except httpx.HTTPError as error:
            raise HttpError(str(error)) from error


def client_of(app: App) -> RestClient:
    return RestClient(URL, Sent(InProcess(app)))


class MemoryLedger:
    """The contents of a state topic: the records, each as its bytes."""

    def __init__(self) -> None:
        self.records: dict[bytes, bytes] = {}
        self.on_note: Callable[[], None] = lambda: None

    async def load(self) -> Ledger:
        ledger = Ledger()
        entries = (decode(key, value) for key, value in self.records.items())
        ledger.apply(entry for entry in entries if entry is not None)
        return ledger

    async def note(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.on_note()
            key, value = encode(entry)
            if value is None:
                self.records.pop(key, None)
            else:
                self.records[key] = value
        self.on_note()
