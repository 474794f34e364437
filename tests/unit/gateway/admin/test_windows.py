"""Pictures of windows over REST."""

from __future__ import annotations

import asyncio

import httpx

from dispatcher.core.model import Acknowledge, AckType, Acquire
from gateway.config.groups import GroupSection
from gateway.operations.limits import TRANSACTION_TOLD_MS
from tests.rig.admin_parts import M1, S1, Admin
from tests.rig.node_parts import GROUP, TOPIC
from tests.rig.rest_client import pages, rows, story
from tests.rig.rest_parts import served
from tests.rig.virtual_time import now_ms, run, settle


def test_the_picture_of_a_window() -> None:
    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        window = admin.node.window(0)
        assert window.acquire(Acquire(M1, S1, 2, now_ms())) is not None
        await window.ask(Acknowledge(M1, S1, [(1, 1, bytes([AckType.REJECT]))], now_ms()))
        up, empty = await rows(client, f"/v1/windows?group={GROUP}", "windows")
        assert (up["topic"], up["partition"], up["state"], up["leader"]) == (TOPIC, 0, "up", 1)
        assert (up["cursor"], up["read_position"], up["log_end"], up["lag"]) == (0, 4, 4, 4)
        assert up["resolution"] == 1
        assert up["runs"] == [
            {"state": "in_flight", "first": 0, "last": 0},
            {"state": "parked", "first": 1, "last": 1},
            {"state": "ready", "first": 2, "last": 3},
        ]
        states = ("settled", "ready", "in_flight", "backing_off", "dead_lettering", "parked")
        assert [up[state] for state in states] == [0, 2, 1, 0, 0, 1]
        assert (empty["runs"], empty["partition"]) == ([], 1)
        (coarse,) = await rows(client, f"/v1/windows?group={GROUP}&partition=0&runs=1", "windows")
        assert coarse["runs"] == [{"state": "parked", "first": 0, "last": 3}]
        assert coarse["resolution"] == 4

    story(tell)


def test_a_window_has_never_read_beyond_the_shown_end_of_the_log() -> None:
    """Log ends are looked at every few seconds, and windows read all the time."""

    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        window = admin.node.window(0)
        admin.node.log.produce(b"late", partition=0)
        await settle()
        core = window.dispatcher
        assert core is not None
        assert core.read_position == 5
        row, _ = await rows(client, f"/v1/windows?group={GROUP}", "windows")
        assert (row["read_position"], row["log_end"]) == (5, 5)

    story(tell)


def test_an_open_transaction_that_holds_up_a_group_stands_beside_its_windows() -> None:
    async def work() -> None:
        admin = Admin(section=GroupSection(auto_offset_reset="earliest"))
        async with admin.node as node:
            lags = admin.lags()
            node.beat()
            await settle()
            node.windows.table.drop(node.window(1).key)
            admin.view.stable = {1: 0}
            await lags.refresh(stored=True)
            node.log.produce(b"k", partition=1)
            await lags.refresh(stored=True)
            await asyncio.sleep(TRANSACTION_TOLD_MS / 1000)
            await lags.refresh(stored=False)
            async with served(admin, lags=lags) as client:
                described = await rows(client, f"/v1/groups/{GROUP}", "partitions")
                for up, idle in (
                    described,
                    await rows(client, f"/v1/windows?group={GROUP}", "windows"),
                ):
                    assert up.get("open_transaction") is None
                    assert (idle["state"], idle["lag"]) == ("idle", 1)
                    assert idle["open_transaction"] == {"offset": 0, "seconds": 60.0}
                (line,) = await rows(client, "/v1/overview", "groups")
                assert (line["held"], line["stuck"]) == (1, 0)

    run(work())


def test_pages_and_filters_of_windows() -> None:
    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        path = f"/v1/windows?group={GROUP}"
        found = [row["partition"] for row in await pages(client, path, "windows")]
        assert found == [0, 1]
        admin.node.windows.table.drop(admin.node.window(0).key)
        (idle,) = await rows(client, f"{path}&state=idle", "windows")
        refused = await client.get(f"{path}&state=down")
        assert refused.status_code == 400
        assert refused.json()["title"] == "state='down' is not one of idle, loading, up"
        assert (idle["partition"], idle["cursor"], idle["lag"]) == (0, 0, 4)
        assert "read_position" not in idle
        assert await rows(client, f"{path}&topic=other", "windows") == []
        admin.node.window(1).fail(RuntimeError("away"))
        (loading,) = await rows(client, f"{path}&state=loading", "windows")
        assert loading["trouble"] == "RuntimeError: away"
        for wrong in ("limit=101", "runs=0", "partition=-1", "partition=x", "after=orders"):
            assert (await client.get(f"{path}&{wrong}")).status_code == 400, wrong

    story(tell)
