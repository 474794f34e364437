"""Asks each broker every other second whether it is still there.

A broker that hangs keeps its connections: nobody hears of it until a request has waited for its
whole timeout. The ping has a connection of its own, so it never waits behind another request.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from gateway.core.cluster.discovery import metadata_request
from gateway.core.wire.apis import ApiKey
from gateway.upstream.cluster import Upstream
from gateway.upstream.errors import UpstreamError
from gateway.upstream.limits import PING_ANSWER_MS_MAX, PING_LANE, PING_MS


async def ping_forever(upstream: Upstream) -> None:
    """Pings until cancelled. `upstream` notes and logs silent brokers."""
    while True:
        await asyncio.sleep(PING_MS / 1000)
        await asyncio.gather(*(_ping(upstream, broker) for broker in upstream.topology.brokers))


async def _ping(upstream: Upstream, broker_id: int) -> None:
    with suppress(UpstreamError):  # noted where it was met
        await upstream.call(
            ApiKey.METADATA,
            metadata_request([]),
            broker_id=broker_id,
            lane=PING_LANE,
            timeout_ms=PING_ANSWER_MS_MAX,
        )
