"""Positions over REST: the list, and seeks that are shown before they are made."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import structlog

from tests.rig.admin_parts import Admin
from tests.rig.node_parts import GROUP, TOPIC
from tests.rig.rest_client import pages, rows, story
from tests.rig.virtual_time import settle

SEEK = f"/v1/positions/seek?group={GROUP}"


def test_positions() -> None:
    async def tell(client: httpx.AsyncClient, _: Admin) -> None:
        first, second = await pages(client, f"/v1/positions?group={GROUP}", "positions")
        assert {name: first[name] for name in first if name != "lag_seconds"} == {
            "topic": TOPIC,
            "partition": 0,
            "cursor": 0,
            "settled": 0,
            "log_end": 4,
            "lag": 4,
            "state": "up",
        }
        assert (second["partition"], second["lag"]) == (1, 0)
        assert await rows(client, f"/v1/positions?group={GROUP}&topic=x", "positions") == []
        assert (await client.get("/v1/positions?group=none")).status_code == 404

    story(tell)


def test_a_seek_is_shown_refused_and_made() -> None:
    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        body = {"to": "latest", "topic": TOPIC}
        with structlog.testing.capture_logs() as lines:
            answer = await client.post(SEEK, json=body)
        assert not [line for line in lines if line["event"] == "audit"], "nothing was changed"
        shown = answer.json()
        assert shown["executed"] is False
        assert shown["refused"] == f"Group {GROUP} is not empty: it has 1 members."
        moves = [
            {"topic": TOPIC, "partition": 0, "old": 0, "new": 4, "delta": 4, "error": None},
            {"topic": TOPIC, "partition": 1, "old": 0, "new": 0, "delta": 0, "error": None},
        ]
        assert shown["positions"] == moves
        refused = await client.post(SEEK, json={**body, "execute": True})
        assert refused.status_code == 409
        assert "is not empty" in refused.json()["title"]
        admin.node.beat("m1", -1)
        await settle()
        with structlog.testing.capture_logs() as lines:
            answer = await client.post(SEEK, json={**body, "execute": True})
        assert answer.json() == {
            "group": GROUP,
            "executed": True,
            "refused": None,
            "shown": shown["shown"],
            "positions": moves,
        }
        (line,) = [line for line in lines if line["event"] == "audit"]
        assert (line["action"], line["outcome"], line["topic"]) == ("positions.seek", "done", TOPIC)
        assert line["offsets"] == f"{TOPIC}-0: 0 to 4, {TOPIC}-1: 0 to 0"
        (first, _) = await rows(client, f"/v1/positions?group={GROUP}", "positions")
        assert (first["cursor"], first["lag"]) == (4, 0)

    story(tell)


def test_a_shift_whose_answer_was_lost_is_not_made_twice() -> None:
    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        admin.node.beat("m1", -1)
        await settle()
        body = {"to": "shift", "shift": 2, "topic": TOPIC, "partitions": [0]}
        shown = (await client.post(SEEK, json=body)).json()
        execute = {**body, "execute": True, "shown": shown["shown"]}
        (move,) = (await client.post(SEEK, json=execute)).json()["positions"]
        assert (move["old"], move["new"]) == (0, 2)
        again = await client.post(SEEK, json=execute)
        assert (again.status_code, "not those shown" in again.json()["title"]) == (409, True)
        (first, _) = await rows(client, f"/v1/positions?group={GROUP}", "positions")
        assert first["cursor"] == 2

    story(tell)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "to: is missing"),
        ({"to": "middle"}, "to: "),
        ({"to": "offset"}, "offset needs offset"),
        ({"to": "latest", "offset": 1}, "offset needs to: offset"),
        ({"to": "timestamp", "shift": 1}, "needs"),
        ({"to": "offset", "offset": -1}, "offset"),
        ({"to": "offset", "offset": 2**63}, "offset"),
        ({"to": "latest", "partitions": [0]}, "partitions needs topic"),
        ({"to": "latest", "topic": TOPIC, "partitions": []}, "partitions"),
        ({"to": "latest", "execute": "yes"}, "execute"),
        ({"to": "shift", "shift": 1, "execute": True}, "needs shown"),
        ({"to": "latest", "more": 1}, "more: unknown field"),
    ],
)
def test_seeks_that_are_no_request(body: dict[str, Any], says: str) -> None:
    async def tell(client: httpx.AsyncClient, _: Admin) -> None:
        answer = await client.post(SEEK, json=body)
        assert answer.status_code == 400
        assert says in answer.json()["title"]

    story(tell)
