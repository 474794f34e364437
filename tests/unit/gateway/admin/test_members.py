"""Members over REST."""

from __future__ import annotations

import httpx
import pytest

from dispatcher.core.model import Acquire
from tests.rig.admin_parts import M1, S1, Admin
from tests.rig.node_parts import GROUP, TOPIC
from tests.rig.rest_client import pages, rows, story
from tests.rig.virtual_time import now_ms, settle


def test_members_with_their_share_of_the_keys() -> None:
    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        (alone,) = await rows(client, f"/v1/members?group={GROUP}", "members")
        assert (alone["member_id"], alone["client_id"], alone["share"]) == ("m1", "client-m1", 1.0)
        assert (alone["ready_keys"], alone["in_flight"], alone["topics"]) == (3, 0, [TOPIC])
        assert alone["connections"] == 1
        assert admin.node.window(0).acquire(Acquire(M1, S1, 2, now_ms())) is not None
        for number in range(2, 10):
            admin.node.beat(f"m{number}", connection=number)
        await settle()
        found = await rows(client, f"/v1/members?group={GROUP}", "members")
        assert sum(row["share"] for row in found) == pytest.approx(1)
        assert found[0]["in_flight"] == 2
        paged = await pages(client, f"/v1/members?group={GROUP}", "members")
        assert [row["member_id"] for row in paged] == [f"m{at}" for at in range(1, 10)]
        assert paged == found
        (one,) = await rows(client, f"/v1/members?group={GROUP}&client_id=nt-m7", "members")
        assert one["member_id"] == "m7"
        admin.node.beat("m10", 0, "another", connection=10)
        found = await rows(client, f"/v1/members?group={GROUP}", "members")
        assert {row["share"] for row in found} == {None}, "several rings"
        assert (await client.get("/v1/members?group=none")).status_code == 404

    story(tell)
