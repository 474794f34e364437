"""A client that is to log in at upstream has its time for that."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from gateway.core.client_limits.rules import Rule
from gateway.core.wire.apis import ApiKey
from tests.rig.loopback import answers, rig, run, warnings
from tests.rig.wire_frames import request

API_VERSIONS = int(ApiKey.API_VERSIONS)
SASL_HANDSHAKE = int(ApiKey.SASL_HANDSHAKE)
SASL_AUTHENTICATE = int(ApiKey.SASL_AUTHENTICATE)
HEARTBEAT = int(ApiKey.HEARTBEAT)


def test_a_client_that_never_logs_in_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstream would keep it for as long as it asks anything now and then."""

    async def main() -> None:
        async with rig(upstream_sasl=True) as gateway:
            gateway.upstream.on_api(API_VERSIONS, answers({}))
            gateway.upstream.on_api(SASL_HANDSHAKE, answers({}))
            gateway.upstream.on_api(SASL_AUTHENTICATE, answers({}))
            known = await gateway.client()
            await known.ask(request(SASL_HANDSHAKE, 1, {"Mechanism": "PLAIN"}))
            await known.ask(request(SASL_AUTHENTICATE, 1, {"AuthBytes": b"\0anna\0secret"}))
            (connection,) = gateway.server.connections.values()
            monkeypatch.setattr("gateway.listen.connection.FIRST_REQUEST_S", 0.05)
            with capture_logs() as logs:
                stranger = await gateway.client()
                stranger.writer.write(request(API_VERSIONS, 3))
                await stranger.ended()
            assert warnings(logs) == ["no login came"]
            connection._end_if_silent()  # its own time is over, too
            await known.ask(request(API_VERSIONS, 3))

    run(main())


def test_requests_in_one_write_with_the_login_count_to_its_limits() -> None:
    """A client that connects anew for each such write would have no limit otherwise."""

    async def main() -> None:
        async with rig(upstream_sasl=True) as gateway:
            for key in (SASL_HANDSHAKE, SASL_AUTHENTICATE, HEARTBEAT):
                gateway.upstream.on_api(key, answers({}))
            limits = gateway.server.limits
            limits.replace([Rule(name="anna", principal="anna", requests_per_s=1_000)], ())
            client = await gateway.client()
            await client.ask(request(SASL_HANDSHAKE, 1, {"Mechanism": "PLAIN"}))
            login = request(SASL_AUTHENTICATE, 1, {"AuthBytes": b"\0anna\0secret"})
            client.writer.write(login + request(HEARTBEAT, 4) * 20)
            for _ in range(21):
                await client.frame()
            (account,) = limits.accounts.all()
            assert account.requests == 20

    run(main())
