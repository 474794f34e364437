"""Parked records over REST, a page at a time."""

from __future__ import annotations

import httpx

from dispatcher.core.model import Acknowledge, AckType, Acquire
from gateway.admin.limits import PAGE_HEADERS_MAX
from gateway.config.admin import Role
from gateway.core.wire.records import HeaderStart
from gateway.upstream.errors import Unreachable
from tests.rig.admin_parts import M1, S1, Admin, ScriptedStarts
from tests.rig.node_parts import GROUP
from tests.rig.rest_client import pages, rows, story
from tests.rig.rest_parts import access, token
from tests.rig.virtual_time import now_ms, settle


def test_pages_and_filters_of_parked_records() -> None:
    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        admin.node.log.produce(b"x", b"y", partition=1)
        await settle()
        for partition in (0, 1):
            window = admin.node.window(partition)
            acquired = window.acquire(Acquire(M1, S1, 9, now_ms()))
            assert acquired is not None
            reject = bytes([AckType.REJECT])
            offsets = (0, 1, 2) if partition == 0 else (0, 1)
            batches = [(offset, offset, reject) for offset in offsets]
            await window.ask(Acknowledge(M1, S1, batches, now_ms()))
        path = f"/v1/parked?group={GROUP}"
        found = await pages(client, path, "parked")
        places = [(row["partition"], row["offset"]) for row in found]
        assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
        assert found == await rows(client, path, "parked")
        assert len(await rows(client, f"{path}&partition=1", "parked")) == 2
        assert await rows(client, f"{path}&topic=x", "parked") == []
        answer = (await client.get(f"{path}&limit=3")).json()
        assert answer["next"] == "orders-0-2"
        for wrong in ("after=orders-0", "after=orders-0-x", "after=-0-0", "limit=0"):
            assert (await client.get(f"{path}&{wrong}")).status_code == 400, wrong

    story(tell)


def test_headers_for_those_who_may_see_keys() -> None:
    guard = access(
        token("operator", Role.OPERATOR),
        token("seer", Role.VIEWER, keys=True),
        token("viewer", Role.VIEWER),
        token("hasty", Role.OPERATOR, keys=False),
    )
    path = f"/v1/parked?group={GROUP}&headers=true"

    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        window = admin.node.window(0)
        assert window.acquire(Acquire(M1, S1, 9, now_ms())) is not None
        await window.ask(Acknowledge(M1, S1, [(0, 2, bytes([AckType.REJECT]))], now_ms()))
        for who in ("operator", "seer"):
            client.headers["authorization"] = f"Bearer {who}"
            first, second, third = await rows(client, path, "parked")
            assert first["headers"] == [
                {"name": "trace", "value": "abc", "value_bytes": 3},
                {"name": "raw", "value_base64": "/w==", "value_bytes": 1},
                {"name": "none", "value": None, "value_bytes": None},
            ]
            assert (first["headers_count"], second["headers"], second["headers_count"]) == (
                5,
                [],
                2,
            )
            assert "headers" not in third, "it is gone"
        asked = [offset for _, offset in known.asked]
        assert asked == [0, 1, 2] * 2
        known.asked.clear()
        (one,) = await rows(client, f"{path}&limit=1", "parked")
        assert [offset for _, offset in known.asked] == [one["offset"]], "no more than is shown"
        known.asked.clear()
        for who in ("viewer", "hasty"):
            client.headers["authorization"] = f"Bearer {who}"
            refused = await client.get(path)
            assert (refused.status_code, "may not see them" in refused.json()["title"]) == (
                403,
                True,
            )
        for plain in (path.replace("true", "false"), path.partition("&")[0]):
            for who in ("operator", "viewer"):
                client.headers["authorization"] = f"Bearer {who}"
                assert all("headers" not in row for row in await rows(client, plain, "parked"))
        assert known.asked == [], "and nothing is read"
        client.headers["authorization"] = "Bearer operator"
        assert (await client.get(path.replace("true", "yes"))).status_code == 400
        known.failure = Unreachable("broker 1 is away")
        answer = await client.get(path)
        assert (answer.status_code, "broker 1 is away" in answer.json()["title"]) == (503, True)

    known = ScriptedStarts(
        {
            (0, 0): [
                HeaderStart("trace", b"abc", 3),
                HeaderStart("raw", b"\xff", 1),
                HeaderStart("none", None, 0),
            ],
            (0, 1): [],
        },
        more=2,
    )
    story(tell, access=guard, record_starts=known)


def test_nobody_sees_headers_without_a_token() -> None:
    async def tell(client: httpx.AsyncClient, _admin: Admin) -> None:
        answer = await client.get(f"/v1/parked?group={GROUP}&headers=true")
        assert (answer.status_code, "without a token" in answer.json()["title"]) == (403, True)

    story(tell)


def test_a_page_with_headers_is_short() -> None:
    guard = access(token("operator", Role.OPERATOR))

    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        count = PAGE_HEADERS_MAX + 1
        admin.node.log.produce(*(b"k%d" % at for at in range(count)), partition=1)
        await settle()
        window = admin.node.window(1)
        assert window.acquire(Acquire(M1, S1, count, now_ms())) is not None
        reject = bytes([AckType.REJECT])
        await window.ask(Acknowledge(M1, S1, [(0, count - 1, reject)], now_ms()))
        client.headers["authorization"] = "Bearer operator"
        path = f"/v1/parked?group={GROUP}&partition=1"
        assert len(await rows(client, path, "parked")) == count
        answer = (await client.get(f"{path}&headers=true&limit={count}")).json()
        assert len(answer["parked"]) == PAGE_HEADERS_MAX
        rest = await rows(client, f"{path}&headers=true&after={answer['next']}", "parked")
        assert [row["offset"] for row in rest] == [count - 1]

    story(tell, access=guard)
