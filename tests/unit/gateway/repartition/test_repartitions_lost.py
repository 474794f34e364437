"""Repartitions whose record, or whose topic, seems to be gone or is an older one."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.repartition.partitioners import Partitioner
from gateway.core.repartition.plan import Order
from gateway.core.repartition.record import Phase, Repartition
from gateway.repartition.limits import GONE_LOOK_S
from gateway.repartition.repartitions import NoRepartition
from tests.rig.node_parts import TOPIC, TOPIC_ID
from tests.rig.repartition_site import PACE, Site, story
from tests.unit.gateway.repartition.test_repartitions import _clock  # noqa: F401 - a fixture


@pytest.mark.parametrize("nodes", [(), ("a", "b")], ids=["alone", "two"])
@pytest.mark.parametrize("ended", [Phase.FINISHED, Phase.ABORTED])
def test_a_redis_with_the_record_of_an_earlier_repartition_gets_the_running_one(
    ended: Phase, nodes: tuple[str, ...]
) -> None:
    """Its holds stay, and no partition is hidden again that clients have seen."""

    async def tell(site: Site) -> None:
        await site.one.start(Order(TOPIC, 4))
        if ended is Phase.ABORTED:
            await site.one.abort(TOPIC)
        await site.until(ended)
        earlier = site.table.rows[TOPIC]
        site.kafka.partitions = 4
        await site.one.start(Order(TOPIC, 8))
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
        await site.one.start(Order(TOPIC, 4))
        marked = site.table.rows[TOPIC]
        await site.until(Phase.OPEN)
        site.table.rows[TOPIC] = marked
        await asyncio.sleep(PACE.late_ms / 1000)
        assert site.view.shown == 4
        await site.until(Phase.FINISHED)

    story(tell)


def test_no_client_comes_before_redis_has_said_what_is_hidden() -> None:
    site = Site()
    site.kafka.partitions = 4
    site.table.rows[TOPIC] = Repartition(
        topic=TOPIC,
        topic_id=TOPIC_ID.hex(),
        before=2,
        after=4,
        partitioner=Partitioner.MURMUR2,
        pace=PACE,
        phase=Phase.ABORTED,
    )
    site.table.away = True

    async def tell(site: Site) -> None:
        async with asyncio.TaskGroup() as tasks:
            listens = tasks.create_task(site.one.known())
            await asyncio.sleep(60)
            assert (listens.done(), site.one.away) == (False, "Redis: away")
            site.table.away = False
            await listens
        assert (site.view.shown, site.one.away) == (2, "")

    story(tell, site=site)


def test_an_aborted_one_that_redis_lost_is_written_again_by_a_node_alone() -> None:
    """Else a node that starts shows what is hidden."""

    async def tell(site: Site) -> None:
        await site.one.start(Order(TOPIC, 4))
        record = await site.one.abort(TOPIC)
        site.table.rows.clear()
        await asyncio.sleep(2 * GONE_LOOK_S)
        assert site.table.rows == {TOPIC: record}

    story(tell)


@pytest.mark.parametrize("phase", [Phase.MARKED, Phase.OPEN, Phase.ABORTED])
def test_a_topic_that_is_gone_is_forgotten(phase: Phase) -> None:
    async def tell(site: Site) -> None:
        site.kafka.refusal = 41 if phase is Phase.MARKED else 0
        await site.one.start(Order(TOPIC, 4))
        if phase is Phase.ABORTED:
            await site.one.abort(TOPIC)
        await site.until(phase)
        site.kafka.topic_id = b"anew" * 4
        await asyncio.sleep(1)
        assert "it was created anew" in (await site.one.plan(Order(TOPIC, 4))).refusals[0]
        await asyncio.sleep(3 * GONE_LOOK_S)
        assert site.table.rows == {}
        assert (site.one.records, site.one.running, site.view.hides) == ({}, {}, None)
        with pytest.raises(NoRepartition):
            await site.one.abort(TOPIC)

    story(tell)


@pytest.mark.parametrize("nodes", [(), ("a", "b")], ids=["alone", "two"])
def test_a_topic_that_a_broker_does_not_know_yet_is_not_forgotten(nodes: tuple[str, ...]) -> None:
    async def tell(site: Site) -> None:
        async def starts_anew() -> None:
            """Whatever is asked in these seconds finds no topic."""
            topic_id, site.kafka.topic_id = site.kafka.topic_id, None
            await asyncio.sleep(GONE_LOOK_S - 1)
            for run in site.one.running.values():
                assert "upstream has no topic" in run.error
            site.kafka.topic_id = topic_id
            await asyncio.sleep(GONE_LOOK_S)

        site.kafka.refusal = 41  # it stays as it is
        await site.one.start(Order(TOPIC, 4))
        await starts_anew()
        assert site.phase.value == "marked"
        assert [view.shown for view in site.views] == [2] * len(site.views)
        await site.one.abort(TOPIC)
        for _ in range(5):
            await starts_anew()
        site.table.rows.clear()  # and Redis has lost it just then
        await starts_anew()
        assert [view.shown for view in site.views] == [2] * len(site.views)
        if nodes:
            assert site.phase is Phase.ABORTED

    story(tell, *nodes)
