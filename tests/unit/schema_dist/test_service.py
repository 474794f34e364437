"""What a service tells of a source that it cannot read, and that it is alive."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from prometheus_client import generate_latest

from schema_dist.core.contents import Contents
from schema_dist.errors import AwayError
from schema_dist.limits import BEAT_S, REREAD_S
from schema_dist.metrics import Metrics
from schema_dist.parts import TargetParts
from schema_dist.service import Follower, News, follow
from schema_dist.state_topic import StateTopic
from schema_dist.target_sync import Allowed, Round
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


class State(StateTopic):
    """What is told to one target."""

    def __init__(self) -> None:
        super().__init__({"bootstrap.servers": "127.0.0.1:1"}, "_schemas-state")
        self.reports: list[dict[str, Any]] = []
        self.beats: list[dict[str, Any]] = []

    async def report(self, status: Mapping[str, Any]) -> None:
        self.reports.append(dict(status))

    async def beat(self, told: Mapping[str, Any]) -> None:
        self.beats.append(dict(told))


def test_every_target_is_told_that_the_service_is_alive_and_what_it_cannot_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The status said "in sync" of a primary whose schemas had been deleted."""
    metrics, source, state = Metrics(), Source(), State()
    parts = TargetParts("b", *cast(Any, (None, state, None, None)))
    follower = Follower(parts, "a", metrics, cast(Allowed, None))

    async def round_of(_: object) -> Round:
        return Round(in_sync=4, behind=0, refusals=())

    monkeypatch.setattr(follower._sync, "round", round_of)

    async def work() -> None:
        news = News()
        tasks = [
            asyncio.ensure_future(follow(source, news, metrics, 1_000, ["b"])),
            asyncio.ensure_future(follower.run(news)),
        ]
        await asyncio.sleep(REREAD_S * 2)
        assert [report["in_sync"] for report in state.reports] == [4], "nothing changed since"
        assert len(state.beats) >= REREAD_S * 2 // BEAT_S - 1
        assert {beat["problem"] for beat in state.beats} == {None}
        source.away = True
        await asyncio.sleep(2 * BEAT_S)
        told = "the primary cannot be read: registry at https://primary:8081: HTTP 503"
        assert state.beats[-1]["problem"] == told
        source.away = False
        await asyncio.sleep(90)
        assert state.beats[-1]["problem"] is None
        for task in tasks:
            task.cancel()

    run(work())
