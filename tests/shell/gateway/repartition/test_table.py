"""What nodes tell each other of a repartition, in a real Redis."""

from __future__ import annotations

import asyncio
from pathlib import Path

from redis.asyncio import Redis

from gateway.core.repartition.consumers import ClientOf
from gateway.core.repartition.holding import Report
from gateway.core.repartition.record import Pace, Repartition
from gateway.embedded.redis import EmbeddedRedis
from gateway.repartition.steps import begun
from gateway.repartition.table import RepartitionTable, Reports

RECORD = Repartition(
    topic="orders",
    topic_id="00" * 16,
    before=2,
    after=4,
    partitioner=None,
    pace=Pace(adoption_ms=1, settle_ms=1, late_ms=1),
)


def test_each_node_hears_what_all_have_told(tmp_path: Path) -> None:
    report = Report(7, below=1, cursor=9, keys=frozenset({3}))
    one: Reports = {("billing", 0): report}
    other: Reports = {("audit: 1", 1): Report(0, below=0, cursor=5, keys=None)}
    mine: set[ClientOf] = {(("10.0.0.1", "rdkafka"), "billing"), (("::1", None), "audit: 1")}

    async def tell(url: str) -> None:
        async with Redis.from_url(url) as redis:
            table = RepartitionTable(redis)
            assert await table.share_reports("id", one) == one
            assert await table.share_reports("id", other) == one | other
            assert await table.share_reports("another", {}) == {}
            assert await table.share_clients([]) == set()
            assert await table.share_clients(mine) == mine
            assert await table.share_clients([]) == mine

    client, other_client = ("10.0.0.1", "rdkafka"), ("::1", None)
    record = begun(RECORD, None, now_ms=7)

    async def tell_of_served(url: str) -> None:
        async with Redis.from_url(url) as redis:
            table = RepartitionTable(redis)
            assert await table.share_served(record, [], [client]) == set()
            assert await table.share_served(record, [client, other_client], []) == set()
            assert await table.share_served(record, [], [client, ("10.0.0.1", None)]) == {client}
            assert await table.share_served(record, [], [other_client]) == {other_client}
            later = begun(RECORD, record, now_ms=8)
            assert await table.share_served(later, [], [client]) == set()

    with EmbeddedRedis(tmp_path / "redis") as redis:
        asyncio.run(tell(redis.url))
        asyncio.run(tell_of_served(redis.url))
