"""Repartitions whose record, or whose topic, seems to be gone or is an older one."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.repartition.record import Phase
from tests.rig.node_parts import TOPIC
from tests.rig.repartition_site import PACE, Site, story
from tests.unit.gateway.repartition.test_repartitions import _clock  # noqa: F401 - a fixture


@pytest.mark.parametrize("nodes", [(), ("a", "b")], ids=["alone", "two"])
@pytest.mark.parametrize("ended", [Phase.FINISHED, Phase.ABORTED])
def test_a_redis_with_the_record_of_an_earlier_repartition_gets_the_running_one(
    ended: Phase, nodes: tuple[str, ...]
) -> None:
    """Its holds stay, and no partition is hidden again that clients have seen."""

    async def tell(site: Site) -> None:
        await site.one.start(TOPIC, 4, ())
        if ended is Phase.ABORTED:
            await site.one.abort(TOPIC)
        await site.until(ended)
        earlier = site.table.rows[TOPIC]
        site.kafka.partitions = 4
        await site.one.start(TOPIC, 8, ())
        await site.until(Phase.OPEN)
        await asyncio.sleep(1.5)
        site.table.rows[TOPIC] = earlier
        while site.table.rows[TOPIC].phase is not Phase.FINISHED or site.one.running:
            await asyncio.sleep(0.05)
            assert [view.shown in (8, None) for view in site.views] == [True] * len(site.views)
            assert all(each.records[TOPIC].after == 8 for each in site.all)

    story(tell, *nodes)


def test_a_lone_node_does_not_go_back_in_its_repartition() -> None:
    async def tell(site: Site) -> None:
        await site.one.start(TOPIC, 4, ())
        marked = site.table.rows[TOPIC]
        await site.until(Phase.OPEN)
        site.table.rows[TOPIC] = marked
        await asyncio.sleep(PACE.late_ms / 1000)
        assert site.view.shown == 4
        await site.until(Phase.FINISHED)

    story(tell)
