"""A group of four records and one member, asked about over REST."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from dispatcher.core.model import PoisonPolicy
from gateway.config.groups import GroupSection
from tests.rig.admin_parts import Admin
from tests.rig.rest_parts import served
from tests.rig.virtual_time import run, settle

Tell = Callable[[httpx.AsyncClient, Admin], Awaitable[None]]


def story(tell: Tell, section: GroupSection | None = None, **changes: Any) -> None:
    async def work() -> None:
        given = section or GroupSection(auto_offset_reset="earliest", rejected=PoisonPolicy.BLOCK)
        admin = Admin(section=given)
        async with admin.node as node:
            lags = admin.lags()
            node.log.produce(b"personal", b"b", b"c", b"personal")
            node.beat()
            await settle()
            await lags.refresh(stored=True)
            async with served(admin, lags=lags, **changes) as client:
                await tell(client, admin)

    run(work())


async def rows(client: httpx.AsyncClient, path: str, name: str) -> list[dict[str, Any]]:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()[name]
    return found


async def pages(client: httpx.AsyncClient, path: str, name: str) -> list[dict[str, Any]]:
    """All rows, one a page."""
    found: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        page = {"limit": "1", **({"after": after} if after else {})}
        answer = await client.get(httpx.URL(path).copy_merge_params(page))
        assert answer.status_code == 200, answer.text
        assert len(answer.json()[name]) <= 1
        found += answer.json()[name]
        after = answer.json()["next"]
    return found
