"""A running repartition and the connections of its producers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from gateway.core.forwarding.metadata_answer import ListedTopic
from gateway.core.repartition.adoption import Producing
from gateway.core.repartition.consumers import Client
from gateway.core.repartition.plan import Order
from gateway.core.repartition.record import Pace, Phase, Repartition
from gateway.listen.server import ConnectionId
from gateway.repartition.limits import CLOSE_MS, SERVED_TOLD_MS
from tests.rig.node_parts import TOPIC, TOPIC_ID
from tests.rig.repartition_site import PACE, Site, story
from tests.rig.virtual_time import now_ms
from tests.unit.gateway.repartition.test_repartitions import _clock  # noqa: F401 - a fixture

ME: Client = ("10.0.0.1", "app")
LATER = ConnectionId(7)


@dataclass
class Unanswered:
    """A connection whose Produce upstream does not answer."""

    connections: dict[int, object]
    client: Client = ME
    draining: bool = False
    producing: Producing = field(
        default=Producing(LATER, True, oldest_ns=1, client=ME, topics=[TOPIC], whole_ns=1)
    )

    def drain(self) -> None:
        self.draining = True

    def abort(self) -> None:
        del self.connections[LATER]


def test_an_answer_that_does_not_come_holds_a_repartition_up_for_a_bounded_time() -> None:
    """Its client was served, so it is closed only when the time for answers is over, too."""

    async def tell(site: Site) -> None:
        await site.one.start(Order(TOPIC, 4))
        await site.until(Phase.SHOWN)
        shown_ms, run = now_ms(), site.one.running[TOPIC]
        site.view.connections[LATER] = Unanswered(site.view.connections)
        run.served(LATER, [ListedTopic(TOPIC, TOPIC_ID, 0, 4)])
        assert [each.client for each in run.outstanding()] == [ME]
        await site.until(Phase.OPEN)
        waited_ms = now_ms() - shown_ms
        assert PACE.adoption_ms + CLOSE_MS <= waited_ms <= PACE.adoption_ms + CLOSE_MS + 1_000
        assert (site.view.connections, run.closed) == ({}, 1)

    story(tell)


@pytest.mark.parametrize("served", [True, False])
def test_a_client_that_another_node_has_served_is_left_alone(*, served: bool) -> None:
    """It asked node a for Metadata, and connects to node b to produce. One that asked nobody is
    closed, and what it sent may be late.
    """

    async def tell(site: Site) -> None:
        await site.one.start(Order(TOPIC, 4))
        await site.until(Phase.OPEN)
        asked, produces = (each.running[TOPIC] for each in site.all)
        for view in site.views:
            producing = Producing(LATER, True, oldest_ns=None, client=ME, topics=[TOPIC])
            view.connections[LATER] = Unanswered(view.connections, producing=producing)
        if served:
            asked.served(LATER, [ListedTopic(TOPIC, TOPIC_ID, 0, 4)])
        else:
            del site.views[0].connections[LATER]
        await asyncio.sleep((SERVED_TOLD_MS + 1_000) / 1000)
        assert (produces.closed, produces.said.late_ms > 0) == ((0, False) if served else (1, True))

    site = Site("a", "b")
    pace = replace(PACE, late_ms=60_000)
    for node in site.all:
        node._pace = pace
    story(tell, site=site)


@pytest.mark.parametrize("ahead_ms", [60_000, -60_000])
def test_a_clock_of_redis_that_is_set_lets_nothing_go_early(ahead_ms: int) -> None:
    """As after a fail-over to a machine with another clock. An earlier record of the old partition
    may still come for `settle_ms`.
    """

    async def tell(site: Site) -> None:
        site.kafka.others = ("billing",)
        site.kafka.committed, site.kafka.ends = {"billing": {0: 5}}, {0: 5, 2: 3}
        site.kafka.partitions = 4
        await asyncio.sleep(20)
        plain = site.one.running[TOPIC].plain
        assert plain is not None

        def end() -> int | None:
            return plain.ends.end_for(frozenset({"billing"}), 2)

        assert end() == 3
        site.kafka.ends[2] = 7
        await asyncio.sleep(1)
        site.table.ahead_ms = ahead_ms
        await asyncio.sleep(1)
        assert end() == 3
        await asyncio.sleep(10)
        assert end() == 7

    site = Site()
    pace = Pace(adoption_ms=0, settle_ms=5_000, late_ms=2**53, consumer_hold_ms=2**53)
    site.table.rows[TOPIC] = Repartition(
        topic=TOPIC,
        topic_id=TOPIC_ID.hex(),
        before=2,
        after=4,
        partitioner=None,
        pace=pace,
        phase=Phase.OPEN,
        boundaries=(5, 0),
        consumers=("billing",),
    )
    story(tell, site=site)
