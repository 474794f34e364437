"""Parked records over REST, a page at a time."""

from __future__ import annotations

import httpx

from dispatcher.core.model import Acknowledge, AckType, Acquire
from tests.rig.admin_parts import M1, S1, Admin
from tests.rig.node_parts import GROUP
from tests.rig.rest_client import pages, rows, story
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
