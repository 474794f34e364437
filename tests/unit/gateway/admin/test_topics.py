"""Topics over REST."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from gateway.config.admin import Role
from gateway.operations.lag import Lag, Lags
from tests.rig.admin_parts import Admin
from tests.rig.node_parts import GROUP, TOPIC
from tests.rig.rest_client import pages, rows, story
from tests.rig.rest_parts import access, token


def test_topics_with_their_groups() -> None:
    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        admin.node.beat("m2", 0, "absent", connection=2)
        absent, orders = await pages(client, "/v1/topics", "topics")
        assert absent == {
            "topic": "absent",
            "partitions": None,
            "leaderless": 0,
            "groups": [{"group": GROUP, "members": 1, "lag": None}],
            "lag": None,
        }
        assert orders == {
            "topic": TOPIC,
            "partitions": 2,
            "leaderless": 0,
            "groups": [{"group": GROUP, "members": 1, "lag": 4}],
            "lag": 4,
        }
        assert await rows(client, "/v1/topics?name=rder", "topics") == [orders]

    story(tell)


def test_topics_of_other_groups_are_not_shown() -> None:
    async def tell(client: httpx.AsyncClient, _: Admin) -> None:
        client.headers["authorization"] = "Bearer payments"
        assert await rows(client, "/v1/topics", "topics") == []

    story(tell, access=access(token("payments", Role.VIEWER, ["payments"])))


def test_other_work_goes_on_between_the_partitions_of_a_long_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.operations.lag.LAGS_AT_ONCE", 1)
    seen: list[str] = []
    lag_of = Lags._lag

    def noted(lags: Lags, *of: Any) -> Lag:
        seen.append("partition")
        asyncio.get_running_loop().call_soon(seen.append, "other work")
        return lag_of(lags, *of)

    async def tell(client: httpx.AsyncClient, _: Admin) -> None:
        monkeypatch.setattr(Lags, "_lag", noted)
        await rows(client, "/v1/topics", "topics")
        assert seen[:4] == ["partition", "other work", "partition", "other work"]

    story(tell)
