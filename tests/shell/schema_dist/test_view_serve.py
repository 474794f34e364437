"""The server of a registry view, among strangers who send half a request."""

from __future__ import annotations

import asyncio

import pytest

from gateway.listen.listeners import listening_socket
from keyway.clusters.config import RegistryView
from keyway.tls.certificates import AllCertificates
from schema_dist.view import serve
from schema_dist.view.app import Behind, view_app
from tests.rig.loopback import run
from tests.rig.patience import patient_s

AT_MOST = 8
HALF = b"GET /subjects HTTP/1.1\r\nHost:"


async def _asks(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /subjects HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(patient_s(20)):
        answer = await reader.read()
    writer.close()
    return answer


def test_half_requests_shut_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """512 of them were enough, with a 503 for everybody else, for as long as they were open."""
    monkeypatch.setattr(serve, "VIEW_CONNECTIONS_MAX", AT_MOST)

    async def main() -> None:
        listening = listening_socket("127.0.0.1", 0, "")
        port = listening.getsockname()[1]
        app = view_app(Behind(lambda: None, None, authenticate=False))
        section = RegistryView(port=port)
        serving = serve.serving_of(section, app, AllCertificates())
        await serving.start(listening)
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(serving.run()), tasks.create_task(serving.accept())]
            strangers = []
            for _ in range(3 * AT_MOST):
                strangers.append(await asyncio.open_connection("127.0.0.1", port))
                strangers[-1][1].write(HALF)
            unread = await _asks(port)
            assert unread.startswith(b"HTTP/1.1 5"), "the view's own answer: nothing is read yet"
            assert b"error_code" in unread
            assert serving.connections.open <= AT_MOST
            for task in work:
                task.cancel()
        for _, writer in strangers:
            writer.transport.abort()
        listening.close()

    run(main())
