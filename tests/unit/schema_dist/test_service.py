"""What a service tells of a source that it cannot read."""

from __future__ import annotations

import asyncio

from prometheus_client import generate_latest

from schema_dist.core.contents import Contents
from schema_dist.errors import AwayError
from schema_dist.metrics import Metrics
from schema_dist.service import News, follow
from tests.rig.virtual_time import run


class Source:
    away = False

    async def read(self) -> Contents:
        if self.away:
            raise AwayError("registry at https://primary:8081: HTTP 503")
        return Contents()


def test_a_source_that_cannot_be_read_is_a_failure_of_every_target() -> None:
    """Often enough for the alert KeywaySchemaRoundsFail: more than 3 in 10 minutes."""
    metrics, source = Metrics(), Source()

    def failed(target: str) -> float:
        name = "keyway_schemas_failed_rounds_total"
        return metrics.registry.get_sample_value(name, {"target": target}) or 0

    async def work() -> None:
        following = asyncio.ensure_future(follow(source, News(), metrics, 1_000, ["a", "b"]))
        await asyncio.sleep(600)
        assert b"failed_rounds_total{" not in generate_latest(metrics.registry)
        source.away = True
        await asyncio.sleep(1_200)
        before = failed("a")
        await asyncio.sleep(600)
        assert failed("a") - before > 3
        assert failed("b") == failed("a")
        following.cancel()

    run(work())
