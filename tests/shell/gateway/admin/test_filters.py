"""REST of key filters over a real Redis: refusals name their cause, the log has no rules in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import structlog
from redis.asyncio import Redis

from gateway.admin.rest import rest_app
from gateway.config.file import Config
from gateway.core.limits import FILTER_SET_BYTES_MAX
from gateway.core.share.sessions import ShareSessions
from gateway.embedded.redis import EmbeddedRedis
from gateway.handlers.limits import GROUP_ID_CHARS_MAX
from gateway.members.group_settings import GroupSettings
from gateway.members.groups import Groups
from gateway.members.key_filters import KeyFilters
from tests.rig.rest_parts import rest_parts

RULES = [{"client_id": "eu-*", "keys": ["personal-*"]}]


def story(tmp_path: Path, tell: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    async def work(url: str) -> None:
        redis = Redis.from_url(url)
        filters = KeyFilters(Config(), redis, lambda: 1_000)
        await filters.load()
        sessions = ShareSessions("node", 1, 1)
        groups = Groups(cast(GroupSettings, None), sessions, filters.of)
        parts = rest_parts(groups=groups, filters=filters)
        transport = httpx.ASGITransport(rest_app(parts, loopback=True))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await tell(client)
        await redis.aclose()

    with EmbeddedRedis(tmp_path) as server:
        asyncio.run(work(server.url))


def put(client: httpx.AsyncClient, group: str, rules: Any) -> Awaitable[httpx.Response]:
    return client.put("/v1/filters", params={"group": group}, json={"rules": rules})


def assert_problem(answer: httpx.Response, status: int, says: str) -> None:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert says in answer.json()["title"]


def test_the_log_tells_one_set_from_another_and_shows_neither(tmp_path: Path) -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        with structlog.testing.capture_logs() as lines:
            for rules in (RULES, [*RULES, *RULES], RULES):
                assert (await put(client, "g", rules)).status_code == 200
            await client.delete("/v1/filters", params={"group": "g"})
        assert "personal" not in json.dumps(lines)
        lines = [line for line in lines if line["event"] == "key_filters_set"]
        assert [line["rules"] for line in lines] == [1, 2, 1, None]
        first, second, third = (line["digest"] for line in lines[:3])
        assert first == third != second

    story(tmp_path, tell)


def test_a_set_that_is_too_large_is_refused_and_the_one_before_stays(tmp_path: Path) -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        assert (await put(client, "g", RULES)).status_code == 200
        many = [{"client_id": f"c{at}", "keys": ["k" * 256] * 2} for at in range(600)]
        assert_problem(await put(client, "g", many), 400, f"at most {FILTER_SET_BYTES_MAX}")
        shown = await client.get("/v1/filters", params={"group": "g"})
        assert shown.json()["rules"] == RULES
        name = "g" * (GROUP_ID_CHARS_MAX + 1)
        assert_problem(await put(client, name, RULES), 400, f"more than {GROUP_ID_CHARS_MAX}")

    story(tmp_path, tell)


def test_all_sets_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        monkeypatch.setattr("gateway.members.key_filters.FILTER_SETS_BYTES_MAX", 4_000)
        at_once = await asyncio.gather(*(put(client, f"g{at}", RULES) for at in range(5)))
        assert [answer.status_code for answer in at_once].count(200) == 3, (
            "each takes some 1,250 bytes"
        )
        full = next(answer for answer in at_once if answer.status_code != 200)
        assert_problem(full, 409, "at most 4000")
        (kept, *_) = (f"g{at}" for at, answer in enumerate(at_once) if answer.status_code == 200)
        assert (await put(client, kept, RULES)).status_code == 200, "in place of its own"
        await client.delete("/v1/filters", params={"group": kept})
        assert (await put(client, "another", RULES)).status_code == 200

    story(tmp_path, tell)


@pytest.mark.parametrize("body", ['{"rules": ["\\ud800"]}', '{"\\udfff": 1, "rules": []}', "\xff"])
def test_half_a_character_is_refused(tmp_path: Path, body: str) -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        answer = await client.put(
            "/v1/filters?group=g",
            content=body.encode("latin-1"),
            headers={"content-type": "application/json"},
        )
        assert_problem(answer, 400, "the body is not JSON")

    story(tmp_path, tell)
